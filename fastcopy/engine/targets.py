"""The side that is written, seen as folders and names: making folders, knowing what is there already.

One Protocol, two implementations: the server over SFTP, the local store in worker threads. Invariants: a folder is
made before anything in it; a symlink inside the tree is never taken for a folder; final modes come last, deepest first.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fastcopy.engine.refusals import remote_error
from fastcopy.errors import FastcopyError, TargetNotDirectory
from fastcopy.model import Attributes, FileKind
from fastcopy.plan.compare import clamp_sftp_time
from fastcopy.plan.names import base, join, parent
from fastcopy.sftp import operations
from fastcopy.sftp.operation import StatusError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fastcopy.engine.channels import Channels
    from fastcopy.sftp.operation import Steps
    from fastcopy.store.local import LocalStore

#: Names asked for in one folder from which on listing it whole is cheaper: READDIR answers 100 at a time.
_LIST_FROM_NAMES = 32
_OWNER_ALL = 0o700
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder to make. `mode` is what a new one gets in the end; `preserve` sets mode and time of an old one too."""

    path: bytes
    mode: int
    mtime_s: int | None = None
    preserve: bool = False


class Target(Protocol):
    """The tree that is written."""

    async def make_folders(self, folders: Sequence[Folder]) -> list[FastcopyError | None]:
        """Make what is missing, parents first in any order given. Returns an error, or None, for each."""
        ...

    async def existing(self, paths: Sequence[bytes]) -> list[Attributes | None]:
        """Return what stands at each path, links themselves; None for nothing."""
        ...

    async def finish_folders(self) -> list[tuple[bytes, FastcopyError]]:
        """Give folders their final mode and time, once nothing is put into them any more. Returns what failed."""
        ...


def by_depth(folders: Iterable[Folder]) -> list[list[Folder]]:
    """Group folders by depth, the shallowest first."""
    levels: dict[int, list[Folder]] = defaultdict(list)
    for folder in folders:
        levels[folder.path.count(b"/")].append(folder)
    return [levels[depth] for depth in sorted(levels)]


class RemoteTarget:
    """The server's tree."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._missing: set[bytes] = set()
        self._new: set[bytes] = set()  # folders we made: nothing is in them but our own
        self._listed: tuple[bytes, dict[bytes, Attributes]] | None = None  # the last folder listed
        self._to_finish: list[Folder] = []

    def know_missing(self, path: bytes) -> None:
        """Take note that nothing stands at `path`: a question less."""
        self._missing.add(path)

    async def make_folders(self, folders: Sequence[Folder]) -> list[FastcopyError | None]:
        errors: dict[bytes, FastcopyError | None] = {}
        for level in by_depth(folders):
            outcomes = await self._channels.ask_all(partial(_make_folder, folder) for folder in level)
            for folder, outcome in zip(level, outcomes, strict=True):
                errors[folder.path] = self._note(folder, outcome)
        return [errors[folder.path] for folder in folders]

    def _note(self, folder: Folder, outcome: bool | BaseException) -> FastcopyError | None:
        if isinstance(outcome, StatusError):
            return remote_error(outcome, folder.path, "make directory")
        if isinstance(outcome, FastcopyError):
            return outcome
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome:
            self._new.add(folder.path)
        if folder.preserve or (outcome and folder.mode & _OWNER_ALL != _OWNER_ALL):
            self._to_finish.append(folder)
        return None

    async def existing(self, paths: Sequence[bytes]) -> list[Attributes | None]:
        by_folder: dict[bytes, list[bytes]] = defaultdict(list)
        for path in set(paths) - self._missing:
            by_folder[parent(path)].append(path)
        found: dict[bytes, Attributes] = {}
        await asyncio.gather(*(self._look_in(folder, names, found) for folder, names in by_folder.items()))
        return [found.get(path) for path in paths]

    async def _look_in(self, folder: bytes, paths: list[bytes], found: dict[bytes, Attributes]) -> None:
        """Add what is there of `paths`, all in `folder`, to `found`."""
        if folder in self._new:
            return
        names: dict[bytes, Attributes] | None = None
        if self._listed is not None and self._listed[0] == folder:
            names = self._listed[1]
        elif len(paths) >= _LIST_FROM_NAMES:
            try:
                listing = await self._channels.ask(partial(operations.list_directory, folder or b"."))
                names = {name.filename: name.attributes for name in listing}
                self._listed = (folder, names)
            except StatusError:
                names = None  # it may be entered but not listed
        if names is not None:
            found |= {path: names[base(path)] for path in paths if base(path) in names}
            return
        outcomes = await self._channels.ask_all(partial(operations.lstat_if_there, path) for path in paths)
        for path, outcome in zip(paths, outcomes, strict=True):
            if isinstance(outcome, Attributes):
                found[path] = outcome
            elif isinstance(outcome, BaseException) and not isinstance(outcome, StatusError):
                raise outcome

    async def finish_folders(self) -> list[tuple[bytes, FastcopyError]]:
        failed: list[tuple[bytes, FastcopyError]] = []
        for level in reversed(by_depth(self._to_finish)):
            outcomes = await self._channels.ask_all(partial(operations.setstat, f.path, _final(f)) for f in level)
            for folder, outcome in zip(level, outcomes, strict=True):
                if isinstance(outcome, StatusError):
                    failed.append((folder.path, remote_error(outcome, folder.path, "set mode of")))
                elif isinstance(outcome, BaseException):
                    raise outcome
        return failed


def _make_folder(folder: Folder) -> Steps[bool]:
    """Make one folder. Result: False when it was there. Raises TargetNotDirectory when something else is."""
    try:
        yield from operations.mkdir(folder.path, folder.mode | _OWNER_ALL)
    except StatusError:
        there = yield from operations.lstat_if_there(folder.path)
        if there is None:
            raise
        if there.kind not in (FileKind.DIRECTORY, FileKind.UNKNOWN):
            raise TargetNotDirectory(path=folder.path, side="remote") from None
        return False
    return True


def _final(folder: Folder) -> Attributes:
    time_s = clamp_sftp_time(folder.mtime_s) if folder.preserve and folder.mtime_s is not None else None
    return Attributes(mode=folder.mode, atime_s=time_s, mtime_s=time_s)


class LocalTarget:
    """The local store's tree; paths are relative to its root."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._new: set[bytes] = set()
        self._to_finish: list[Folder] = []

    async def make_folders(self, folders: Sequence[Folder]) -> list[FastcopyError | None]:
        return await asyncio.to_thread(self._make_folders, folders)

    def _make_folders(self, folders: Sequence[Folder]) -> list[FastcopyError | None]:
        errors: dict[bytes, FastcopyError | None] = {}
        for folder in sorted(folders, key=lambda folder: folder.path.count(b"/")):
            errors[folder.path] = None
            try:
                if folder.path and self._store.make_directory(folder.path, folder.mode):
                    self._new.add(folder.path)
            except FastcopyError as exc:
                errors[folder.path] = exc
                continue
            if folder.preserve or (folder.path in self._new and folder.mode & _OWNER_ALL != _OWNER_ALL):
                self._to_finish.append(folder)
        return [errors[folder.path] for folder in folders]

    async def existing(self, paths: Sequence[bytes]) -> list[Attributes | None]:
        return await asyncio.to_thread(lambda: [self._lstat(path) for path in paths])

    def _lstat(self, path: bytes) -> Attributes | None:
        if parent(path) in self._new:
            return None
        try:
            return self._store.lstat(path)
        except FastcopyError:
            return None  # writing it will say what is wrong

    async def finish_folders(self) -> list[tuple[bytes, FastcopyError]]:
        return await asyncio.to_thread(self._finish_folders)

    def _finish_folders(self) -> list[tuple[bytes, FastcopyError]]:
        failed: list[tuple[bytes, FastcopyError]] = []
        for level in reversed(by_depth(self._to_finish)):
            for folder in level:
                mtime_ns = None if not folder.preserve or folder.mtime_s is None else folder.mtime_s * _NS_PER_S
                try:
                    self._store.set_directory(folder.path, mode=folder.mode, mtime_ns=mtime_ns)
                except FastcopyError as exc:
                    failed.append((join(self._store.root, folder.path), exc))
        return failed
