"""Our ends of the two pipes to an ssh child, as a Transport: file bytes go through splice, never through Python.

Owns both descriptors and frees them. Where there is no splice (macOS), or a file system refuses it, the same is done
with reads and writes of a bounded piece. Must not import the event loop, SFTP or how ssh is started.
Invariant: a byte taken out of the pipe is either in the file or still given out by the next `read`/`receive_file`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import select
import time
from typing import TYPE_CHECKING

from fastcopy.errors import ChannelLost, SourceChanged
from fastcopy.transport.wake import WakeFd

if TYPE_CHECKING:
    from collections.abc import Callable

#: Whether this system can move bytes between a file and a pipe without us touching them.
HAS_SPLICE = hasattr(os, "splice")
#: Bytes. Sizes to ask for, best first; a user with many pipes may get less than the first.
#: Source: pipe(7): pipe-max-size is 1 MiB, and pipe-user-pages-soft 64 MiB for all pipes of one user, by default.
PIPE_SIZES_BYTES = (1 << 20, 1 << 18, 1 << 16)
#: Bytes. One piece where splice is not to be had; what does not fit in the pipe is read again, so not too much.
PIECE_BYTES = 64 << 10
#: Seconds. How long to let a full pipe drain (an empty one fill) while payload is streaming, instead of poll().
#: Source: our measurement: poll wakes per 32 KiB page run; 0.5 ms lets a 1 MiB pipe move about 250 KiB:
#: 600 -> 800 MiB/s, 20 % less CPU.
PACE_S = 0.0005
#: Bytes of files that must have moved since the last `wait` for the stream to count as streaming. Half of the 32 KiB
#: that poll wakes for, so that streaming is noticed; more than a small file, so that its round trip is not held up.
STREAMING_BYTES = 16 << 10
#: Seconds. The longest single poll(); `wait` may return early.
_LONGEST_POLL_S = 3600.0
#: How a file system says that it does not splice. Source: splice(2); EOPNOTSUPP, ENOSYS: stacked and emulated ones.
_SPLICE_REFUSED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_NOTHING = memoryview(b"")


class PipeTransport:
    """A Transport over the write end of a child's stdin and the read end of its stdout."""

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        peer: str,
        on_close: Callable[[], None] | None = None,
        diagnose: Callable[[], str] | None = None,
        splice: bool = HAS_SPLICE,
    ) -> None:
        """Take over both descriptors: they are made non-blocking, enlarged, and closed by `close`.

        Args:
            read_fd: read end of the pipe the peer writes to.
            write_fd: write end of the pipe the peer reads from.
            peer: the host, for error messages.
            on_close: called once, in the pump's thread, after both descriptors are closed.
            diagnose: what the carrier has to say about a failure; called when an error is made.
            splice: False does without it, as on a system that has none.
        """
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._peer = peer
        self._on_close = on_close
        self._diagnose = diagnose
        self._splices = splice
        self._kept = _NOTHING  # read from the pipe, but the file did not take it
        self._moved_bytes = 0  # of files, since the last wait
        self._is_closed = False
        self._wake = WakeFd()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
            _enlarge(fd)
        self._pollers = {
            (readable, writable): self._poller(readable, writable)
            for readable in (False, True)
            for writable in (False, True)
        }

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"read_fd={self._read_fd} write_fd={self._write_fd}"
        return f"<PipeTransport to {self._peer}: {state}>"

    def write(self, data: bytes | memoryview) -> int:
        """See Transport.write."""
        self._check_open()
        if not data:
            return 0
        try:
            return os.write(self._write_fd, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError as exc:
            raise self._lost() from exc

    def send_file(self, fd: int, offset: int, length: int) -> int:
        """See Transport.send_file."""
        self._check_open()
        if not length:
            return 0
        try:
            taken = self._file_to_pipe(fd, offset, length)
        except BlockingIOError:
            return 0
        except BrokenPipeError as exc:
            raise self._lost() from exc
        if not taken:
            raise SourceChanged(f"it ends at or before byte {offset}", offset=offset)
        self._moved_bytes += taken
        return taken

    def _file_to_pipe(self, fd: int, offset: int, length: int) -> int:
        if self._splices:
            try:
                return os.splice(fd, self._write_fd, length, offset, flags=os.SPLICE_F_NONBLOCK)
            except OSError as exc:
                if exc.errno not in _SPLICE_REFUSED:
                    raise
        piece = os.pread(fd, min(length, PIECE_BYTES), offset)
        return os.write(self._write_fd, piece) if piece else 0

    def read(self, limit: int) -> bytes | None:
        """See Transport.read."""
        if self._kept:
            piece, self._kept = self._kept[:limit], self._kept[limit:]
            return bytes(piece)
        if self._is_closed:
            return b""
        try:
            return os.read(self._read_fd, limit)
        except BlockingIOError:
            return None

    def receive_file(self, fd: int, offset: int, length: int) -> int:
        """See Transport.receive_file."""
        self._check_open()
        if not length:
            return 0
        try:
            put = self._pipe_to_file(fd, offset, length)
        except BlockingIOError:
            return 0
        if not put:
            raise self._lost()
        self._moved_bytes += put
        return put

    def _pipe_to_file(self, fd: int, offset: int, length: int) -> int:
        if not self._kept:
            if self._splices:
                try:
                    return os.splice(self._read_fd, fd, length, offset_dst=offset, flags=os.SPLICE_F_NONBLOCK)
                except OSError as exc:
                    if exc.errno not in _SPLICE_REFUSED:
                        raise
            self._kept = memoryview(os.read(self._read_fd, min(length, PIECE_BYTES)))
            if not self._kept:
                return 0
        put = os.pwrite(fd, self._kept[:length], offset)  # a short or failed one leaves the rest kept
        self._kept = self._kept[put:]
        return put

    def wait(self, *, readable: bool, writable: bool, timeout_s: float) -> None:
        """See Transport.wait. While file bytes stream it sleeps PACE_S once before it will poll."""
        if self._is_closed or (readable and self._kept):
            return
        is_streaming = self._moved_bytes >= STREAMING_BYTES
        self._moved_bytes = 0
        if is_streaming:
            # A wake during this sleep stays set and ends the next wait.
            time.sleep(max(0.0, min(PACE_S, timeout_s)))
            return
        timeout_ms = math.ceil(max(0.0, min(timeout_s, _LONGEST_POLL_S)) * 1000)
        for fd, _ in self._pollers[readable, writable].poll(timeout_ms):
            if fd == self._wake.fd:
                self._wake.clear()

    def wake(self) -> None:
        """See Transport.wake."""
        self._wake.wake()

    def close(self) -> None:
        """See Transport.close."""
        if self._is_closed:
            return
        self._is_closed = True
        self._kept = _NOTHING
        os.close(self._write_fd)
        os.close(self._read_fd)
        self._wake.close()
        if self._on_close is not None:
            self._on_close()

    def diagnosis(self) -> str:
        """See Transport.diagnosis."""
        return self._diagnose() if self._diagnose is not None else ""

    def _poller(self, readable: bool, writable: bool) -> select.poll:
        # A direction nobody asks for is left out whole: poll reports a hang-up even to an empty mask, and would spin.
        poller = select.poll()
        poller.register(self._wake.fd, select.POLLIN)
        if readable:
            poller.register(self._read_fd, select.POLLIN)
        if writable:
            poller.register(self._write_fd, select.POLLOUT)
        return poller

    def _check_open(self) -> None:
        if self._is_closed:
            raise ChannelLost("this end closed it", host=self._peer)

    def _lost(self) -> ChannelLost:
        return ChannelLost(self.diagnosis() or "the other end closed it", host=self._peer)


def _enlarge(fd: int) -> None:
    """Make the pipe behind `fd` as large as the system lets us; leave it as it is where it does not."""
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return
    for size_bytes in PIPE_SIZES_BYTES:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size_bytes)
            return
