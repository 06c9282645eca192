"""Opening what is to be sent: local files by their whole path, whatever its length, and nothing but regular files.

Imports only values and the error map. Invariant: FIFOs, sockets and devices are never opened, and no call hangs on one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from fastcopy.errors import LocalError
from fastcopy.model import Attributes
from fastcopy.store.trouble import local_error

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes with the closing NUL. A path this long is walked in pieces. Source: the smallest PATH_MAX we meet (macOS; Linux
#: has 4096).
PATH_PIECE_BYTES = 1024
_NS_PER_S = 1_000_000_000


def attributes_of(status: os.stat_result) -> Attributes:
    """Return what a stat call said, in our words."""
    return Attributes(
        size=status.st_size,
        mode=status.st_mode,
        uid=status.st_uid,
        gid=status.st_gid,
        atime_s=status.st_atime_ns // _NS_PER_S,
        mtime_s=status.st_mtime_ns // _NS_PER_S,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
    )


def open_source(path: bytes, *, follow: bool = False) -> tuple[int, Attributes]:
    """Open the regular file `path` for reading.

    Args:
        path: a whole path, absolute or from the working directory; may be longer than PATH_MAX.
        follow: open what a symlink at `path` points to, instead of refusing it.

    Returns: the file descriptor, which the caller closes, and the attributes of the file that was opened.
    Raises: SourceMissing; PermissionRefused; LocalError for all else, also when it is not a regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        if len(path) < PATH_PIECE_BYTES:  # nearly always: many small files must not pay for the others
            fd, status = _open_regular(path, flags, None, follow, path)
        else:
            with reachable(path) as (directory_fd, rest):
                fd, status = _open_regular(rest, flags, directory_fd, follow, path)
    except OSError as exc:
        raise local_error(exc, path, "open", of_source=True) from exc
    return fd, attributes_of(status)


def _open_regular(
    name: bytes, flags: int, directory_fd: int | None, follow: bool, path: bytes
) -> tuple[int, os.stat_result]:
    # Looked at before it is opened: opening a FIFO or a device already does something to it.
    _check_regular(os.stat(name, dir_fd=directory_fd, follow_symlinks=follow), path)
    fd = os.open(name, flags, dir_fd=directory_fd)
    try:
        status = os.fstat(fd)
        _check_regular(status, path)
    except BaseException:
        os.close(fd)
        raise
    return fd, status


def stat_source(path: bytes, *, follow: bool = False) -> Attributes:
    """Return the attributes of `path`; of a symlink itself unless `follow`.

    Raises: SourceMissing; PermissionRefused; LocalError.
    """
    try:
        with reachable(path) as (directory_fd, rest):
            return attributes_of(os.stat(rest, dir_fd=directory_fd, follow_symlinks=follow))
    except OSError as exc:
        raise local_error(exc, path, "stat", of_source=True) from exc


@contextlib.contextmanager
def reachable(path: bytes) -> Iterator[tuple[int | None, bytes]]:
    """Yield a directory descriptor and the rest of `path` beneath it, short enough for one system call.

    The descriptor is None when `path` is short enough as it is; it is open only inside the `with`.
    Raises: OSError.
    """
    directory_fd = None
    rest = path
    try:
        while len(rest) >= PATH_PIECE_BYTES:
            cut = rest.rfind(b"/", 1, PATH_PIECE_BYTES - 1)
            if cut < 0:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            below_fd = os.open(rest[:cut], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory_fd)
            if directory_fd is not None:
                os.close(directory_fd)
            directory_fd = below_fd
            rest = rest[cut:].lstrip(b"/") or b"."
        yield directory_fd, rest
    finally:
        if directory_fd is not None:
            os.close(directory_fd)


def _check_regular(status: os.stat_result, path: bytes) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise LocalError("not a regular file", path=path, operation="open")
