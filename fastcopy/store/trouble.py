"""What the local system says of a failed call, as one of our errors: the only place that reads errno of disk calls.

Imports only errors. Invariant: every OSError becomes a FileError that names path and operation.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from fastcopy.errors import (
    FileError,
    LocalError,
    NameRefused,
    NoSpace,
    PermissionRefused,
    SourceMissing,
    TargetIsDirectory,
    TargetMissing,
    TargetNotDirectory,
)

if TYPE_CHECKING:
    from fastcopy.errors import FastcopyError

_BY_ERRNO: dict[int, type[FileError]] = {
    errno.EACCES: PermissionRefused,
    errno.EPERM: PermissionRefused,
    errno.ENOSPC: NoSpace,
    errno.EDQUOT: NoSpace,
    errno.EISDIR: TargetIsDirectory,
    errno.ENAMETOOLONG: NameRefused,
    errno.EILSEQ: NameRefused,  # a file system that keeps names in Unicode
    errno.ENOENT: TargetMissing,
    errno.ENOTDIR: TargetNotDirectory,
    errno.ELOOP: TargetNotDirectory,  # O_NOFOLLOW met a symlink
}
#: Where the same number means something else on the side that is read.
_OF_SOURCE: dict[int, type[FileError]] = {
    errno.ENOENT: SourceMissing,
    errno.ENOTDIR: SourceMissing,
    errno.ELOOP: LocalError,
    errno.EISDIR: LocalError,
}


def local_error(exc: OSError, path: bytes, operation: str, *, of_source: bool = False) -> FastcopyError:
    """Return the error to raise `from exc`.

    Args:
        exc: what the system raised.
        path: the whole local path concerned.
        operation: what was tried, as a verb for the user's sentence: "open", "write", "rename".
        of_source: `path` is read, not written: a missing one is SourceMissing, not TargetMissing.
    """
    number = exc.errno or 0
    kind = (_OF_SOURCE.get(number) if of_source else None) or _BY_ERRNO.get(number, LocalError)
    message = os.strerror(number) if number else str(exc)
    return kind(message, path=path, operation=operation, side="local")
