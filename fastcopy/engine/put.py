"""Putting one file: local source, part file on the server, rename.

Steps only (sftp/operation.py): they run in a channel's pump thread. Order of every file: open the source, create the
part with O_EXCL, write, look at the source again, set mode and times, compare sizes, rename; a small one is read,
looked at again and closed before its part is created. Invariants: the final name never shows anything but a whole file;
the status of every request counts; a source descriptor is always closed, a remote handle closed once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fastcopy.config import SAFE_REQUEST_BYTES
from fastcopy.engine.mover import open_handle, token
from fastcopy.errors import ChannelLost, IntegrityError, SourceChanged
from fastcopy.model import Attributes, FileKind, Range
from fastcopy.plan.compare import clamp_sftp_time
from fastcopy.plan.names import base, join, parent, part_name
from fastcopy.sftp import packets
from fastcopy.sftp.operation import Attempt, StatusError
from fastcopy.sftp.operations import expect, lstat_if_there
from fastcopy.sftp.packets import Handle, Names
from fastcopy.sftp.streams import WriteRange
from fastcopy.store.source import open_source

if TYPE_CHECKING:
    from fastcopy.model import Entry
    from fastcopy.plan.ranges import RangeSet
    from fastcopy.sftp.client import SftpClient
    from fastcopy.sftp.operation import Steps

_CREATE = packets.WRITE_FLAG | packets.CREATE_FLAG | packets.EXCLUSIVE_FLAG
_PART_ATTRIBUTES = Attributes(mode=0o600)  # nobody else reads a file that is not whole
#: Bytes. A file up to this size is read into memory and sent with its set-up requests in one burst.
_ONE_BURST_BYTES = SAFE_REQUEST_BYTES


class _Part:
    """A file several channels write: its source descriptor, its part's path, its creator's handle until used."""

    __slots__ = ("attributes", "creator", "entry", "fd", "handle", "path", "renaming")

    def __init__(self, entry: Entry, fd: int, attributes: Attributes, path: bytes) -> None:
        self.entry = entry
        self.fd = fd
        self.attributes = attributes
        self.path = path
        self.creator: SftpClient | None = None
        self.handle: bytes | None = None
        self.renaming = False  # a rename was sent and its answer may have been lost

    def take_handle(self, client: SftpClient) -> bytes | None:
        """Return the creator's handle, once and to the creator only: others must open the part themselves."""
        if self.creator is not client:
            return None
        handle, self.handle = self.handle, None
        return handle

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class Put:
    """The Mover towards the server."""

    of_source = False

    def __init__(self, *, follow: bool) -> None:
        """`follow`: symlinks of the source stand for what they lead to."""
        self.warnings: list[str] = []
        self._follow = follow
        self.orphans: list[bytes] = []

    def whole(self, client: SftpClient, entry: Entry) -> Steps[int]:
        fd, attributes = open_source(entry.source, follow=self._follow)
        size = attributes.size or 0
        path = _part_path(entry)
        data = None
        handle = None
        created = False
        try:
            if size <= _ONE_BURST_BYTES and size <= client.write_size.request_bytes:
                data = os.pread(fd, size, 0)
                _check_unchanged(fd, attributes, len(data))
                closing, fd = fd, -1  # many small files wait at once: none of them holds a descriptor meanwhile
                os.close(closing)
            handle = yield from open_handle(path, _CREATE, _PART_ATTRIBUTES)
            created = True
            if data is None:
                yield WriteRange(handle, fd, Range(0, size), client.write_size)
                _check_unchanged(fd, attributes, size)
            last = [
                *([packets.write(handle, 0, data)] if data else []),
                packets.fsetstat(handle, _final_attributes(entry, attributes)),
                *([packets.fstat(handle)] if data is None else []),  # one WRITE that was answered well tells the size
                packets.close(handle),
            ]
            handle = None  # closed once, whatever the answers: its number may be another file's by then
            replies = yield last
            if data is None:
                _check_size(entry, expect(replies[-2], Attributes), size)
            yield from self._put_in_place(client, path, entry.target)
            return size
        except ChannelLost:
            self.orphans.append(path)
            raise
        except BaseException:
            if created:
                yield Attempt(*([packets.close(handle)] if handle else []), packets.remove(path))
            raise
        finally:
            if fd >= 0:
                os.close(fd)

    def link(self, client: SftpClient, entry: Entry) -> Steps[bool]:
        text = entry.link or b""
        replies = yield Attempt(packets.readlink(entry.target))
        if isinstance(replies[0], Names) and [name.filename for name in replies[0].names] == [text]:
            return False
        path = _part_path(entry)
        yield packets.symlink(text, path)
        try:
            yield from self._put_in_place(client, path, entry.target)
        except StatusError:
            yield Attempt(packets.remove(path))
            raise
        return True

    def begin(self, client: SftpClient, entry: Entry) -> Steps[Any]:
        fd, attributes = open_source(entry.source, follow=self._follow)
        part = _Part(entry, fd, attributes, _part_path(entry))
        try:
            if attributes.size != entry.size:
                raise SourceChanged(f"it had {entry.size} bytes, now {attributes.size}", path=entry.source)
            part.handle = yield from open_handle(part.path, _CREATE, _PART_ATTRIBUTES)
            part.creator = client
        except BaseException as exc:
            part.close()
            if isinstance(exc, ChannelLost):
                self.orphans.append(part.path)
            raise
        return part

    def chunk(self, client: SftpClient, part: Any, span: Range, done: RangeSet) -> Steps[None]:
        handle = part.take_handle(client)
        if handle is None:
            handle = yield from open_handle(part.path, packets.WRITE_FLAG)
        try:
            yield WriteRange(handle, part.fd, span, client.write_size, done)
        except ChannelLost:
            raise
        except BaseException:
            yield Attempt(packets.close(handle))
            raise
        yield packets.close(handle)

    def commit(self, client: SftpClient, part: Any) -> Steps[None]:
        entry, size = part.entry, part.attributes.size or 0
        _check_unchanged(part.fd, part.attributes, size)
        replies = yield Attempt(
            packets.setstat(part.path, _final_attributes(entry, part.attributes)), packets.lstat(part.path)
        )
        if part.renaming and not isinstance(replies[1], Attributes):
            # The channel that renamed was lost before the answer: is the final name ours already?
            there = expect((yield packets.lstat(entry.target)), Attributes)
            if there.size == size and there.mtime_s == _final_attributes(entry, part.attributes).mtime_s:
                part.close()
                return
        _check_ok(replies[0])
        _check_size(entry, expect(replies[1], Attributes), size)
        part.renaming = True
        yield from self._put_in_place(client, part.path, entry.target)
        part.close()

    def discard(self, client: SftpClient | None, part: Any) -> Steps[None]:
        part.close()
        if client is None:
            self.orphans.append(part.path)
            return
        handle = part.take_handle(client)
        yield Attempt(*([packets.close(handle)] if handle else []), packets.remove(part.path))

    def sweep(self, client: SftpClient) -> Steps[None]:
        for path in list(self.orphans):
            yield Attempt(packets.remove(path))
            replies = yield Attempt(packets.lstat(path))
            if not isinstance(replies[0], Attributes):
                self.orphans.remove(path)

    def _put_in_place(self, client: SftpClient, path: bytes, target: bytes) -> Steps[None]:
        """Rename the part to its final name, replacing a file or link that stands there."""
        if client.announces(packets.POSIX_RENAME):
            yield packets.posix_rename(path, target)
            return
        try:
            yield packets.rename(path, target)
        except StatusError:
            there = yield from lstat_if_there(target)
            if there is None or there.kind is FileKind.DIRECTORY:
                raise  # the name is not why it refuses
            yield from self._replace(path, target)

    def _replace(self, path: bytes, target: bytes) -> Steps[None]:
        """Put the part in the place of `target` where that takes several steps. What stood there is never lost."""
        self._warn(
            "this server cannot replace a file in one step (no posix-rename): an existing file was moved aside "
            "before its new version was renamed, so for a moment the name was missing"
        )
        aside = join(parent(target), part_name(base(target), token()))
        yield packets.rename(target, aside)
        try:
            yield packets.rename(path, target)
        except StatusError:
            yield Attempt(packets.rename(aside, target))
            raise
        yield Attempt(packets.remove(aside))

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)


def _part_path(entry: Entry) -> bytes:
    return join(parent(entry.target), part_name(base(entry.target), token()))


def _final_attributes(entry: Entry, attributes: Attributes) -> Attributes:
    return Attributes(
        mode=entry.mode,
        atime_s=clamp_sftp_time(attributes.atime_s or 0),
        mtime_s=clamp_sftp_time(attributes.mtime_s or 0),
    )


def _check_ok(reply: object) -> None:
    if not (isinstance(reply, packets.Status) and reply.code == packets.OK):
        expect(reply, Handle)  # raises what it is


def _check_size(entry: Entry, remote: Attributes, size: int) -> None:
    """Compare the size the server tells with what was sent; a server that tells none cannot be asked."""
    if remote.size is not None and remote.size != size:
        raise IntegrityError(f"{size} bytes were sent, the server has {remote.size}", path=entry.target)


def _check_unchanged(fd: int, before: Attributes, read_bytes: int) -> None:
    """Raise SourceChanged when the open source is not as it was when it was opened."""
    now = os.fstat(fd)
    if now.st_size != before.size or read_bytes != before.size:
        raise SourceChanged(f"it had {before.size} bytes, now {now.st_size}")
    if now.st_mtime_ns != before.mtime_ns:
        raise SourceChanged("it was written to")
