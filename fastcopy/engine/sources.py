"""What the command line's sources are: patterns expanded, links led to their ends, kinds told, missing ones named.

Invariant: every source typed gives at least one Found or one error that names it.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastcopy.engine.refusals import remote_error
from fastcopy.errors import FastcopyError, RemoteError, SourceMissing, UsageError, printable
from fastcopy.model import Attributes, FileKind
from fastcopy.plan.destinations import Source, means_contents
from fastcopy.plan.locations import home_relative, needs_expansion
from fastcopy.plan.names import check_component, clean, join
from fastcopy.sftp import operations, packets
from fastcopy.sftp.operation import StatusError
from fastcopy.store.source import stat_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastcopy.sftp.client import SftpClient

_MAGIC = frozenset(b"*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSource:
    """One source: as it is placed, what it is, and the path to read it by (a local link's end)."""

    source: Source
    attributes: Attributes
    path: bytes


Failed = tuple[bytes, FastcopyError]


def find_local(paths: Sequence[bytes]) -> tuple[list[FoundSource], list[Failed]]:
    """Look at local sources; links are followed to their ends."""
    found: list[FoundSource] = []
    failed: list[Failed] = []
    for typed in paths:
        path = clean(typed)
        try:
            attributes = stat_source(path, follow=True)
        except FastcopyError as exc:
            failed.append((typed, exc))
            continue
        readable = os.path.realpath(path) if os.path.islink(path) else path
        found.append(_found(typed, attributes, readable))
    return found, failed


async def find_remote(client: SftpClient, paths: Sequence[bytes]) -> tuple[list[FoundSource], list[Failed]]:
    """Look at remote sources; patterns with * ? [ ] are expanded where no file has that very name."""
    found: list[FoundSource] = []
    failed: list[Failed] = []
    for typed in paths:
        path = await expanded(client, typed)
        try:
            attributes = await client.run(operations.stat_if_there(clean(path)))
            if attributes is not None:
                found.append(_found(path, attributes, clean(path)))
                continue
            matches = await _glob(client, path) if _MAGIC & set(path) else []
            if not matches:
                failed.append((typed, SourceMissing(path=typed)))
            found += [_found(match, attributes, match) for match, attributes in matches]
        except StatusError as exc:
            failed.append((typed, remote_error(exc, typed, "stat", of_source=True)))
    return found, failed


async def expanded(client: SftpClient, path: bytes) -> bytes:
    """Return a remote path as the SFTP server takes it: relative to the login folder, or absolute.

    Raises: UsageError for ~user where the server cannot expand it.
    """
    path = home_relative(path)
    if not needs_expansion(path):
        return path
    if not client.announces(packets.EXPAND_PATH):
        raise UsageError(f"this server cannot expand {printable(path)}: give the whole path")
    try:
        return await client.run(operations.expand_path(path))
    except StatusError as exc:
        raise RemoteError(exc.message, path=path, operation="expand") from exc


def _found(typed: bytes, attributes: Attributes, readable: bytes) -> FoundSource:
    contents = means_contents(typed) and attributes.kind is FileKind.DIRECTORY
    kind = attributes.kind
    if kind is FileKind.UNKNOWN and attributes.mode is None:  # a server that tells no modes: take it for a file
        kind = FileKind.FILE
        attributes = Attributes(
            size=attributes.size, mode=stat.S_IFREG | 0o644, atime_s=attributes.atime_s, mtime_s=attributes.mtime_s
        )
    return FoundSource(source=Source(path=typed, kind=kind, contents=contents), attributes=attributes, path=readable)


async def _glob(client: SftpClient, pattern: bytes) -> list[tuple[bytes, Attributes]]:
    """Return what matches, sorted; names with a leading dot only where the pattern has one, as a shell does."""
    absolute = pattern.startswith(b"/")
    folders = [b"/" if absolute else b""]
    for component in pattern.strip(b"/").split(b"/"):
        if not _MAGIC & set(component):
            folders = [join(folder, component) for folder in folders]
            continue
        listings = await client.run_all(operations.list_directory(folder or b".") for folder in folders)
        folders = [
            join(folder, name)
            for folder, listing in zip(folders, listings, strict=True)
            if isinstance(listing, list)
            for name in sorted(fnmatch.filter([entry.filename for entry in listing], component))
            if (not name.startswith(b".") or component.startswith(b".")) and _is_safe(name)
        ]
    outcomes = await client.run_all(operations.stat(folder) for folder in folders)
    return [
        (folder, outcome) for folder, outcome in zip(folders, outcomes, strict=True) if isinstance(outcome, Attributes)
    ]


def _is_safe(name: bytes) -> bool:
    try:
        check_component(name)
    except FastcopyError:
        return False
    return True
