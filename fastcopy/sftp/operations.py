"""What can be asked of a server about names and handles, each an operation of a few requests.

Sans-I/O generators (operation.py); run them with SftpClient.run. Refusals raise StatusError, an answer of the wrong
type ProtocolError. Moving the content of files is streams.py's business.
"""

from __future__ import annotations

from typing import TypeVar

from fastcopy.errors import ProtocolError
from fastcopy.model import Attributes
from fastcopy.sftp import packets
from fastcopy.sftp.operation import Attempt, StatusError, Steps, refused
from fastcopy.sftp.packets import Data, Extended, FileSystem, Handle, Name, Names, Reply, Status

R = TypeVar("R")

READ_FLAG = packets.READ_FLAG

#: READDIR requests in flight at once for one folder: OpenSSH answers each with at most 100 names.
_READDIRS_IN_FLIGHT = 8


#: Names in one folder beyond which a listing counts as endless: law 9, every count a peer sends has a bound.
MAX_NAMES = 4_000_000


def expect(reply: object, kind: type[R]) -> R:
    """Return `reply` as `kind`.

    Raises: StatusError when it is a status, ProtocolError when it is anything else.
    """
    if isinstance(reply, kind):
        return reply
    raise refused(reply)  # type: ignore[arg-type]  # whatever it is, its type's name is all that is used


def open_handle(path: bytes, flags: int, attributes: Attributes | None = None) -> Steps[bytes]:
    """Open a file and return its handle; `flags` of packets.*_FLAG."""
    reply = yield packets.open_file(path, flags, attributes)
    return expect(reply, Handle).handle


def close(handle: bytes) -> Steps[None]:
    """Close a handle; its status counts (a full disk may show only here)."""
    yield packets.close(handle)


def read_small(path: bytes, limit: int) -> Steps[bytes]:
    """Return the first bytes of a file, as `read_beginning`."""
    handle = yield from open_handle(path, packets.READ_FLAG)
    look = packets.read(handle, 0, limit)._replace(content_bytes=0)
    reply, _ = yield Attempt(look, packets.close(handle))
    return expect(reply, Data).payload or b""


def read_beginning(handle: bytes, limit: int) -> Steps[bytes]:
    """Return the first bytes of an open file, what one READ of `limit` brings: for files that tell no size (/proc).

    They do not count as content of the job's files.
    """
    reply = yield packets.read(handle, 0, limit)._replace(content_bytes=0)
    return expect(reply, Data).payload or b""


def stat(path: bytes) -> Steps[Attributes]:
    reply = yield packets.stat(path)
    return expect(reply, Attributes)


def lstat(path: bytes) -> Steps[Attributes]:
    reply = yield packets.lstat(path)
    return expect(reply, Attributes)


def lstat_if_there(path: bytes) -> Steps[Attributes | None]:
    """Return the attributes of `path` itself; None when nothing is there."""
    try:
        return (yield from lstat(path))
    except StatusError as exc:
        if exc.code == packets.NO_SUCH_FILE:
            return None
        raise


def stat_if_there(path: bytes) -> Steps[Attributes | None]:
    """Return the attributes of what `path` leads to; None when nothing is there."""
    try:
        return (yield from stat(path))
    except StatusError as exc:
        if exc.code == packets.NO_SUCH_FILE:
            return None
        raise


def setstat(path: bytes, attributes: Attributes) -> Steps[None]:
    yield packets.setstat(path, attributes)


def lsetstat(path: bytes, attributes: Attributes) -> Steps[None]:
    """Set attributes of a link itself; only where lsetstat@openssh.com is announced."""
    yield packets.lsetstat(path, attributes)


def mkdir(path: bytes, mode: int) -> Steps[None]:
    yield packets.mkdir(path, mode)


def rmdir(path: bytes) -> Steps[None]:
    yield packets.rmdir(path)


def remove(path: bytes) -> Steps[None]:
    yield packets.remove(path)


def rename(old: bytes, new: bytes, *, atomic: bool) -> Steps[None]:
    """Rename; `atomic` (posix-rename@openssh.com) replaces what stands there, the plain one is refused then."""
    yield packets.posix_rename(old, new) if atomic else packets.rename(old, new)


def hardlink(old: bytes, new: bytes) -> Steps[None]:
    """Make `new` a second name of `old`; only where hardlink@openssh.com is announced."""
    yield packets.hardlink(old, new)


def symlink(text: bytes, path: bytes) -> Steps[None]:
    yield packets.symlink(text, path)


def readlink(path: bytes) -> Steps[bytes]:
    reply = yield packets.readlink(path)
    return _one_name(reply)


def realpath(path: bytes) -> Steps[bytes]:
    """Return the absolute form of `path`; b"." is the login folder."""
    reply = yield packets.realpath(path)
    return _one_name(reply)


def expand_path(path: bytes) -> Steps[bytes]:
    """Return `path` with ~ and ~user expanded; only where expand-path@openssh.com is announced."""
    reply = yield packets.expand_path(path)
    return _one_name(reply)


def fsync(handle: bytes) -> Steps[None]:
    """Put the file on the server's disk; only where fsync@openssh.com is announced."""
    yield packets.fsync(handle)


def file_system(path: bytes) -> Steps[FileSystem]:
    """Return the space of the file system `path` is on; only where statvfs@openssh.com is announced."""
    reply = yield packets.statvfs(path)
    return FileSystem.decode(expect(reply, Extended).body)


def open_directory(path: bytes) -> Steps[bytes]:
    reply = yield packets.opendir(path)
    return expect(reply, Handle).handle


def read_directory(handle: bytes) -> Steps[tuple[list[Name], bool]]:
    """Return further names of an open folder, and whether that was the end. "." and ".." are left out.

    Several READDIR are in flight at once. A server that sends no name and never ends is a ProtocolError.
    """
    replies: list[Reply] = yield Attempt(*(packets.readdir(handle) for _ in range(_READDIRS_IN_FLIGHT)))
    names: list[Name] = []
    ended = False
    for reply in replies:
        if isinstance(reply, Names):
            names += [name for name in reply.names if name.filename not in (b".", b"..")]
        elif isinstance(reply, Status) and reply.code == packets.EOF:
            ended = True
        elif not ended:  # behind the end a server may say what it likes
            raise refused(reply)
    if not ended and not names:
        raise ProtocolError("READDIR is answered with no names again and again")
    return names, ended


def list_directory(path: bytes) -> Steps[list[Name]]:
    """Return all names of a folder."""
    handle = yield from open_directory(path)
    names: list[Name] = []
    try:
        ended = False
        while not ended:
            more, ended = yield from read_directory(handle)
            names += more
            if len(names) > MAX_NAMES:
                raise ProtocolError(f"a folder of more than {MAX_NAMES} names, and no end")
    except (StatusError, ProtocolError):
        yield Attempt(packets.close(handle))
        raise
    yield Attempt(packets.close(handle))
    return names


def _one_name(reply: object) -> bytes:
    names = expect(reply, Names).names
    if len(names) != 1:
        raise ProtocolError(f"{len(names)} names where one was asked for")
    return names[0].filename
