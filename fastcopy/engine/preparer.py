"""From names the scan found to entries worth copying: folders made, what is there already skipped, the rest told.

Decisions are plan/compare's; this file asks the target and counts. Invariant: every item of the scan ends up as an
entry, a folder, or told (skipped or failed).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fastcopy.config import SymlinkPolicy
from fastcopy.engine.targets import Folder, Target
from fastcopy.errors import FastcopyError, FileError, TargetIsDirectory, printable
from fastcopy.events import FileDone, Found, Warned
from fastcopy.model import Attributes, Entry, FileKind
from fastcopy.plan.compare import final_directory_mode, final_mode, is_current
from fastcopy.plan.names import join
from fastcopy.store.scan import ScanFailed, Scanned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from fastcopy.config import TransferOptions
    from fastcopy.events import Listener
    from fastcopy.measure.report import ReportBuilder

Item = Scanned | ScanFailed


class Preparer:
    """One job's preparing. Each tree's windows go through `entries`."""

    def __init__(
        self, target: Target, options: TransferOptions, report: ReportBuilder, listener: Listener, *, umask: int
    ) -> None:
        self._target = target
        self._options = options
        self._report = report
        self._listener = listener
        self._umask = umask
        self._special = 0
        self._first_special = b""
        self._parts = 0
        self._first_part = b""

    async def entries(
        self, source: bytes, target: bytes, windows: AsyncIterator[list[Item]]
    ) -> AsyncIterator[list[Entry]]:
        """Yield what is to be copied of the tree `source` into the folder `target`, window by window."""
        async for window in windows:
            scanned = [self._named(item, source, target) for item in window if isinstance(item, Scanned)]
            for item in window:
                if isinstance(item, ScanFailed):
                    self._failed(join(source, item.path) if item.path else source, item.error)
            yield await self.prepare(scanned)

    async def prepare(self, named: Iterable[tuple[Entry, bool]]) -> list[Entry]:
        """Make the folders among `named` (an entry, and whether it is a part file), return what is to be copied."""
        folders: list[Entry] = []
        files: list[Entry] = []
        for entry, is_part in named:
            kind = entry.attributes.kind
            if kind is FileKind.DIRECTORY:
                folders.append(entry)
            elif is_part:
                self._parts += 1
                self._first_part = self._first_part or entry.source
            elif kind is FileKind.FILE or (
                kind is FileKind.SYMLINK and self._options.symlinks is not SymlinkPolicy.SKIP
            ):
                files.append(entry)
            else:
                self._left_out(entry)
        await self._make(folders)
        return await self._compare(files)

    def told(self) -> None:
        """Tell what was left out, once everything was scanned."""
        if self._special:
            first = printable(self._first_special)
            self._warn(f"{self._special} special files (FIFO, socket, device) were left out, the first is {first}")
        if self._parts:
            first = printable(self._first_part)
            self._warn(f"{self._parts} unfinished files of earlier copies were not copied, the first is {first}")

    def _named(self, item: Scanned, source: bytes, target: bytes) -> tuple[Entry, bool]:
        entry = Entry(
            source=join(source, item.path),
            target=join(target, item.path),
            attributes=item.attributes,
            link=item.link,
        )
        return entry, item.is_part

    async def _make(self, entries: list[Entry]) -> None:
        folders = [
            Folder(
                path=entry.target,
                mode=final_directory_mode(entry.attributes, None, umask=self._umask, preserve=self._options.preserve),
                mtime_s=entry.attributes.mtime_s,
                preserve=self._options.preserve,
            )
            for entry in entries
        ]
        for entry, error in zip(entries, await self._target.make_folders(folders), strict=True):
            if error is not None:
                self._failed(entry.source, error)

    async def _compare(self, files: list[Entry]) -> list[Entry]:
        """Return the files that must move, each with its final mode."""
        to_copy: list[Entry] = []
        now_s = time.time()
        found_bytes = 0
        for entry, there in zip(files, await self._target.existing([f.target for f in files]), strict=True):
            size = 0 if entry.link is not None else entry.size
            self._report.found(1, size)
            if there is not None and there.kind is FileKind.DIRECTORY:
                self._failed(entry.source, TargetIsDirectory(path=entry.target, side="destination"), found=True)
            elif is_current(entry.attributes, there, now_s=now_s, force=self._options.force):
                self._report.skipped()
                self._listener(FileDone(path=entry.source, size_bytes=size, outcome="skipped"))
            else:
                to_copy.append(self._with_mode(entry, there))
                found_bytes += size
        self._listener(Found(files=len(to_copy), size_bytes=found_bytes))
        return to_copy

    def _with_mode(self, entry: Entry, there: Attributes | None) -> Entry:
        if entry.link is not None:
            return entry
        mode = final_mode(entry.attributes, there, umask=self._umask, preserve=self._options.preserve)
        return Entry(source=entry.source, target=entry.target, attributes=entry.attributes, mode=mode)

    def _left_out(self, entry: Entry) -> None:
        self._report.found(1, 0)
        if entry.attributes.kind is FileKind.UNKNOWN:
            self._failed(entry.source, FileError("the server does not tell what it is", path=entry.source), found=True)
            return
        if entry.attributes.kind is FileKind.SPECIAL:
            self._special += 1
            self._first_special = self._first_special or entry.source
        self._report.skipped()
        self._listener(FileDone(path=entry.source, size_bytes=0, outcome="skipped"))

    def _failed(self, path: bytes, error: FastcopyError, *, found: bool = False) -> None:
        if not found:
            self._report.found(1, 0)
        self._report.failed(path, error)
        self._listener(FileDone(path=path, size_bytes=0, outcome="failed", error=error))

    def _warn(self, message: str) -> None:
        self._listener(Warned(message=message))
