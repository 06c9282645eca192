"""A SessionTransport over a real asyncssh login on loopback, and its far end as a peer of blocking calls.

Owns a thread with the event loop of both ends. Its server side is asyncssh's own session, with nothing of SFTP.
Invariant: after the block there is no thread, listener or connection left.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh

from fastcopy.connection.asyncssh_login import AsyncsshConnector
from fastcopy.demo.server import DemoLogin, DemoServer

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from fastcopy.connection.asyncssh_transport import SessionTransport

#: Seconds any step may take on a busy machine.
_WAIT_S = 30.0
#: Bytes the far end holds before it stops reading, so that a transport nobody reads from fills up.
_HELD_BYTES = 64 << 10


class SessionPeer(asyncssh.SSHServerSession[bytes]):
    """The far end of one session; callbacks run on the loop's thread, the rest blocks the caller."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._news = threading.Condition()
        self._received = bytearray()
        self._has_ended = False

    # --- what asyncssh calls ---

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp"

    def data_received(self, data: bytes, datatype: int | None) -> None:
        with self._news:
            self._received += data
            self._news.notify_all()
            if len(self._received) > _HELD_BYTES and self._channel is not None:
                self._channel.pause_reading()

    def eof_received(self) -> bool:
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _end(self) -> None:
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    # --- what a test calls ---

    def send_all(self, data: bytes) -> None:
        """Send all of `data`."""
        asyncio.run_coroutine_threadsafe(self._send(data), self._loop).result()

    async def _send(self, data: bytes) -> None:
        assert self._channel is not None
        for start in range(0, len(data), 32_768):
            await self._may_write.wait()
            with contextlib.suppress(OSError):  # the transport closed
                self._channel.write(data[start : start + 32_768])

    def receive_exactly(self, count: int) -> bytes:
        """Return the next `count` bytes; fewer only when the transport closed."""
        got = bytearray()
        while len(got) < count:
            with self._news:
                self._news.wait_for(lambda: self._received or self._has_ended, timeout=_WAIT_S)
                if not self._received:
                    break
                taken = self._received[: count - len(got)]
                del self._received[: len(taken)]
            got += taken
            self._loop.call_soon_threadsafe(self._resume)
        return bytes(got)

    def _resume(self) -> None:
        if self._channel is not None and len(self._received) <= _HELD_BYTES:
            self._channel.resume_reading()

    def close(self) -> None:
        """End both directions; what was sent still arrives. Idempotent."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    async def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()


class _Login(DemoLogin):
    """Gives every session to a SessionPeer."""

    peers: list[SessionPeer]

    def session_requested(self) -> SessionPeer:
        peer = SessionPeer(asyncio.get_running_loop())
        self.peers.append(peer)
        return peer


@contextlib.contextmanager
def session_pair(**bounds: Any) -> Iterator[tuple[SessionTransport, SessionPeer]]:
    """Log in, open one session, and yield both its ends; `bounds` are AsyncsshConnector's."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="session pair")
    thread.start()

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(_WAIT_S)

    stack = contextlib.AsyncExitStack()
    try:
        transport, peer = run(_open(stack, bounds))
        try:
            yield transport, peer
        finally:
            transport.close()
    finally:
        run(stack.aclose())
        run(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _open(stack: contextlib.AsyncExitStack, bounds: dict[str, Any]) -> tuple[SessionTransport, SessionPeer]:
    peers: list[SessionPeer] = []
    login = type("Login", (_Login,), {"peers": peers})
    root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server = await stack.enter_async_context(DemoServer(root, login_class=login, allow_sftp=False))
    connector = AsyncsshConnector(server.host, "tester", server.ssh_options(), **bounds)
    stack.push_async_callback(connector.close)
    connection = await connector.connect(interactive=False)
    stack.push_async_callback(connection.close)
    transport = await connection.open_sftp()
    return transport, peers[0]
