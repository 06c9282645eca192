"""A child's pipes on the event loop: what it says is collected within a bound, what it is to be told is fed.

Each object owns its descriptor and closes it. Must not know what the bytes mean. Invariant: a reader takes everything
until the end, so that the child never waits for us; only `limit_bytes` of it are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes read or written at once: a pipe's default capacity on Linux.
_PIECE_BYTES = 64 << 10


class Collector:
    """Collects what arrives on a pipe: its beginning, or its end."""

    def __init__(
        self, fd: int, *, limit_bytes: int, keep_end: bool = False, on_full: Callable[[], None] | None = None
    ) -> None:
        """Take over the read end `fd`.

        Args:
            keep_end: where there is more than `limit_bytes`, keep the last ones instead of the first.
            on_full: called once, when bytes had to be thrown away.
        """
        self._fd: int | None = fd
        self._limit_bytes = limit_bytes
        self._keep_end = keep_end
        self._on_full = on_full
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    @property
    def kept(self) -> bytes:
        return bytes(self._kept)

    async def wait_end(self) -> bytes:
        """Wait until the other side has closed the pipe; return what was kept."""
        await self._ended.wait()
        return self.kept

    def _read(self) -> None:
        if self._fd is None:
            return
        try:
            while piece := os.read(self._fd, _PIECE_BYTES):
                self._keep(piece)
        except BlockingIOError:
            return
        self.close()

    def _keep(self, piece: bytes) -> None:
        self._kept += piece
        if len(self._kept) <= self._limit_bytes:
            return
        if self._keep_end:
            del self._kept[: -self._limit_bytes]
        else:
            del self._kept[self._limit_bytes :]
        on_full, self._on_full = self._on_full, None
        if on_full is not None:
            on_full()

    def drain(self) -> bytes:
        """Take what has arrived without waiting; return what was kept."""
        self._read()
        return self.kept

    def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
            self._ended.set()


class Feeder:
    """Feeds bytes into a pipe, then closes it; a reader that goes away early is no error."""

    def __init__(self, fd: int, data: bytes) -> None:
        """Take over the write end `fd`."""
        self._fd: int | None = fd
        self._left = memoryview(data)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_writer(fd, self._write)
        self._write()

    def _write(self) -> None:
        if self._fd is None:
            return
        try:
            while self._left:
                self._left = self._left[os.write(self._fd, self._left[:_PIECE_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass
        self.close()

    def close(self) -> None:
        """Close the pipe, fed or not. Idempotent."""
        if self._fd is not None:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = None


class PipeEnds:
    """Both ends of a new pipe; `close` closes those that were not taken away."""

    def __init__(self) -> None:
        self._read_fd: int | None
        self._write_fd: int | None
        self._read_fd, self._write_fd = os.pipe()

    @property
    def read_fd(self) -> int:
        assert self._read_fd is not None
        return self._read_fd

    @property
    def write_fd(self) -> int:
        assert self._write_fd is not None
        return self._write_fd

    def take_read(self) -> int:
        """Return the read end; the caller owns it now."""
        fd, self._read_fd = self.read_fd, None
        return fd

    def take_write(self) -> int:
        """Return the write end; the caller owns it now."""
        fd, self._write_fd = self.write_fd, None
        return fd

    def close(self) -> None:
        for fd in (self._read_fd, self._write_fd):
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._read_fd = self._write_fd = None

    def __enter__(self) -> PipeEnds:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
