"""Directory descriptors beneath a root, opened component by component and never through a symlink; a few stay open.

Owns the root's descriptor and all it opened from it. Imports names and the error map. Any thread may call.
Invariants: a descriptor is not closed while somebody holds it; at most `limit` stay open that nobody holds.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from fastcopy.plan.names import check_component
from fastcopy.store.trouble import local_error

if TYPE_CHECKING:
    from types import TracebackType

#: Descriptors kept for later use. Source: 1024 is the usual limit of a process, most of it for files and pipes.
KEPT_DIRECTORIES = 64
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class HeldDirectory:
    """An open directory beneath the root; `with` gives the descriptor and lets go of it afterwards."""

    __slots__ = ("_owner", "fd", "holders", "is_kept", "relative")

    def __init__(self, owner: Directories, relative: bytes, fd: int) -> None:
        self._owner = owner
        self.relative = relative
        self.fd = fd
        self.holders = 1
        self.is_kept = True

    def __enter__(self) -> int:
        return self.fd

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._owner._release(self)


class Directories:
    """The directories beneath one root, by their relative path."""

    def __init__(self, root: bytes, root_fd: int, *, limit: int = KEPT_DIRECTORIES) -> None:
        """Take over `root_fd`, an open directory whose path is `root`."""
        self.root = root
        self._limit = limit
        self._lock = threading.Lock()
        self._root = HeldDirectory(self, b"", root_fd)  # held by this object itself until it is closed
        self._known: OrderedDict[bytes, HeldDirectory] = OrderedDict()  # least recently used first
        self._is_closed = False

    def whole(self, relative: bytes) -> bytes:
        """Return the whole path of `relative`, for messages."""
        return os.path.join(self.root, relative) if relative else self.root

    def hold(self, relative: bytes) -> HeldDirectory:
        """Open the directory `relative` (b"" is the root); to be used with `with`.

        Raises: UnsafeName for a component that names no single thing; TargetMissing; TargetNotDirectory, also for a
            symlink in the path; PermissionRefused; LocalError.
        """
        with self._lock:
            directory = self._known.get(relative)
            if directory is not None:
                self._known.move_to_end(relative)
                directory.holders += 1
                return directory
            nearest = self._nearest(relative)
            nearest.holders += 1
            if nearest.relative == relative:
                return nearest
        with nearest as nearest_fd:  # opened outside the lock: a slow disk holds up nobody else
            fd = self._open(nearest_fd, nearest.relative, relative)
        return self._keep(HeldDirectory(self, relative, fd))

    def forget(self, relative: bytes) -> None:
        """Open the directory `relative` anew the next time: another one has that name now."""
        with self._lock:
            directory = self._known.pop(relative, None)
            if directory is not None:
                self._drop(directory)

    def close(self) -> None:
        """Close everything that nobody holds; what is held is closed when it is let go of. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            for directory in self._known.values():
                self._drop(directory)
            self._known.clear()
        self._release(self._root)

    def _nearest(self, relative: bytes) -> HeldDirectory:
        """Return the known directory that is `relative` or nearest above it."""
        if self._is_closed:
            raise ValueError("the store is closed")
        while relative:
            directory = self._known.get(relative)
            if directory is not None:
                return directory
            relative = relative.rpartition(b"/")[0]
        return self._root

    def _open(self, above_fd: int, above: bytes, relative: bytes) -> int:
        """Return a new descriptor for `relative`, going down from `above` one component at a time."""
        fd = -1
        at = above
        try:
            for name in relative[len(above) + 1 if above else 0 :].split(b"/"):
                check_component(name)
                at = at + b"/" + name if at else name
                below_fd = os.open(name, OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=above_fd if fd < 0 else fd)
                if fd >= 0:
                    os.close(fd)
                fd = below_fd
        except BaseException as exc:
            if fd >= 0:
                os.close(fd)
            if isinstance(exc, OSError):
                raise local_error(exc, self.whole(at), "open directory") from exc
            raise
        return fd

    def _keep(self, directory: HeldDirectory) -> HeldDirectory:
        """Remember `directory` for later use, or give out the one another thread was faster to open."""
        with self._lock:
            known = self._known.get(directory.relative)
            if known is not None:
                known.holders += 1
                os.close(directory.fd)
                return known
            if self._is_closed:
                directory.is_kept = False
                return directory
            self._known[directory.relative] = directory
            if len(self._known) > self._limit:
                self._drop(self._known.popitem(last=False)[1])
            return directory

    def _drop(self, directory: HeldDirectory) -> None:
        """Keep it no longer. The lock is held."""
        directory.is_kept = False
        if not directory.holders:
            os.close(directory.fd)

    def _release(self, directory: HeldDirectory) -> None:
        with self._lock:
            directory.holders -= 1
            if not directory.holders and (not directory.is_kept or directory is self._root):
                os.close(directory.fd)
