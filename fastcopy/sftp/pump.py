"""The thread that drives one SFTP channel: bytes between a transport and a multiplexer, and the channel's deadline.

Thin I/O without policy: what to ask is the operations' business, how many at once the multiplexer's, how bytes move
the transport's. Invariant: every submitted operation is reported finished exactly once, whatever ends the channel.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from fastcopy.errors import ChannelLost, FastcopyError, NoProgress, ProtocolError
from fastcopy.sftp import packets

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastcopy.sftp.multiplexer import Multiplexer
    from fastcopy.sftp.operation import Conversation
    from fastcopy.sftp.packets import FileSlice
    from fastcopy.transport.base import Transport

#: Bytes of short packets gathered into one write: about what one SSH packet of OpenSSH holds, twice.
_GATHER_BYTES = 64 * 1024
#: Bytes of zeros sent at once in place of a local file that ended inside a WRITE whose length is already on the wire.
_PADDING = bytes(64 * 1024)
#: Seconds between looks at the deadline while nothing arrives.
_TICK_S = 0.5
#: Moves from the transport in one turn: more would let the server run out of requests while a slow disk takes what it
#: sent, and keep `stop` waiting. Source: our choice; a few replies of 255 KiB.
_RECEIVES_PER_TURN = 64


class Pump:
    """One channel's thread. `submit` and `stop` may be called from any thread, the rest happens inside."""

    def __init__(
        self,
        transport: Transport,
        multiplexer: Multiplexer,
        *,
        timeout_s: float,
        greet: Callable[[], None],
        on_finished: Callable[[list[Conversation[Any]]], None],
        on_end: Callable[[FastcopyError | None], None],
    ) -> None:
        """Make a pump; `start` runs it.

        Args:
            transport: owned from now on; closed when the pump ends, unless `greet` failed.
            timeout_s: seconds without an answer, while one is owed, after which the channel counts as lost.
            greet: called first, in the pump's thread, to make the handshake; what it raises ends the channel, and
                leaves the transport open: it may still tell why. It must give up when `stopping` becomes true.
            on_finished: called in the pump's thread with the operations that ended.
            on_end: called last, in the pump's thread, with the reason; None after `stop`.
        """
        self._transport = transport
        self._multiplexer = multiplexer
        self._timeout_s = timeout_s
        self._greet = greet
        self._on_finished = on_finished
        self._on_end = on_end
        self._inbox: deque[Conversation[Any]] = deque()
        #: Whether `stop` was called.
        self.stopping = False
        self._outgoing = memoryview(b"")  # bytes of the current packets not yet taken by the transport
        self._payload: FileSlice | None = None  # file bytes that follow them
        self._payload_of: Conversation[Any] | None = None
        self._padding_bytes = 0
        self._thread = threading.Thread(target=self._run, name=f"sftp {multiplexer.host}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, operations: list[Conversation[Any]]) -> None:
        self._inbox.extend(operations)
        self._transport.wake()

    def stop(self) -> None:
        """End the channel soon; operations still under way end with ChannelLost."""
        self.stopping = True
        self._transport.wake()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; False when it is still busy (a disk that does not answer)."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        reason: FastcopyError | None = None
        may_close = False
        try:
            self._greet()
            may_close = True
            self._loop()
        except FastcopyError as exc:
            reason = exc
        except Exception as exc:  # a defect of ours: never leave the job waiting for this channel
            may_close = True
            reason = ProtocolError(f"{type(exc).__name__}: {exc}")
            reason.__cause__ = exc
        finally:
            try:
                while self._inbox:
                    self._multiplexer.submit(self._inbox.popleft())
                self._multiplexer.fail(loss(reason, self._multiplexer.host))
                self._report()
                if may_close or self.stopping:
                    self._transport.close()
            finally:
                self._on_end(reason)

    def _loop(self) -> None:
        transport, multiplexer = self._transport, self._multiplexer
        last_progress_s = time.monotonic()
        while not self.stopping:
            while self._inbox:
                multiplexer.submit(self._inbox.popleft())
            moved = self._send()
            moved = self._receive() or moved
            if multiplexer.finished:
                self._report()
            if moved:
                last_progress_s = time.monotonic()
                continue
            if not multiplexer.outstanding and not self._blocked:
                last_progress_s = time.monotonic()  # nobody owes an answer
            elif time.monotonic() - last_progress_s > self._timeout_s:
                raise NoProgress(host=multiplexer.host, timeout_s=f"{self._timeout_s:g}")
            transport.wait(readable=True, writable=self._blocked, timeout_s=_TICK_S)

    @property
    def _blocked(self) -> bool:
        """Whether something waits for room in the transport."""
        return bool(self._outgoing) or self._payload is not None or self._padding_bytes > 0

    def _send(self) -> bool:
        """Hand the transport what it takes. True if anything moved."""
        moved = False
        while True:
            if not self._blocked and not self._gather():
                return moved
            if self._outgoing:
                taken = self._transport.write(self._outgoing)
                self._outgoing = self._outgoing[taken:]
            elif self._payload is not None:
                taken = self._send_payload(self._payload)
            else:
                taken = self._transport.write(_PADDING[: self._padding_bytes])
                self._padding_bytes -= taken
                if not self._padding_bytes:
                    self._multiplexer.payload_sent()
            if taken == 0:
                return moved
            moved = True

    def _gather(self) -> bool:
        """Make the next packets ready to go: short ones together, up to one with payload."""
        parts: list[bytes] = []
        total = 0
        while total < _GATHER_BYTES:
            packet = self._multiplexer.next_packet()
            if packet is None:
                break
            head, payload, operation = packet
            parts.append(head)
            total += len(head)
            if payload is not None:
                self._payload, self._payload_of = payload, operation
                break
        self._outgoing = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        return bool(parts)

    def _send_payload(self, payload: FileSlice) -> int:
        try:
            taken = self._transport.send_file(payload.fd, payload.offset, payload.length)
        except (OSError, FastcopyError) as exc:
            if isinstance(exc, ChannelLost):
                raise
            # The length is on the wire already: send zeros for the rest, of which nothing will be kept.
            assert self._payload_of is not None
            self._payload_of.spoil(exc)
            self._padding_bytes, self._payload = payload.length, None
            return 1
        if taken == payload.length:
            self._payload = self._payload_of = None
            self._multiplexer.payload_sent()
        else:
            self._payload = packets.FileSlice(payload.fd, payload.offset + taken, payload.length - taken)
        return taken

    def _receive(self) -> bool:
        """Take what has arrived, a turn's worth. True if anything moved."""
        transport, multiplexer = self._transport, self._multiplexer
        moved = False
        for _ in range(_RECEIVES_PER_TURN):
            landing = multiplexer.landing
            if landing is not None:
                try:
                    count = transport.receive_file(landing.fd, landing.offset, landing.length)
                except OSError as exc:
                    multiplexer.landing_failed(exc)
                    moved = True
                    continue
                if count == 0:
                    return moved
                multiplexer.landed(count)
            else:
                data = transport.read(multiplexer.read_limit())
                if data is None:
                    return moved
                if not data:
                    raise ChannelLost(transport.diagnosis() or "the server closed it", host=multiplexer.host)
                multiplexer.receive(data)
            moved = True
        return moved

    def _report(self) -> None:
        finished, self._multiplexer.finished = self._multiplexer.finished, []
        if finished:
            self._on_finished(finished)


def loss(reason: FastcopyError | None, host: str) -> ChannelLost:
    """Return what operations end with when their channel ended because of `reason`; None: it was closed."""
    if isinstance(reason, ChannelLost):
        reason.details.setdefault("host", host)
        return reason
    return ChannelLost(str(reason or "it was closed"), host=host)
