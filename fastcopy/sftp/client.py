"""The SFTP client the engine awaits: one channel, its handshake, its limits, and operations run to their end.

    client = await SftpClient.open(transport, host="srv002")
    attributes = await client.run(operations.lstat(b"/u01/reorg"))

Asyncio on this side, the pump's thread on the other; the two meet in `submit` and one coalesced call_soon_threadsafe.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fastcopy.config import DEFAULT_QUEUE_DEPTH, DEFAULT_REQUEST_BYTES, DEFAULT_TIMEOUT_S, SAFE_REQUEST_BYTES
from fastcopy.errors import ChannelLost, FastcopyError, NoProgress, ProtocolError
from fastcopy.sftp import packets
from fastcopy.sftp.multiplexer import Multiplexer
from fastcopy.sftp.operation import Conversation, StatusError, Steps
from fastcopy.sftp.packets import Extended, Limits
from fastcopy.sftp.pump import Pump, loss
from fastcopy.sftp.streams import RequestSize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fastcopy.transport.base import Transport

T = TypeVar("T")

#: Bytes. A server that announces less than this is taken to announce nonsense; it gets SAFE_REQUEST_BYTES.
_LEAST_BELIEVABLE_BYTES = 512
#: Seconds a pump may take to end after `close` before it is left behind. Of the 2 s a cancelled job has (law 12).
_JOIN_S = 0.4
#: Handles kept free of those a server allows: for listings and look-ups beside the files.
_SPARE_HANDLES = 2


class HandshakeFailed(Exception):
    """The far side did not answer INIT with VERSION; `received` is what came instead (perhaps nothing)."""

    def __init__(self, reason: FastcopyError, received: bytes) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.received = received


class SftpClient:
    """One SFTP channel after its handshake. Made by `open`, used from one event loop."""

    def __init__(self, transport: Transport, *, host: str, queue_depth: int, timeout_s: float) -> None:
        self.host = host
        #: Extension names the server announced, with their versions.
        self.extensions: dict[bytes, bytes] = {}
        #: What the server limits; None while that is not known.
        self.limits: Limits | None = None
        self.read_size = RequestSize(DEFAULT_REQUEST_BYTES)
        self.write_size = RequestSize(DEFAULT_REQUEST_BYTES)
        #: Why the channel ended; None while it lives and after `close`.
        self.lost: FastcopyError | None = None
        self.ended = asyncio.Event()
        self._asked_bytes: int | None = None
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._timeout_s = timeout_s
        self._multiplexer = Multiplexer(queue_depth=queue_depth, host=host)
        self._pump = Pump(
            transport,
            self._multiplexer,
            timeout_s=timeout_s,
            greet=self._greet,
            on_finished=self._collect,
            on_end=self._end,
        )
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._refusal: HandshakeFailed | None = None
        self._waiters: dict[Conversation[Any], Callable[[], None]] = {}  # what to call as each operation ends
        self._lock = threading.Lock()  # guards _done, which both threads touch
        self._done: list[Conversation[Any]] = []

    @classmethod
    async def open(
        cls,
        transport: Transport,
        *,
        host: str,
        request_bytes: int | None = None,
        queue_depth: int = DEFAULT_QUEUE_DEPTH,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        limits: Limits | None = None,
        learn: bool = True,
    ) -> SftpClient:
        """Make the handshake, learn the server's limits, start the channel's thread.

        Args:
            transport: owned from now on, closed also when this fails; but for HandshakeFailed, after which it may
                still be asked why and is the caller's to close.
            request_bytes: the size asked for; None chooses. Clamped to the server's limits either way.
            limits: what another channel of the same server learned: a round trip less.
            learn: False leaves it to the caller to `learn_limits` before any content is moved, beside other questions.
        Raises: HandshakeFailed when no VERSION comes; ChannelLost; ProtocolError.
        Cancellation: closes the transport.
        """
        client = cls(transport, host=host, queue_depth=queue_depth, timeout_s=timeout_s)
        client._pump.start()
        try:
            await client._greeted
            client._asked_bytes = request_bytes
            if limits is not None:
                client._keep_to(limits)
            elif learn:
                await client.learn_limits()
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def moved_bytes(self) -> int:
        """Bytes of file content acknowledged or stored on this channel so far."""
        return self._multiplexer.moved_bytes

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    async def learn_limits(self) -> None:
        """Ask limits@openssh.com where it is announced, and keep to the answer. Raises: ChannelLost; ProtocolError."""
        limits = Limits()
        if self.announces(packets.LIMITS):
            with contextlib.suppress(StatusError):
                limits = await self.run(_limits())
        self._keep_to(limits)

    def limit_active(self, operations: int) -> None:
        """Let at most `operations` be under way at once, each perhaps with a file open on both sides."""
        self._multiplexer.active_limit = max(1, min(self._multiplexer.active_limit, operations))

    def narrow(self) -> None:
        """Let half as many operations be under way at once: the server seems to be short of handles."""
        self._multiplexer.narrow()

    def announces(self, extension: bytes) -> bool:
        return extension in self.extensions

    async def run(self, steps: Steps[T]) -> T:
        """Run one operation to its end and return its result.

        Raises: what the operation raises: StatusError for a server's refusal, ChannelLost when the channel ends,
            OSError and FileErrors of the local side.
        Cancellation: the operation goes on to its end in the pump; its result is dropped.
        """
        result: T = await self.start(steps)
        return result

    def start(self, steps: Steps[T]) -> asyncio.Future[T]:
        """Begin one operation at once; the future ends as `run` does."""
        operation = Conversation(steps)
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit([operation], lambda: self._tell(operation, future))
        return future

    async def run_all(self, many: Iterable[Steps[T]]) -> list[T | BaseException]:
        """Run operations side by side; return each one's result, or what it raised, in the order given.

        Cancellation: as in `run`.
        """
        operations = [Conversation(steps) for steps in many]
        left = len(operations)
        all_ended: asyncio.Future[None] = self._loop.create_future()

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if not left and not all_ended.done():
                all_ended.set_result(None)

        if operations:
            self._submit(operations, one_ended)
            await all_ended
        return [self._outcome(operation) for operation in operations]

    def _submit(self, operations: list[Conversation[Any]], on_ended: Callable[[], None]) -> None:
        """Hand operations to the pump; `on_ended` is called on the loop as each of them ends."""
        if self.ended.is_set():
            for _ in operations:
                on_ended()
            return
        for operation in operations:
            self._waiters[operation] = on_ended
        self._pump.submit(operations)

    def _outcome(self, operation: Conversation[Any]) -> Any:
        """Return the result of an operation that ended, or what it raised; the loss of the channel if it did not."""
        if not operation.finished:
            return loss(self.lost, self.host)
        return operation.result if operation.error is None else operation.error

    def _tell(self, operation: Conversation[T], future: asyncio.Future[T]) -> None:
        if future.done():
            return
        if operation.finished and operation.error is None:
            future.set_result(cast("T", operation.result))
        else:
            future.set_exception(operation.error or loss(self.lost, self.host))

    async def close(self) -> None:
        """End the channel; what is under way ends with ChannelLost. Idempotent."""
        self._pump.stop()
        if not self.ended.is_set():
            try:
                # wait_for: asyncio.timeout ends a task that is cancelled already with CancelledError before 3.11.4.
                await asyncio.wait_for(self.ended.wait(), _JOIN_S)
            except TimeoutError:  # a disk that does not answer holds the thread; it is a daemon
                self.ended.set()
        self._settle()

    # --- the pump's thread ---

    def _greet(self) -> None:
        try:
            self._handshake()
        except HandshakeFailed as exc:
            self._refusal = exc
            raise exc.reason from None
        self._call_loop(self._greeted_now)

    def _handshake(self) -> None:
        """Send INIT and read VERSION, exactly: what follows belongs to the multiplexer."""
        transport, received = self._transport, b""
        deadline_s = time.monotonic() + self._timeout_s
        to_send = packets.init()
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            try:
                if to_send:
                    to_send = to_send[transport.write(to_send) :]
                need = 4 + (int.from_bytes(received[:4], "big") if len(received) >= 4 else 0) - len(received)
                data = transport.read(need)
            except ChannelLost as exc:
                raise HandshakeFailed(exc, received + (transport.read(1024) or b"")) from exc  # its last words
            if data == b"":
                reason = ChannelLost(transport.diagnosis() or "the server closed it", host=self.host)
                raise HandshakeFailed(reason, received)
            if data is None:
                if self._pump.stopping:
                    raise HandshakeFailed(loss(None, self.host), received)
                if time.monotonic() > deadline_s:
                    raise HandshakeFailed(NoProgress(host=self.host, timeout_s=f"{self._timeout_s:g}"), received)
                transport.wait(readable=True, writable=bool(to_send), timeout_s=0.5)
                continue
            received += data
            if len(received) == 4 and not 5 <= int.from_bytes(received, "big") <= packets.MAX_PACKET_BYTES:
                received += transport.read(1024) or b""  # text, most likely: show more of it
                raise HandshakeFailed(ProtocolError("its first bytes are no SFTP packet"), received)
        try:
            self.extensions = packets.decode_version(received[4:])
        except ProtocolError as exc:
            raise HandshakeFailed(exc, received) from exc

    def _collect(self, finished: list[Conversation[Any]]) -> None:
        with self._lock:
            scheduled = bool(self._done)
            self._done += finished
        if not scheduled:
            self._call_loop(self._settle)

    def _end(self, reason: FastcopyError | None) -> None:
        self.lost = reason
        self._call_loop(self._ended_now)

    def _call_loop(self, function: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    # --- the loop's thread ---

    def _greeted_now(self) -> None:
        if not self._greeted.done():
            self._greeted.set_result(None)

    def _ended_now(self) -> None:
        self.ended.set()
        if not self._greeted.done():
            self._greeted.set_exception(self._refusal or loss(self.lost, self.host))
        self._settle()

    def _settle(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        for operation in done:
            on_ended = self._waiters.pop(operation, None)
            if on_ended is not None:
                on_ended()
        if self.ended.is_set():
            left, self._waiters = self._waiters, {}
            for on_ended in left.values():
                on_ended()

    def _keep_to(self, limits: Limits) -> None:
        """Clamp the request sizes and the number of open handles."""
        self.limits = limits
        asked, announced = self._asked_bytes, self.announces(packets.LIMITS)
        self.read_size = RequestSize(clamp(asked, limits.read_bytes, limits.packet_bytes, True))
        self.write_size = RequestSize(clamp(asked, limits.write_bytes, limits.packet_bytes, announced))
        if limits.open_handles:
            self.limit_active(limits.open_handles - _SPARE_HANDLES)


def clamp(asked: int | None, limit: int, packet_bytes: int, large_is_safe: bool) -> int:
    """Return the request size to use.

    Args:
        asked: bytes the user asked for; None for our choice.
        limit: the server's limit for this direction; 0 when it names none.
        packet_bytes: its limit for a whole packet; 0 when it names none.
        large_is_safe: whether more than 32 KiB may be tried unasked. A READ too large comes back short; a WRITE too
            large ends the session of a server that announced nothing.
    """
    wanted = asked or (DEFAULT_REQUEST_BYTES if large_is_safe else SAFE_REQUEST_BYTES)
    for bound in (limit, packet_bytes - 1024 if packet_bytes > 1024 else 0):  # 1 KiB: handle and header of a WRITE
        if bound >= _LEAST_BELIEVABLE_BYTES:
            wanted = min(wanted, bound)
        elif bound:
            wanted = min(wanted, SAFE_REQUEST_BYTES)
    return wanted


def _limits() -> Steps[Limits]:
    reply = yield packets.limits()
    if not isinstance(reply, Extended):
        raise ProtocolError("limits@openssh.com was answered with something else")
    return Limits.decode(reply.body)
