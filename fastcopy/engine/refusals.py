"""What a server's status means for a file, as one of our errors: the only place that reads SFTP status codes for users.

OpenSSH's sftp-server says "Failure" for nearly everything (errno_to_portable in its sftp-server.c): `explain`
asks the server further to find out what was meant. Invariant: every StatusError becomes a FileError that names path
and operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastcopy.errors import (
    FastcopyError,
    FileError,
    LocalError,
    NameRefused,
    NoSpace,
    PermissionRefused,
    RemoteError,
    SourceMissing,
    TargetIsDirectory,
    TargetMissing,
)
from fastcopy.model import FileKind
from fastcopy.plan.names import base, parent
from fastcopy.sftp import operations, packets
from fastcopy.sftp.operation import StatusError
from fastcopy.store.trouble import local_error

if TYPE_CHECKING:
    from fastcopy.model import Entry
    from fastcopy.sftp.client import SftpClient

#: Bytes. A file system with less than this free counts as full after a failed write: below it OpenSSH's 255 KiB
#: requests may fail though `statvfs` still shows a rest. Source: our choice.
_FULL_BELOW_BYTES = 1 << 20


def remote_error(exc: StatusError, path: bytes, operation: str, *, of_source: bool = False) -> FileError:
    """Return the error for `exc`; `of_source` tells that the server's side is the one that is read."""
    message = exc.message or f"status {exc.code}"
    if exc.code == packets.NO_SUCH_FILE:
        return SourceMissing(path=path) if of_source else TargetMissing(message, path=path)
    if exc.code == packets.PERMISSION_DENIED:
        return PermissionRefused(path=path, operation=operation, side="remote")
    if exc.code == packets.BAD_MESSAGE and not of_source:  # OpenSSH: EINVAL and ENAMETOOLONG
        return NameRefused(message, path=path, side="remote")
    return RemoteError(message, path=path, operation=operation)


async def explain(exc: BaseException, entry: Entry, client: SftpClient | None, *, of_source: bool) -> FastcopyError:
    """Return the error that tells the user why copying `entry` failed.

    Args:
        exc: what the operation raised.
        client: a living channel to ask further on, if there is one.
        of_source: whether the server is the side that is read.
    """
    if isinstance(exc, StatusError):
        if exc.code == packets.FAILURE and client is not None and not of_source:
            return await _guess(exc, entry, client)
        return remote_error(exc, entry.source if of_source else entry.target, "copy", of_source=of_source)
    if isinstance(exc, FastcopyError):
        if exc.path is None:
            exc.path = entry.source
        return exc
    if isinstance(exc, OSError):
        return local_error(exc, entry.target if of_source else entry.source, "copy", of_source=not of_source)
    error = LocalError(f"{type(exc).__name__}: {exc}", path=entry.source, operation="copy")
    error.__cause__ = exc
    return error


async def _guess(exc: StatusError, entry: Entry, client: SftpClient) -> FileError:
    """Find out what a bare "Failure" about a target means: a directory in the way, a full disk, or just that."""
    folder = parent(entry.target) or b"."
    try:
        there = await client.run(operations.lstat_if_there(entry.target))
        if there is not None and there.kind is FileKind.DIRECTORY:
            return TargetIsDirectory(path=entry.target, side="remote")
        if client.announces(packets.STATVFS):
            space = await client.run(operations.file_system(folder))
            if space.free_bytes < _FULL_BELOW_BYTES:
                message = f"{space.free_bytes} bytes free of {space.total_bytes}"
                return NoSpace(message, path=entry.target, side="remote")
    except (StatusError, FastcopyError):
        pass  # the guess is a courtesy
    if len(base(entry.target)) > 255:
        return NameRefused(exc.message, path=entry.target, side="remote")
    return RemoteError(exc.message or "Failure", path=entry.target, operation="copy")
