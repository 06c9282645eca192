"""Copying from here to here: the same preparing, part files and renames as every copy, without any channel.

A few worker threads; the kernel moves the bytes (copy_file_range, which also shares blocks where the file system
can), read and write where it cannot. Invariant: as for the other directions, one file's trouble is that file's.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

from fastcopy.engine.mover import token
from fastcopy.engine.refusals import explain
from fastcopy.errors import FastcopyError, SourceChanged
from fastcopy.events import FileDone
from fastcopy.store.source import attributes_of, open_source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from fastcopy.events import Listener
    from fastcopy.measure.report import ReportBuilder
    from fastcopy.model import Entry
    from fastcopy.store.local import LocalStore

#: Files copied at once: the memory bus and most disks are busy with two.
_AT_ONCE = 2
#: Bytes asked of the kernel at once; so often is a cancel noticed and progress counted.
_STEP_BYTES = 16 << 20
#: Bytes of the buffer where the kernel cannot copy by itself.
_BUFFER_BYTES = 1 << 20
#: How the kernel says that it cannot, for these two files. Source: copy_file_range(2).
_CANNOT = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF})


class LocalCopier:
    """One job's copying from here to here. `run` is called once."""

    def __init__(self, store: LocalStore, report: ReportBuilder, listener: Listener, *, follow: bool) -> None:
        #: Bytes copied so far, also of files not finished.
        self.moved_bytes = 0
        self._store = store
        self._report = report
        self._listener = listener
        self._follow = follow
        self._cancelled = False

    async def run(self, windows: AsyncIterator[Sequence[Entry]]) -> None:
        """Copy all entries of all windows.

        Cancellation: files under way are given up within one step of 16 MiB, their parts removed.
        """
        gate = asyncio.Semaphore(_AT_ONCE)

        async def copy(entry: Entry) -> None:
            async with gate:
                await self._copy(entry)

        try:
            async for entries in windows:
                async with asyncio.TaskGroup() as group:
                    for entry in sorted(entries, key=lambda entry: entry.size, reverse=True):
                        group.create_task(copy(entry))
        finally:
            self._cancelled = True

    async def _copy(self, entry: Entry) -> None:
        outcome = "copied"
        error: FastcopyError | None = None
        try:
            if not await asyncio.to_thread(self._copy_one, entry):
                outcome = "skipped"
        except Exception as exc:
            outcome, error = "failed", await explain(exc, entry, None, of_source=True)
            self._report.failed(entry.source, error)
        if outcome == "copied":
            self._report.copied(0 if entry.link is not None else entry.size)
        elif outcome == "skipped":
            self._report.skipped()
        self._listener(FileDone(path=entry.source, size_bytes=entry.size, outcome=outcome, error=error))

    def _copy_one(self, entry: Entry) -> bool:
        """Copy one entry, in a worker thread. Returns: False for a symlink that was there already."""
        if entry.link is not None:
            if self._store.readlink(entry.target) == entry.link:
                return False
            self._store.symlink(entry.target, entry.link, token())
            return True
        fd, before = open_source(entry.source, follow=self._follow)
        try:
            part = self._store.create_part(entry.target, token())
            try:
                self._move(fd, part.fd, before.size or 0)
                now = attributes_of(os.fstat(fd))
                if (now.size, now.mtime_ns) != (before.size, before.mtime_ns):
                    raise SourceChanged(f"it had {before.size} bytes, now {now.size}", path=entry.source)
                part.commit(entry.mode, mtime_ns=before.mtime_ns, atime_ns=(before.atime_s or 0) * 1_000_000_000)
            except BaseException:
                part.discard()
                raise
        finally:
            os.close(fd)
        return True

    def _move(self, source_fd: int, target_fd: int, size: int) -> None:
        step: Callable[[int, int, int, int], int] = _in_kernel if hasattr(os, "copy_file_range") else _by_buffer
        offset = 0
        while offset < size:
            if self._cancelled:
                raise SourceChanged("the copy was cancelled")
            try:
                count = step(source_fd, target_fd, min(_STEP_BYTES, size - offset), offset)
            except OSError as exc:
                if step is _by_buffer or exc.errno not in _CANNOT:
                    raise
                step = _by_buffer
                continue
            if count == 0:
                raise SourceChanged(f"it had {size} bytes, now {offset}")
            offset += count
            self.moved_bytes += count


def _in_kernel(source_fd: int, target_fd: int, length: int, offset: int) -> int:
    return os.copy_file_range(source_fd, target_fd, length, offset, offset)


def _by_buffer(source_fd: int, target_fd: int, length: int, offset: int) -> int:
    data = memoryview(os.pread(source_fd, min(length, _BUFFER_BYTES), offset))
    written = 0
    while written < len(data):
        written += os.pwrite(target_fd, data[written:], offset + written)
    return written
