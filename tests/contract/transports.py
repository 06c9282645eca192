"""Every implementation of Transport, each with a peer that a test can drive from a thread with blocking calls.

To put a further one under the suite in test_transport.py: write a context manager that yields (transport, peer) and
ends both, and name it in TRANSPORTS. The test's thread is the pump's thread.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol

from fastcopy.transport.memory import MemoryTransport, memory_pair
from fastcopy.transport.pipe import HAS_SPLICE, PipeTransport
from tests.support.session_pair import session_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from fastcopy.transport.base import Transport

_WAIT_S = 30.0


class Peer(Protocol):
    """The far end of a transport. Calls block; one thread may send while another receives."""

    def send_all(self, data: bytes) -> None:
        """Send all of `data`."""
        ...

    def receive_exactly(self, count: int) -> bytes:
        """Return the next `count` bytes; fewer only when the transport closed."""
        ...

    def close(self) -> None:
        """End both directions; what was sent still arrives. Idempotent."""
        ...


class PipePeer:
    """Stands where ssh stands: blocking ends of the two pipes."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._is_closed = False

    def send_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._write_fd, rest) :]

    def receive_exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            piece = os.read(self._read_fd, count - len(received))
            if not piece:
                break
            received += piece
        return bytes(received)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._read_fd)
            os.close(self._write_fd)


class MemoryPeer:
    """The other transport of a pair, driven with blocking calls."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport

    def send_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._transport.write(rest) :]
            if rest:
                self._transport.wait(readable=False, writable=True, timeout_s=_WAIT_S)

    def receive_exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            piece = self._transport.read(count - len(received))
            if piece is None:
                self._transport.wait(readable=True, writable=False, timeout_s=_WAIT_S)
            elif piece:
                received += piece
            else:
                break
        return bytes(received)

    def close(self) -> None:
        self._transport.close()


@contextlib.contextmanager
def pipe(*, splice: bool) -> Iterator[tuple[Transport, Peer]]:
    """Two real pipes."""
    peer_read_fd, write_fd = os.pipe()
    read_fd, peer_write_fd = os.pipe()
    peer = PipePeer(peer_read_fd, peer_write_fd)
    transport = PipeTransport(read_fd, write_fd, peer="pipe peer", splice=splice)
    try:
        yield transport, peer
    finally:
        transport.close()
        peer.close()


@contextlib.contextmanager
def memory() -> Iterator[tuple[Transport, Peer]]:
    """The fake for tests of what lies above: it earns its trust here."""
    transport, other = memory_pair()
    peer = MemoryPeer(other)
    try:
        yield transport, peer
    finally:
        transport.close()
        peer.close()


#: Name of the implementation -> what makes one with its peer.
TRANSPORTS: dict[str, Callable[[], AbstractContextManager[tuple[Transport, Peer]]]] = {
    **({"pipe with splice": lambda: pipe(splice=True)} if HAS_SPLICE else {}),
    "pipe without splice": lambda: pipe(splice=False),
    "memory": memory,
    "asyncssh session": session_pair,
}
