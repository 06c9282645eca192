"""A file descriptor that any thread can make readable, so that a thread sleeping in poll() gets up.

Owns the descriptor(s) alone: an eventfd where the system has one, else a pipe. Imports nothing of fastcopy.
Invariant: the first `poll` of `fd` after a `wake` sees it, however many there were; after `close` it does nothing.
"""

from __future__ import annotations

import os
import sys
import threading

_HAS_EVENTFD = hasattr(os, "eventfd")
#: An eventfd takes and gives a 64-bit count in the machine's byte order; a pipe takes any 8 bytes. Source: eventfd(2).
_ONE = (1).to_bytes(8, sys.byteorder)


class WakeFd:
    """A latch between threads with a file descriptor to poll: `fd` is readable while the latch is set."""

    def __init__(self) -> None:
        # The lock keeps `wake` from writing into a number that `close` gave back and somebody else got since.
        self._lock = threading.Lock()
        self._is_set = False
        self._is_closed = False
        if _HAS_EVENTFD:
            self.fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self.fd, self._write_fd = os.pipe()

    def wake(self) -> None:
        """Set the latch. Any thread, any time, also after `close`."""
        with self._lock:
            if not self._is_set and not self._is_closed:
                self._is_set = True
                os.write(self._write_fd, _ONE)

    def clear(self) -> bool:
        """Reset the latch and return whether it was set. Never blocks."""
        with self._lock:
            was_set, self._is_set = self._is_set, False
            if was_set and not self._is_closed:
                os.read(self.fd, len(_ONE))
            return was_set

    def close(self) -> None:
        """Free the descriptor. Idempotent."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for fd in {self.fd, self._write_fd}:
                    os.close(fd)
