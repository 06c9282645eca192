"""A file of ours that is being written: under a name of its own until it is whole, then under the right one at once.

Owns its descriptor. Imports the error map and the directories it lies in. Invariants: nothing is ever seen under the
final name but the whole file with its mode and times; a symlink that stands there is replaced, never followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from fastcopy.errors import TargetMissing
from fastcopy.store.trouble import local_error

if TYPE_CHECKING:
    from fastcopy.store.directories import Directories

#: How a file system says that it keeps no modes (vfat, some network shares): the file is ours, so it is no refusal.
_NO_MODES = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class Part:
    """An unfinished file. Many threads may write to `fd`; one of them ends it with `commit` or `discard`.

    Whoever ends it sees to it that no thread still is in a call on `fd`: the number is used for another file next.
    """

    __slots__ = ("_directories", "_is_under_its_own_name", "_parent", "_target", "fd", "name", "relative_target")

    def __init__(
        self, directories: Directories, parent: bytes, target: bytes, name: bytes, fd: int, *, relative_target: bytes
    ) -> None:
        self._directories = directories
        self._parent = parent
        self._target = target
        self._is_under_its_own_name = True
        #: Open for writing; -1 once ended.
        self.fd = fd
        #: The name it has until `commit`, in the directory of its target.
        self.name = name
        self.relative_target = relative_target

    def __repr__(self) -> str:
        state = f"fd={self.fd}" if self.fd >= 0 else "closed"
        return f"<Part {self.name!r} of {self.relative_target!r}: {state}>"

    def commit(self, mode: int | None = None, *, mtime_ns: int | None = None, atime_ns: int | None = None) -> bool:
        """Give the file its mode and times, close it and put it under its final name, in place of what is there.

        Args:
            mode: permission bits to set, set-id bits too where they are in it; None leaves it its owner's alone.
            mtime_ns: modification time to set, in nanoseconds; None leaves it at now.
            atime_ns: access time; None for the same as `mtime_ns`.

        Returns: False when the file system does not keep modes (the file is in place all the same), else True.
        Raises: TargetIsDirectory when a directory has the final name; NoSpace, PermissionRefused, LocalError for any
            other step, closing included. The part file is there still then: `discard` it.
        """
        mode_kept = True
        step = "set mode of"
        try:
            if mode is not None:
                mode_kept = set_mode(self.fd, mode)
            step = "set times of"
            if mtime_ns is not None:
                os.utime(self.fd, ns=(mtime_ns if atime_ns is None else atime_ns, mtime_ns))
            step = "close"  # network file systems tell here that the bytes did not fit
            self._close()
            step = "rename"
            with self._directories.hold(self._parent) as directory_fd:
                os.rename(self.name, self._target, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
        except OSError as exc:
            raise local_error(exc, self._directories.whole(self.relative_target), step) from exc
        self._is_under_its_own_name = False
        return mode_kept

    def discard(self) -> None:
        """Close and remove the part file; nothing to do after `commit`. Idempotent.

        Raises: PermissionRefused, LocalError when it cannot be removed; not when it or its directory is gone already.
        """
        try:
            with contextlib.suppress(OSError):  # what it says of the bytes is of no interest any more
                self._close()
            if self._is_under_its_own_name:
                with (
                    contextlib.suppress(FileNotFoundError, TargetMissing),
                    self._directories.hold(self._parent) as directory_fd,
                ):
                    os.unlink(self.name, dir_fd=directory_fd)
                self._is_under_its_own_name = False
        except OSError as exc:
            raise local_error(exc, self._directories.whole(self.relative_target), "remove part of") from exc

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def set_mode(fd: int, mode: int) -> bool:
    """Set permission bits; return False where the file system keeps none. Raises: OSError."""
    try:
        os.fchmod(fd, mode & 0o7777)
    except OSError as exc:
        if exc.errno not in _NO_MODES:
            raise
        return False
    return True
