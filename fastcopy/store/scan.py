"""Listing a local tree in windows, so that copying begins before the listing ends.

Reads directories and links, opens no file. Imports values, names and the error map; no event loop: the engine asks for
the next window in a thread. Invariants: a directory comes before anything in it; what cannot be read is an item, never
an exception; memory is bounded by the window and by the directories still to be read, not by the tree or its depth.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastcopy.errors import LocalError
from fastcopy.plan.names import is_part_name
from fastcopy.store.source import attributes_of, reachable
from fastcopy.store.trouble import local_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastcopy.errors import FastcopyError
    from fastcopy.model import Attributes

#: Entries and seconds after which a window is given out. Source: design, "Names".
WINDOW_ENTRIES = 10_000
WINDOW_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """One name beneath the root of a scan.

    `path` is relative to that root. `link` is a symlink's text. `is_part` tells an unfinished file of ours: to be
    reported, never copied.
    """

    path: bytes
    attributes: Attributes
    link: bytes | None = None
    is_part: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFailed:
    """A name beneath the root (b"" is the root) that could not be looked at, or a directory not read to its end."""

    path: bytes
    error: FastcopyError


@dataclass(frozen=True, slots=True)
class _Pending:
    """A directory still to be read; its identity and parent are kept only where links are followed."""

    path: bytes
    identity: tuple[int, int] | None = None
    parent: _Pending | None = None

    def is_within(self, identity: tuple[int, int]) -> bool:
        """Return whether the directory `identity` is this one or one above it."""
        above: _Pending | None = self
        while above is not None:
            if above.identity == identity:
                return True
            above = above.parent
        return False


def scan(
    root: bytes, *, follow: bool = False, window_entries: int = WINDOW_ENTRIES, window_s: float = WINDOW_S
) -> Iterator[list[Scanned | ScanFailed]]:
    """List everything beneath the directory `root`, which is not listed itself.

    Args:
        root: the directory; a symlink to one is followed here.
        follow: tell of what symlinks point to, and go into directories they point to, instead of telling their text.
        window_entries: most items in one window.
        window_s: seconds after which a window is given out however small it is (not while one call hangs on the disk).

    Yields: windows of 1 to `window_entries` items.
    """
    identity = None
    if follow:
        with contextlib.suppress(OSError):  # reading it will tell why
            identity = _identity(os.stat(root))
    pending = [_Pending(b"", identity)]
    window: list[Scanned | ScanFailed] = []
    deadline = time.monotonic() + window_s
    while pending:
        for item in _read_directory(root, pending.pop(), pending, follow):
            window.append(item)
            if len(window) >= window_entries or time.monotonic() >= deadline:
                yield window
                window = []
                deadline = time.monotonic() + window_s
    if window:
        yield window


def _read_directory(
    root: bytes, directory: _Pending, pending: list[_Pending], follow: bool
) -> Iterator[Scanned | ScanFailed]:
    """Yield an item per entry of `directory`, and add the directories among them to `pending`."""
    try:
        with _listing(os.path.join(root, directory.path)) as (entries, directory_fd):
            for entry in entries:
                yield _look_at(root, directory, entry, directory_fd, pending, follow)
    except OSError as exc:
        whole = os.path.join(root, directory.path)
        yield ScanFailed(path=directory.path, error=local_error(exc, whole, "read directory", of_source=True))


@contextlib.contextmanager
def _listing(path: bytes) -> Iterator[tuple[Iterator[os.DirEntry[Any]], int | None]]:
    """Yield the entries of the directory `path`, and the descriptor they hang on where its path is too long for one."""
    with reachable(path) as (above_fd, rest):
        if above_fd is None:
            with os.scandir(rest) as entries:
                yield entries, None
            return
        directory_fd = os.open(rest, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above_fd)
        try:
            with os.scandir(directory_fd) as entries:
                yield entries, directory_fd
        finally:
            os.close(directory_fd)


def _look_at(
    root: bytes,
    directory: _Pending,
    entry: os.DirEntry[Any],
    directory_fd: int | None,
    pending: list[_Pending],
    follow: bool,
) -> Scanned | ScanFailed:
    name = os.fsencode(entry.name)  # a listing by descriptor gives text; bytes stay as they are
    path = directory.path + b"/" + name if directory.path else name
    link = None
    try:
        status = entry.stat(follow_symlinks=follow)
        if stat.S_ISLNK(status.st_mode):
            link = os.fsencode(os.readlink(entry.path, dir_fd=directory_fd))
    except OSError as exc:
        return ScanFailed(path=path, error=local_error(exc, os.path.join(root, path), "stat", of_source=True))
    if stat.S_ISDIR(status.st_mode):
        if not follow:
            pending.append(_Pending(path))
        elif directory.is_within(_identity(status)):
            why = "a symlink leads back to a directory above it"
            error = LocalError(why, path=os.path.join(root, path), operation="follow")
            return ScanFailed(path=path, error=error)
        else:
            pending.append(_Pending(path, _identity(status), directory))
    return Scanned(path=path, attributes=attributes_of(status), link=link, is_part=is_part_name(name))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
