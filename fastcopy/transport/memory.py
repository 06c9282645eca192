"""Two Transports joined in memory, for tests of everything above a transport.

Bounded like a pipe, so that back-pressure is met too. Must not import the event loop or SFTP. One lock guards a pair.
Invariant: it keeps the same contract as the real ones: the suite in tests/contract runs over it.
"""

from __future__ import annotations

import os
import threading

from fastcopy.errors import ChannelLost, SourceChanged

#: Bytes that fit in one direction. Source: a Linux pipe as it is made, pipe(7).
DEFAULT_CAPACITY_BYTES = 64 << 10


class _Stream:
    """The bytes under way in one direction, and which of its ends are closed."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.data = bytearray()
        self.writer_closed = False
        self.reader_closed = False

    @property
    def room_bytes(self) -> int:
        return self.capacity_bytes - len(self.data)


class MemoryTransport:
    """One end of a pair; made by `memory_pair`."""

    def __init__(self, incoming: _Stream, outgoing: _Stream, changed: threading.Condition, peer: str) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._changed = changed
        self._peer = peer
        self._is_woken = False
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._incoming.data)} in, {len(self._outgoing.data)} out"
        return f"<MemoryTransport to {self._peer}: {state}>"

    def write(self, data: bytes | memoryview) -> int:
        """See Transport.write."""
        with self._changed:
            self._check_writable()
            return self._put(memoryview(data)[: self._outgoing.room_bytes])

    def send_file(self, fd: int, offset: int, length: int) -> int:
        """See Transport.send_file."""
        with self._changed:
            self._check_writable()
            count = min(length, self._outgoing.room_bytes)
            piece = os.pread(fd, count, offset)
            if count and not piece:
                raise SourceChanged(f"it ends at or before byte {offset}", offset=offset)
            return self._put(piece)

    def read(self, limit: int) -> bytes | None:
        """See Transport.read."""
        with self._changed:
            piece = bytes(self._incoming.data[:limit])
            self._take(len(piece))
            return piece or (b"" if self._incoming.writer_closed or self._is_closed else None)

    def receive_file(self, fd: int, offset: int, length: int) -> int:
        """See Transport.receive_file."""
        with self._changed:
            piece = self._incoming.data[:length]
            if length and not piece and (self._incoming.writer_closed or self._is_closed):
                raise self._lost()
            put = os.pwrite(fd, piece, offset) if piece else 0
            self._take(put)
            return put

    def wait(self, *, readable: bool, writable: bool, timeout_s: float) -> None:
        """See Transport.wait."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._is_woken
                    or self._is_closed
                    or (readable and (self._incoming.data or self._incoming.writer_closed))
                    or (writable and (self._outgoing.room_bytes or self._outgoing.reader_closed))
                ),
                max(0.0, min(timeout_s, threading.TIMEOUT_MAX)),
            )
            self._is_woken = False

    def wake(self) -> None:
        """See Transport.wake."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """See Transport.close. What was accepted still arrives."""
        with self._changed:
            self._is_closed = True
            self._outgoing.writer_closed = True
            self._incoming.reader_closed = True
            self._incoming.data.clear()
            self._changed.notify_all()

    def diagnosis(self) -> str:
        """See Transport.diagnosis."""
        return ""

    def _put(self, piece: bytes | memoryview) -> int:
        self._outgoing.data += piece
        self._changed.notify_all()
        return len(piece)

    def _take(self, count: int) -> None:
        del self._incoming.data[:count]
        self._changed.notify_all()

    def _check_writable(self) -> None:
        if self._is_closed or self._outgoing.reader_closed:
            raise self._lost()

    def _lost(self) -> ChannelLost:
        return ChannelLost("this end closed it" if self._is_closed else "the other end closed it", host=self._peer)


def memory_pair(capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two transports, each the other's peer, with `capacity_bytes` under way at most in either direction."""
    changed = threading.Condition()
    there, back = _Stream(capacity_bytes), _Stream(capacity_bytes)
    return (
        MemoryTransport(back, there, changed, "memory peer 1"),
        MemoryTransport(there, back, changed, "memory peer 0"),
    )
