"""Listing a remote tree in windows, many folders at once, so that copying begins before the listing ends.

Gives the same values as store/scan.py does for a local tree. Invariants: a folder comes before anything in it; a name
the server had no right to send is an item with UnsafeName, never a path; memory is bounded by the window, the pages
in flight and the folders still to be read.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from fastcopy.engine.refusals import remote_error
from fastcopy.errors import ChannelLost, FileError, UnsafeName
from fastcopy.model import Attributes, FileKind
from fastcopy.plan.names import base, check_component, is_part_name, join
from fastcopy.sftp import operations, packets
from fastcopy.sftp.operation import Attempt, StatusError
from fastcopy.sftp.operations import MAX_NAMES
from fastcopy.store.scan import WINDOW_ENTRIES, WINDOW_S, ScanFailed, Scanned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastcopy.engine.channels import Channels
    from fastcopy.sftp.client import SftpClient
    from fastcopy.sftp.operation import Steps
    from fastcopy.sftp.packets import Name

#: Folders listed at once: enough that a round trip of 100 ms costs 6 ms a folder.
_FOLDERS_AT_ONCE = 16
#: How often a folder that cannot be opened is tried again: 16 at once halve to one in four steps.
_MOST_TRIES = 6
#: Pages (up to 800 names each) that may wait to be put into a window.
_PAGES_WAITING = 16
#: Bytes shown of a name that was refused: a server may send 256 KiB.
_SHOWN_BYTES = 300
#: Links followed on the way down before a tree counts as endless. Source: Linux' MAXSYMLINKS.
_MOST_LINKS = 40

Item = Scanned | ScanFailed


class RemoteScan:
    """The listing of everything beneath one remote folder, which is not listed itself."""

    def __init__(self, channels: Channels, root: bytes, *, follow: bool) -> None:
        """`follow`: tell of what symlinks lead to, and go into folders they lead to."""
        self._channels = channels
        self._root = root
        self._follow = follow
        self._at_once = _FOLDERS_AT_ONCE
        self._tries: Counter[bytes] = Counter()
        self._pages: asyncio.Queue[list[Item] | None] = asyncio.Queue(_PAGES_WAITING)
        self._pending: deque[tuple[bytes, int]] = deque([(b"", 0)])  # folder, links followed to get there

    async def windows(self) -> AsyncIterator[list[Item]]:
        """Yield windows of items.

        Raises: the reason, when no channel is left.
        Cancellation (or closing the iterator): ends the listing.
        """
        lister = asyncio.create_task(self._list_all(), name=f"list {self._root!r}")
        window: list[Item] = []
        deadline_s = time.monotonic() + WINDOW_S
        try:
            while (page := await self._pages.get()) is not None:
                window += page
                if len(window) >= WINDOW_ENTRIES or time.monotonic() >= deadline_s:
                    yield window
                    window, deadline_s = [], time.monotonic() + WINDOW_S
            if window:
                yield window
            await lister
        finally:
            lister.cancel()
            await asyncio.gather(lister, return_exceptions=True)

    async def _list_all(self) -> None:
        running: set[asyncio.Task[None]] = set()
        try:
            while self._pending or running:
                while self._pending and len(running) < self._at_once:
                    running.add(asyncio.create_task(self._list(*self._pending.popleft())))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._pages.put(None)

    async def _list(self, folder: bytes, links: int) -> None:
        """List one folder; on another channel again, from its beginning, when the first one is lost meanwhile."""
        told: set[bytes] = set()
        while True:
            client = self._channels.any()
            try:
                await self._list_on(client, folder, links, told)
                return
            except ChannelLost:
                continue

    async def _list_on(self, client: SftpClient, folder: bytes, links: int, told: set[bytes]) -> None:
        """List one folder on one channel; names in `told` were told before, and those told now join them."""
        whole = join(self._root, folder) if folder else self._root
        listed: set[bytes] = set()
        handle = None
        try:
            handle = await client.run(operations.open_directory(whole))
            ended = False
            while not ended:
                names, ended = await client.run(operations.read_directory(handle))
                good, bad = _sorted_out(names, listed, folder, client.host)
                items = await self._page(client, folder, links, [name for name in good if name.filename not in told])
                told |= listed
                if len(listed) > MAX_NAMES:
                    raise StatusError(packets.FAILURE, f"more than {MAX_NAMES} names, and no end")
                await self._pages.put(items + bad)
        except StatusError as exc:
            if handle is None and exc.code == packets.FAILURE and self._may_again(folder):
                self._pending.append((folder, links))
                return
            error = remote_error(exc, whole, "list", of_source=True)
            await self._pages.put([ScanFailed(path=folder, error=error)])
        finally:
            if handle is not None:
                client.start(_close(handle)).add_done_callback(_forget)

    def _may_again(self, folder: bytes) -> bool:
        """Take a bare Failure for a lack of handles: list half as many folders at once, and this one again."""
        self._at_once = max(1, self._at_once // 2)
        self._tries[folder] += 1
        return self._tries[folder] <= _MOST_TRIES

    async def _page(self, client: SftpClient, folder: bytes, links: int, names: list[Name]) -> list[Item]:
        """Turn names as listed into items; what the listing did not tell is asked for side by side.

        Raises: ChannelLost; nothing of this page was told then.
        """
        items: list[Item] = []
        folders: list[tuple[bytes, int]] = []
        to_ask: list[bytes] = []
        for name in names:
            relative = join(folder, name.filename)
            kind = name.attributes.kind
            if kind in (FileKind.SYMLINK, FileKind.UNKNOWN):
                to_ask.append(relative)
                continue
            if kind is FileKind.DIRECTORY:
                folders.append((relative, links))
            items.append(Scanned(path=relative, attributes=name.attributes, is_part=is_part_name(name.filename)))
        outcomes = await client.run_all(look_at(join(self._root, relative), follow=self._follow) for relative in to_ask)
        for relative, outcome in zip(to_ask, outcomes, strict=True):
            items.append(self._item(relative, links, outcome, folders))
        self._pending += folders
        return items

    def _item(
        self, relative: bytes, links: int, outcome: Looked | BaseException, folders: list[tuple[bytes, int]]
    ) -> Item:
        """Turn what was asked about one name into its item; a folder joins `folders`."""
        whole = join(self._root, relative)
        if isinstance(outcome, ChannelLost):
            raise outcome
        if isinstance(outcome, StatusError):
            return ScanFailed(path=relative, error=remote_error(outcome, whole, "stat", of_source=True))
        if isinstance(outcome, BaseException):
            return ScanFailed(path=relative, error=FileError(str(outcome), path=whole))
        attributes, link = outcome
        if attributes.kind is FileKind.DIRECTORY:
            if links >= _MOST_LINKS:
                return ScanFailed(path=relative, error=FileError("too many symlinks on the way here", path=whole))
            folders.append((relative, links + self._follow))
        return Scanned(path=relative, attributes=attributes, link=link, is_part=is_part_name(base(relative)))


def _sorted_out(names: list[Name], listed: set[bytes], folder: bytes, host: str) -> tuple[list[Name], list[Item]]:
    """Part the names a server may send from those it may not; all join `listed`, in which none may be already."""
    good: list[Name] = []
    bad: list[Item] = []
    for name in names:
        try:
            check_component(name.filename, host=host)
            if name.filename in listed:
                raise UnsafeName("it was listed twice", path=name.filename, host=host)
            good.append(name)
        except UnsafeName as exc:
            exc.path = name.filename[:_SHOWN_BYTES]
            bad.append(ScanFailed(path=folder, error=exc))
        listed.add(name.filename)
    return good, bad


Looked = tuple[Attributes, bytes | None]


def look_at(path: bytes, *, follow: bool) -> Steps[Looked]:
    """Return the attributes of `path`, of what it leads to with `follow`; and a symlink's text."""
    if follow:
        return (yield from operations.stat(path)), None
    attributes = yield from operations.lstat(path)
    if attributes.kind is FileKind.SYMLINK:
        return attributes, (yield from operations.readlink(path))
    return attributes, None


def _close(handle: bytes) -> Steps[None]:
    yield Attempt(packets.close(handle))


def _forget(done: asyncio.Future[None]) -> None:
    """Take note of how a CLOSE nobody waits for ended, so that asyncio does not complain."""
    if not done.cancelled():
        done.exception()
