"""One copy told as steps: connect, look, plan, copy, commit, report.

Puts the layers together and holds no policy of its own: what goes where is plan/'s, how bytes move is engine/'s.
Invariant: whatever goes wrong after the command line was understood ends in a Report, and everything that was opened
is closed, also when the job is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from fastcopy.config import SymlinkPolicy
from fastcopy.errors import FastcopyError, FileError, ProtocolError, UsageError
from fastcopy.events import BytesMoved, Event, FileDone, Found, PhaseBegan, Warned
from fastcopy.measure.local_cpu import SOURCE, LocalMeter
from fastcopy.measure.report import Report, ReportBuilder, Settings, SideCpu
from fastcopy.model import CpuUsage, Direction, FileKind
from fastcopy.sftp.operation import StatusError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from fastcopy.config import CopyOptions
    from fastcopy.connection.base import Connector
    from fastcopy.engine.channels import Channels
    from fastcopy.engine.local_copy import LocalCopier
    from fastcopy.engine.mover import Mover
    from fastcopy.engine.placing import Placed
    from fastcopy.engine.preparer import Preparer
    from fastcopy.engine.sources import Failed
    from fastcopy.engine.targets import Target
    from fastcopy.events import Listener
    from fastcopy.measure.remote_cpu import RemoteSample
    from fastcopy.model import Entry
    from fastcopy.plan.locations import Location

#: Seconds between two samples of the bytes moved.
_SAMPLE_S = 0.1
#: Seconds of round trip below which it is worth waiting for the far side's number of cores before choosing.
_NEAR_S = 0.01
#: Seconds to wait for that number.
_CORES_WAIT_S = 0.3


async def run_copy(
    sources: Sequence[Location],
    destination: Location,
    options: CopyOptions,
    listener: Listener,
    *,
    command: str = "copy",
    whole_process: bool = False,
) -> Report:
    """Copy `sources` to `destination` and tell what happened.

    Args:
        sources: all local, or all on one host.
        listener: told of events while the copy runs; must not block nor raise.
        command: what the report calls the job.
        whole_process: this process exists for the job alone; its CPU counts from its start.
    Returns: the report. A job-wide error stands in `report.error` and in its failures.
    Cancellation: closes everything, leaves no process and no part file unaccounted for, raises CancelledError.
    """
    report = ReportBuilder(command=command)
    meter = LocalMeter(whole_process=whole_process)
    job = _Job(sources, destination, options, report, _counting(report, listener), meter)
    try:
        await job.run()
    except FastcopyError as exc:
        report.aborted(exc)
    except StatusError as exc:  # a refusal outside any one file
        report.aborted(ProtocolError(f"{exc.message} (status {exc.code})"))
    report.cpu_local = SideCpu(usage=meter.usage(job.ended_cpu), source=SOURCE)
    return report.build()


def _counting(report: ReportBuilder, listener: Listener) -> Listener:
    """Return a listener that also keeps each warning in the report, and passes it on only once."""

    def listen(event: Event) -> None:
        if not isinstance(event, Warned) or report.warn(event.message):
            listener(event)

    return listen


def direction_of(sources: Sequence[Location], destination: Location) -> Direction:
    """Return which way the copy goes.

    Raises: UsageError when the sources are not all on one host.
    """
    hosts = {(source.host, source.user, source.port) for source in sources}
    if len(hosts) != 1:
        raise UsageError("all sources of one copy must be on one host: copy from each host in a run of its own")
    if sources[0].is_remote:
        return Direction.RELAY if destination.is_remote else Direction.GET
    return Direction.PUT if destination.is_remote else Direction.LOCAL


class _Job:
    """The steps of one copy and what they share."""

    def __init__(
        self,
        sources: Sequence[Location],
        destination: Location,
        options: CopyOptions,
        report: ReportBuilder,
        listener: Listener,
        meter: LocalMeter,
    ) -> None:
        self._sources = sources
        self._destination = destination
        self._options = options
        self._report = report
        self._listener = listener
        self._meter = meter
        #: CPU of local helper processes that have ended.
        self.ended_cpu = CpuUsage()

    async def run(self) -> None:
        self._report.direction = direction_of(self._sources, self._destination)
        async with contextlib.AsyncExitStack() as stack:
            if self._report.direction is Direction.PUT:
                await self._put(stack)
            elif self._report.direction is Direction.GET:
                await self._get(stack)
            elif self._report.direction is Direction.LOCAL:
                await self._here(stack)
            else:
                raise UsageError("both ends are remote: run fastcopy on one of the two hosts instead")

    # --- the directions ---

    async def _put(self, stack: contextlib.AsyncExitStack) -> None:
        from fastcopy.engine.placing import find_local_sources

        found, failed = await find_local_sources([source.path for source in self._sources])
        channels = await self._connect(stack, self._destination)
        from fastcopy.engine.placing import place_put
        from fastcopy.engine.put import Put
        from fastcopy.engine.targets import Folder, RemoteTarget

        with self._phase("scan"):
            placed = await place_put(channels.clients[0], found, failed, self._destination.path)
            target = RemoteTarget(channels)
            if placed.is_new_file:
                target.know_missing(placed.pairs[0][1])
            if placed.make_directory:
                folder = Folder(path=placed.directory, mode=0o777 & ~self._umask)
                for error in await target.make_folders([folder]):
                    if error is not None:
                        raise error
        await self._copy(stack, channels, Put(follow=self._follow), target, placed)

    async def _get(self, stack: contextlib.AsyncExitStack) -> None:
        channels = await self._connect(stack, self._sources[0])
        from fastcopy.engine.get import Get
        from fastcopy.engine.placing import place_get
        from fastcopy.engine.targets import LocalTarget
        from fastcopy.store.local import LocalStore

        with self._phase("scan"):
            placed = await place_get(
                channels.clients[0], [source.path for source in self._sources], self._destination.path
            )
            store = LocalStore.open(placed.directory, create=placed.make_directory)
            stack.callback(store.close)
        await self._copy(stack, channels, Get(store), LocalTarget(store), placed)

    async def _here(self, stack: contextlib.AsyncExitStack) -> None:
        from fastcopy.engine.local_copy import LocalCopier
        from fastcopy.engine.placing import find_local_sources, place_here
        from fastcopy.engine.preparer import Preparer
        from fastcopy.engine.targets import LocalTarget
        from fastcopy.store.local import LocalStore

        with self._phase("scan"):
            found, failed = await find_local_sources([source.path for source in self._sources])
            placed = await place_here(found, failed, self._destination.path)
            store = LocalStore.open(placed.directory, create=placed.make_directory)
            stack.callback(store.close)
        self._tell_failed(placed.failed)
        target = LocalTarget(store)
        preparer = Preparer(target, self._options.transfer, self._report, self._listener, umask=self._umask)
        copier = LocalCopier(store, self._report, self._listener, follow=self._follow)
        async with self._sampling(copier):
            with self._phase("copy"):
                await copier.run(_chained([], self._windows(None, preparer, placed), self._listener))
            await self._finish(target, preparer)

    # --- steps ---

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._listener(PhaseBegan(phase=name))
        with self._report.phase(name):
            yield

    @property
    def _umask(self) -> int:
        from fastcopy.store.local import current_umask

        return current_umask()

    @property
    def _follow(self) -> bool:
        return self._options.transfer.symlinks is SymlinkPolicy.FOLLOW

    def _tell_failed(self, failed: Sequence[Failed]) -> None:
        """Tell the sources that are not there."""
        for path, error in failed:
            self._report.found(1, 0)
            self._failed(path, error)

    def _failed(self, path: bytes, error: FastcopyError) -> None:
        self._report.failed(path, error)
        self._listener(FileDone(path=path, size_bytes=0, outcome="failed", error=error))

    async def _connect(self, stack: contextlib.AsyncExitStack, location: Location) -> Channels:
        """Log in and open the first channel."""
        from fastcopy.connection.selection import connector_for
        from fastcopy.engine.channels import Channels

        assert location.host is not None
        with self._phase("connect"):
            connector: Connector = connector_for(
                location.host, location.user, location.port, self._options.ssh, self._options.transfer
            )
            stack.push_async_callback(connector.close)
            loading = asyncio.create_task(asyncio.to_thread(_load))
            stack.push_async_callback(_drop, loading)
            self._meter.warm_up()
            channels = Channels(connector, self._options.transfer, host=location.host, listener=self._listener)
            stack.push_async_callback(self._disconnect, channels)
            asked = self._options.transfer
            if asked.parallel is not None and asked.connections is not None:  # nothing to choose: begin at once
                channels.grow(asked.parallel, min(asked.connections, asked.parallel))
            await channels.first()
            await loading
        for warning in connector.warnings:
            self._listener(Warned(message=warning))
        self._report.ssh = channels.connections[0].info.way
        return channels

    async def _disconnect(self, channels: Channels) -> None:
        """End all logins; keep what their helper processes cost."""
        await channels.close()
        for connection in channels.connections:
            self.ended_cpu += connection.cpu_of_ended_processes()

    async def _copy(
        self,
        stack: contextlib.AsyncExitStack,
        channels: Channels,
        mover: Mover,
        target: Target,
        placed: Placed,
    ) -> None:
        """Scan and copy everything, over the first channel at once and over the others as they come."""
        from fastcopy.engine.copier import Copier
        from fastcopy.engine.preparer import Preparer
        from fastcopy.engine.remote_files import RemoteFiles
        from fastcopy.measure.remote_procfs import READ_BYTES, RemoteMeter

        self._tell_failed(placed.failed)
        self._report.rtt_s = placed.rtt_s
        files = RemoteFiles(READ_BYTES)
        meter = RemoteMeter(files.read, keep=files.keep)
        shared = self._options.ssh.reuse_master
        first_look = asyncio.create_task(meter.begin(channels.clients[0], channels.connections[0], shared=shared))

        async def look_at_others() -> None:
            await channels.grown()
            await meter.learn(channels.alive)

        try:
            preparer = Preparer(target, self._options.transfer, self._report, self._listener, umask=self._umask)
            windows = self._windows(channels, preparer, placed)
            async with self._sampling(channels):
                with self._phase("copy"):
                    try:
                        first, complete = await anext(windows)
                    except StopAsyncIteration:
                        first, complete = [], True
                    parallel = await self._tune(channels, first, complete, first_look)
                    stack.push_async_callback(_drop, asyncio.create_task(look_at_others()))
                    copier = Copier(mover, channels, self._report, self._listener)
                    await copier.run(_chained(first, windows, self._listener), parallel=parallel)
                await self._finish(target, preparer)
            for warning in mover.warnings:
                self._listener(Warned(message=warning))
        finally:
            self._settings(channels)
            await _drop(first_look)
        sample = await meter.sample(channels.alive, channels.connections)
        self._report.cpu_remote = SideCpu(usage=sample.cpu, source=sample.source)

    async def _finish(self, target: Target, preparer: Preparer) -> None:
        """Give folders their final modes, tell what was left out."""
        with self._phase("commit"):
            for path, error in await target.finish_folders():
                self._failed(path, error)
        preparer.told()

    async def _windows(
        self, channels: Channels | None, preparer: Preparer, placed: Placed
    ) -> AsyncIterator[tuple[list[Entry], bool]]:
        """Yield what is to be copied, window by window, and whether that is surely all: files first, then trees."""
        from fastcopy.engine.scanning import scan_tree
        from fastcopy.model import Entry
        from fastcopy.store.scan import WINDOW_ENTRIES

        trees = [(each, to) for each, to in placed.pairs if each.attributes.kind is FileKind.DIRECTORY]
        files = [
            (Entry(source=each.path, target=to, attributes=each.attributes), False)
            for each, to in placed.pairs
            if each.attributes.kind is not FileKind.DIRECTORY
        ]
        for entry, _ in [each for each in files if each[0].attributes.kind is FileKind.SPECIAL]:
            self._tell_failed(
                [(entry.source, FileError("a FIFO, socket or device is never copied", path=entry.source))]
            )
        files = [each for each in files if each[0].attributes.kind is not FileKind.SPECIAL]
        if files:
            yield await preparer.prepare(files), not trees
        for index, (tree, to) in enumerate(trees):
            if not tree.source.contents:
                await preparer.prepare([(Entry(source=tree.path, target=to, attributes=tree.attributes), False)])
            scan = scan_tree(
                channels if self._report.direction is Direction.GET else None, tree.path, follow=self._follow
            )
            async for entries in preparer.entries(tree.path, to, scan):
                yield entries, index == len(trees) - 1 and len(entries) < WINDOW_ENTRIES // 2

    async def _tune(
        self,
        channels: Channels,
        first: Sequence[Entry],
        complete: bool,
        first_look: asyncio.Task[RemoteSample],
    ) -> int:
        """Choose how many channels and connections, begin to open them, return how many channels there will be."""
        from fastcopy.plan.tuning import Circumstances, choose

        rtt_s = self._report.rtt_s or 0.0
        if rtt_s < _NEAR_S and self._options.transfer.connections is None:
            await asyncio.wait([first_look], timeout=_CORES_WAIT_S)
        done = first_look.done() and not first_look.cancelled() and first_look.exception() is None
        sizes = [entry.size for entry in first if entry.link is None]
        tuning = choose(
            Circumstances(
                rtt_s=rtt_s,
                local_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
                remote_cores=first_look.result().cores if done else None,
                files=max(1, len(first)),
                largest_bytes=max(sizes, default=0),
                total_bytes=sum(sizes) if complete else None,
                direction=self._report.direction,
                way=channels.connections[0].info.way,
                login_is_typed=channels.connections[0].info.login_is_typed,
                reuse_master=self._options.ssh.reuse_master,
                parallel=self._options.transfer.parallel,
                connections=self._options.transfer.connections,
            )
        )
        if first:
            channels.grow(tuning.parallel, tuning.connections)
        return tuning.parallel

    @contextlib.asynccontextmanager
    async def _sampling(self, mover: Channels | LocalCopier) -> AsyncIterator[None]:
        """Tell the listener how many bytes moved, a few times a second and at the end."""
        told = 0

        def tell() -> None:
            nonlocal told
            moved = mover.moved_bytes
            if moved != told:
                self._listener(BytesMoved(count=moved - told))
                told = moved

        async def sample() -> None:
            while True:
                await asyncio.sleep(_SAMPLE_S)
                tell()

        sampler = asyncio.create_task(sample())
        try:
            yield
        finally:
            await _drop(sampler)
            tell()

    def _settings(self, channels: Channels) -> None:
        client, info = channels.clients[0], channels.connections[0].info
        size = client.write_size if self._report.direction is Direction.PUT else client.read_size
        self._report.settings = Settings(
            parallel=len(channels.clients),
            connections=len(channels.connections),
            request_bytes=size.request_bytes,
            queue_depth=self._options.transfer.queue_depth,
            cipher=info.cipher,
            compress=info.compress,
        )
        copied = self._report.build().bytes.copied
        self._report.bytes_wasted = max(0, channels.moved_bytes - copied)


def _load() -> None:
    """Import what is needed next, while the login is waited for."""
    import fastcopy.engine.copier
    import fastcopy.engine.get
    import fastcopy.engine.placing
    import fastcopy.engine.put
    import fastcopy.measure.remote_procfs
    import fastcopy.plan.tuning  # noqa: F401  (the imports are the point)


async def _chained(
    first: list[Entry], rest: AsyncIterator[tuple[list[Entry], bool]], listener: Listener
) -> AsyncIterator[list[Entry]]:
    yield first
    async for entries, _ in rest:
        yield entries
    listener(Found(files=0, size_bytes=0, complete=True))


async def _drop(task: asyncio.Task[object]) -> None:
    """End `task`, whatever it does."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
