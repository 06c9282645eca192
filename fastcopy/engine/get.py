"""Getting one file: remote source, part file in the local store, rename.

Steps only (sftp/operation.py): they run in a channel's pump thread, the local disk calls too. Order of every file:
create the part with O_EXCL, read, compare the source with what the listing said, set mode and times, rename.
Invariants: the final name never shows anything but the whole file; a part that fails is discarded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fastcopy.config import SAFE_REQUEST_BYTES
from fastcopy.engine.mover import open_handle, token
from fastcopy.errors import ChannelLost, SourceChanged
from fastcopy.model import Attributes, Range
from fastcopy.sftp import packets
from fastcopy.sftp.operation import Attempt, StatusError
from fastcopy.sftp.operations import expect
from fastcopy.sftp.packets import Data
from fastcopy.sftp.streams import ReadRange

if TYPE_CHECKING:
    from fastcopy.model import Entry
    from fastcopy.plan.ranges import RangeSet
    from fastcopy.sftp.client import SftpClient
    from fastcopy.sftp.operation import Steps
    from fastcopy.store.local import LocalStore
    from fastcopy.store.part import Part

#: Bytes. A file up to this size comes through memory, read and closed in one burst.
_ONE_BURST_BYTES = SAFE_REQUEST_BYTES
_NS_PER_S = 1_000_000_000


class _Transfer:
    """A file several channels read into one part."""

    __slots__ = ("entry", "part")

    def __init__(self, entry: Entry, part: Part) -> None:
        self.entry = entry
        self.part = part


class Get:
    """The Mover towards this machine."""

    of_source = True

    def __init__(self, store: LocalStore) -> None:
        self.warnings: list[str] = []
        self.orphans: list[bytes] = []
        self._store = store

    def whole(self, client: SftpClient, entry: Entry) -> Steps[int]:
        part = self._store.create_part(entry.target, token())
        try:
            yield from self._read_whole(client, entry, part)
            self._put_in_place(entry, part)
        except BaseException:
            part.discard()
            raise
        return entry.size

    def _read_whole(self, client: SftpClient, entry: Entry, part: Part) -> Steps[None]:
        size = entry.size
        handle = yield from open_handle(entry.source, packets.READ_FLAG)
        at_once = size <= _ONE_BURST_BYTES and size <= client.read_size.request_bytes
        try:
            if at_once:
                reads = [packets.read(handle, 0, size)] if size else []
                replies = yield [*reads, packets.fstat(handle), packets.close(handle)]
                data = expect(replies[0], Data).payload or b"" if size else b""
                handle = b""
            else:
                yield ReadRange(handle, part.fd, Range(0, size), client.read_size)
                last, handle = [packets.fstat(handle), packets.close(handle)], b""  # closed once, whatever the answers
                replies = yield last
        except ChannelLost:
            raise
        except BaseException as exc:
            if isinstance(exc, StatusError) and exc.code == packets.EOF:
                raise SourceChanged(f"it had {size} bytes, now none", path=entry.source) from exc
            if handle and not at_once:  # a burst carries its own CLOSE
                yield Attempt(packets.close(handle))
            raise
        _check_unchanged(entry, expect(replies[-2], Attributes))
        if at_once:
            _write_all(part.fd, data)
            if len(data) < size:  # a server that serves less than asked: the rest, the long way
                yield from self._read_rest(client, entry, part, len(data))

    def _read_rest(self, client: SftpClient, entry: Entry, part: Part, start: int) -> Steps[None]:
        handle = yield from open_handle(entry.source, packets.READ_FLAG)
        try:
            yield ReadRange(handle, part.fd, Range(start, entry.size), client.read_size)
        except ChannelLost:
            raise
        except BaseException:
            yield Attempt(packets.close(handle))
            raise
        yield packets.close(handle)

    def link(self, client: SftpClient, entry: Entry) -> Steps[bool]:
        yield from ()
        text = entry.link or b""
        if self._store.readlink(entry.target) == text:
            return False
        self._store.symlink(entry.target, text, token())
        return True

    def begin(self, client: SftpClient, entry: Entry) -> Steps[Any]:
        yield from ()
        return _Transfer(entry, self._store.create_part(entry.target, token()))

    def chunk(self, client: SftpClient, part: Any, span: Range, done: RangeSet) -> Steps[None]:
        handle = yield from open_handle(part.entry.source, packets.READ_FLAG)
        try:
            yield ReadRange(handle, part.part.fd, span, client.read_size, done)
        except ChannelLost:
            raise
        except BaseException:
            yield Attempt(packets.close(handle))
            raise
        replies = yield [packets.fstat(handle), packets.close(handle)]
        _check_unchanged(part.entry, expect(replies[0], Attributes))

    def commit(self, client: SftpClient, part: Any) -> Steps[None]:
        yield from ()
        self._put_in_place(part.entry, part.part)

    def discard(self, client: SftpClient | None, part: Any) -> Steps[None]:
        yield from ()
        part.part.discard()

    def sweep(self, client: SftpClient) -> Steps[None]:
        yield from ()

    def _put_in_place(self, entry: Entry, part: Part) -> None:
        size = os.fstat(part.fd).st_size
        if size != entry.size:
            raise SourceChanged(f"{entry.size} bytes were promised, {size} came", path=entry.source)
        attributes = entry.attributes
        mtime_ns = None if attributes.mtime_s is None else attributes.mtime_s * _NS_PER_S
        atime_ns = None if attributes.atime_s is None else attributes.atime_s * _NS_PER_S
        if not part.commit(entry.mode, mtime_ns=mtime_ns, atime_ns=atime_ns):
            message = "the local file system keeps no modes: they were left as it makes them"
            if message not in self.warnings:
                self.warnings.append(message)


def _write_all(fd: int, data: bytes) -> None:
    offset = 0
    while offset < len(data):
        offset += os.pwrite(fd, memoryview(data)[offset:], offset)


def _check_unchanged(entry: Entry, now: Attributes) -> None:
    """Raise SourceChanged when the open source is not what the listing said; what a server does not tell is passed."""
    before = entry.attributes
    if now.size is not None and before.size is not None and now.size != before.size:
        raise SourceChanged(f"it had {before.size} bytes, now {now.size}", path=entry.source)
    if now.mtime_s is not None and before.mtime_s is not None and now.mtime_s != before.mtime_s:
        raise SourceChanged("it was written to", path=entry.source)
