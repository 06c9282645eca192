"""Copying: every channel takes units of work from one schedule until nothing is left.

Asyncio only decides here; bytes and disks are the pumps' business. Invariants: every file added ends exactly once, as
copied, skipped or failed; one file's trouble is that file's; what a lost channel had not finished goes back to the
schedule; the job ends when nothing waits, nothing is under way and nothing more comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from fastcopy.engine.chunked import ChunkedFile
from fastcopy.engine.mover import OpenRefused
from fastcopy.engine.refusals import explain
from fastcopy.errors import ChannelLost, FastcopyError, UnsafePeer, printable
from fastcopy.events import FileDone, Warned
from fastcopy.plan.ranges import RangeSet
from fastcopy.plan.schedule import Batch, Chunk, Schedule, Unit, WholeFile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from fastcopy.engine.channels import Channels
    from fastcopy.engine.mover import Mover
    from fastcopy.events import Listener
    from fastcopy.measure.report import ReportBuilder
    from fastcopy.model import Entry
    from fastcopy.sftp.client import SftpClient

#: Units under way at once on a channel: behind the bytes of one hide the last one's close, the next one's open and its
#: first request's way, three round trips in all. Source: our measurement at 100 ms.
_UNITS_PER_CHANNEL = 4
#: Pieces waiting above which the scan is made to wait: two windows of it.
_ENOUGH_PIECES = 20_000
#: How often a file, or one of its chunks, may be tried again: after lost channels, and while a server short of handles
#: is asked for half as many at once each time (64 needs six).
_MOST_TRIES = 8


class Copier:
    """One job's copying. `run` is called once."""

    def __init__(self, mover: Mover, channels: Channels, report: ReportBuilder, listener: Listener) -> None:
        self._mover = mover
        self._channels = channels
        self._report = report
        self._listener = listener
        self._schedule = Schedule()
        self._changed = asyncio.Condition()
        self._fed = False
        self._busy = 0  # units under way
        self._chunked: dict[bytes, ChunkedFile] = {}
        self._tries: Counter[bytes] = Counter()
        self._fatal: BaseException | None = None
        self._workers: set[asyncio.Task[None]] = set()

    async def run(self, windows: AsyncIterator[Sequence[Entry]], *, parallel: int) -> None:
        """Copy all entries of all `windows` over the channels there are and those that come.

        Args:
            parallel: how many channels are meant to share the work.
        Raises: the reason when no channel is left (ConnectError, ProtocolError); UnsafePeer at once; what `windows`
            raises.
        Cancellation: ends the workers; what the pumps have begun goes on until the channels are closed.
        """
        await self._channels.ready()
        self._channels.on_open = self._employ
        for client in self._channels.alive:
            self._employ(client)
        feeder = asyncio.create_task(self._feed(windows, parallel), name="feed the schedule")
        try:
            await self._until_done()
            await feeder
        except BaseException:
            await self._channels.close_channels()  # ends what is under way: every part becomes an orphan, or is removed
            raise
        finally:
            self._channels.on_open = lambda client: None
            tasks = [feeder, *self._workers]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._clean_up()

    # --- feeding and ending ---

    async def _feed(self, windows: AsyncIterator[Sequence[Entry]], parallel: int) -> None:
        try:
            async for entries in windows:
                async with self._changed:
                    self._schedule.add(entries, parallel)
                    self._changed.notify_all()
                    await self._changed.wait_for(lambda: len(self._schedule) < _ENOUGH_PIECES)
        except Exception as exc:
            self._fatal = exc
        finally:
            self._fed = True
            await self._notify()

    async def _until_done(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._is_done or self._fatal or not self._workers)
            if self._fatal is not None:
                raise self._fatal
            if self._is_done:
                return
            if self._channels.growing:  # no channel now, but some are coming
                await self._channels.grown()
            elif not self._workers:
                raise self._channels.reason()

    @property
    def _is_done(self) -> bool:
        return self._fed and not self._busy and not self._schedule

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _clean_up(self) -> None:
        """Remove the parts of files that did not come to their end; tell those that cannot be removed."""
        client = self._any()
        for chunked in self._chunked.values():
            await chunked.discard(client)
        if not self._mover.orphans:
            return
        client = client or await self._channels.spare()
        if client is not None:
            with contextlib.suppress(ChannelLost):
                await client.run(self._mover.sweep(client))
        for path in self._mover.orphans:
            message = f"{printable(path)} is an unfinished file that could not be removed in time: remove it yourself"
            self._listener(Warned(message=message))

    # --- working ---

    def _employ(self, client: SftpClient) -> None:
        for coroutine in (self._watch(client), *(self._work(client) for _ in range(_UNITS_PER_CHANNEL))):
            worker = asyncio.create_task(coroutine, name=f"channel to {client.host}")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _watch(self, client: SftpClient) -> None:
        """Wake those who wait for work when their channel ends."""
        await client.ended.wait()
        if isinstance(client.lost, UnsafePeer):
            self._fatal = client.lost
        self._workers.discard(asyncio.current_task())
        await self._notify()

    async def _work(self, client: SftpClient) -> None:
        try:
            while (unit := await self._next_unit(client)) is not None:
                try:
                    await self._copy(client, unit)
                finally:
                    self._busy -= 1
                    await self._notify()
        except Exception as exc:
            self._fatal = self._fatal or exc
        finally:
            self._workers.discard(asyncio.current_task())
            await self._notify()

    async def _next_unit(self, client: SftpClient) -> Unit | None:
        """Return the next unit; None when there will be none, or this channel has ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._schedule or self._is_done or not client.alive)
            unit = self._schedule.take() if client.alive else None
            if unit is not None:
                self._busy += 1
            return unit

    async def _copy(self, client: SftpClient, unit: Unit) -> None:
        if isinstance(unit, Chunk):
            await self._copy_chunk(client, unit)
        else:
            await self._copy_files(client, unit.entries if isinstance(unit, Batch) else (unit.entry,))

    async def _copy_files(self, client: SftpClient, entries: Sequence[Entry]) -> None:
        """Copy whole files side by side on one channel."""
        mover = self._mover
        outcomes = await client.run_all(
            mover.whole(client, entry) if entry.link is None else mover.link(client, entry) for entry in entries
        )
        if any(isinstance(outcome, OpenRefused) for outcome in outcomes):
            client.narrow()
        for entry, outcome in zip(entries, outcomes, strict=True):
            if isinstance(outcome, ChannelLost | OpenRefused):
                await self._again(entry, outcome, WholeFile(entry))
            elif isinstance(outcome, BaseException):
                await self._failed(entry, outcome)
            elif outcome is False:
                self._skipped(entry)
            else:
                self._copied(entry, entry.size if entry.link is None else 0)

    async def _copy_chunk(self, client: SftpClient, chunk: Chunk) -> None:
        entry = chunk.entry
        file = self._chunked.get(entry.target)
        if file is None:
            file = self._chunked[entry.target] = ChunkedFile(entry, self._mover)
        done = RangeSet()
        if file.error is None:
            try:
                await file.copy(client, chunk.range, done)
            except Exception as exc:
                if isinstance(exc, OpenRefused):
                    client.narrow()
                if isinstance(exc, ChannelLost | OpenRefused) and self._counts_as_retry(entry):
                    for span in done.missing(chunk.range):
                        self._schedule.put_back(Chunk(entry, span))
                else:
                    file.error = file.error or await self._explain(exc, entry)
        if file.is_over and not file.ending:
            await self._end(file)

    async def _end(self, file: ChunkedFile) -> None:
        """Commit a file whose last byte was acknowledged, or clean up after one that failed; tell it once."""
        file.ending = True
        entry = file.entry
        while file.error is None:
            client = self._any()
            if client is None:
                file.error = ChannelLost("no channel is left", host=self._channels.host)
                break
            try:
                await file.commit(client)
                break
            except ChannelLost:
                continue
            except Exception as exc:
                file.error = await self._explain(exc, entry)
        if file.error is None:
            del self._chunked[entry.target]
            self._copied(entry, entry.size)
        else:
            await file.discard(self._any())
            await self._failed(entry, file.error)

    async def _again(self, entry: Entry, exc: BaseException, unit: Unit) -> None:
        """Queue again what a channel could not end, unless that happened too often."""
        if self._counts_as_retry(entry):
            self._schedule.put_back(unit)
        else:
            await self._failed(entry, exc)

    def _counts_as_retry(self, entry: Entry) -> bool:
        """Count one more try of `entry`; False when it was tried too often."""
        self._report.retries += 1
        self._tries[entry.target] += 1
        return self._tries[entry.target] <= _MOST_TRIES

    async def _explain(self, exc: BaseException, entry: Entry) -> FastcopyError:
        return await explain(exc, entry, self._any(), of_source=self._mover.of_source)

    def _any(self) -> SftpClient | None:
        return next(iter(self._channels.alive), None)

    # --- telling ---

    def _copied(self, entry: Entry, size_bytes: int) -> None:
        self._report.copied(size_bytes)
        self._listener(FileDone(path=entry.source, size_bytes=size_bytes, outcome="copied"))

    def _skipped(self, entry: Entry) -> None:
        self._report.skipped()
        self._listener(FileDone(path=entry.source, size_bytes=0, outcome="skipped"))

    async def _failed(self, entry: Entry, exc: BaseException) -> None:
        error = exc
        if not isinstance(error, FastcopyError) or error.path is None:
            error = await self._explain(exc, entry)
        self._report.failed(entry.source, error)
        self._listener(FileDone(path=entry.source, size_bytes=entry.size, outcome="failed", error=error))
