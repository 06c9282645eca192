"""What goes where: sources looked at, the destination looked at, the directory rules applied, collisions refused.

The rules are plan/destinations'; this file asks both sides what is there. Invariant: nothing is written before
`Placed` is returned, so that a refusal leaves no trace.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastcopy.engine.refusals import remote_error
from fastcopy.engine.sources import expanded, find_local, find_remote
from fastcopy.errors import FastcopyError, NothingMatched, SourceMissing, UsageError, printable
from fastcopy.model import FileKind
from fastcopy.plan.destinations import Placement, find_collision, place
from fastcopy.plan.names import base, clean, parent
from fastcopy.sftp import operations
from fastcopy.sftp.operation import StatusError
from fastcopy.store.source import stat_source

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from fastcopy.engine.sources import Failed, FoundSource
    from fastcopy.sftp.client import SftpClient


#: Seconds of round trip over which it is not measured again, and how often it is else. Source: our choice; a busy
#: machine easily answers one question 10 ms late.
_LONG_S = 0.03
_PINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Each source found, with its target; the sources that failed; the folder everything goes into.

    `make_directory` tells that `directory` is missing and to be made, `is_new_file` that the
    one file there is goes to a name where nothing stands. `rtt_s` is the round trip time to the
    server, None when there is none.
    """

    pairs: tuple[tuple[FoundSource, bytes], ...]
    failed: tuple[Failed, ...]
    directory: bytes
    make_directory: bool
    is_new_file: bool = False
    rtt_s: float | None = None


async def find_local_sources(paths: Sequence[bytes]) -> tuple[list[FoundSource], list[Failed]]:
    """Look at local sources, in a worker thread.

    Raises: NothingMatched when none is there; the first error when none can be looked at.
    """
    found, failed = await asyncio.to_thread(find_local, paths)
    _check_any(found, failed)
    return found, failed


async def place_put(
    client: SftpClient, found: Sequence[FoundSource], failed: Sequence[Failed], destination: bytes
) -> Placed:
    """Decide where local sources go on the server. Targets are whole paths.

    Raises: UsageError, DuplicateDestination, TargetNotDirectory as plan.destinations.place; FileError.
    """
    path = await expanded(client, destination)
    asked_s = time.monotonic()
    try:
        there = await client.run(operations.stat_if_there(clean(path) or b"."))
    except StatusError as exc:
        raise remote_error(exc, path, "stat") from exc
    rtt_s = await _round_trip_s(client, time.monotonic() - asked_s)
    placement = place(
        [each.source for each in found],
        path,
        there.kind if there else None,
        is_one_of_several=bool(failed),
        side="remote",
    )
    await _check_meeting(found, placement, _names_here)
    return Placed(
        pairs=tuple(zip(found, placement.targets, strict=True)),
        failed=tuple(failed),
        directory=placement.directory or b"",
        make_directory=placement.make_directory,
        is_new_file=there is None and placement.directory is None,
        rtt_s=rtt_s,
    )


async def place_get(client: SftpClient, sources: Sequence[bytes], destination: bytes) -> Placed:
    """Look at remote sources and decide where they go here. Targets are relative to `directory`.

    Raises: as `place_put`; NothingMatched when no source is there.
    """
    asked_s = time.monotonic()
    found, failed = await find_remote(client, sources)
    rtt_s = await _round_trip_s(client, (time.monotonic() - asked_s) / len(sources))
    _check_any(found, failed)
    placement = place(
        [each.source for each in found],
        destination,
        local_kind(destination),
        is_one_of_several=bool(failed),
        side="local",
    )

    async def names_in(source: FoundSource) -> list[bytes]:
        return [name.filename for name in await client.run(operations.list_directory(source.path or b"."))]

    await _check_meeting(found, placement, names_in)
    return beneath(found, failed, placement, rtt_s)


async def place_here(found: Sequence[FoundSource], failed: Sequence[Failed], destination: bytes) -> Placed:
    """Decide where local sources go here. Targets are relative to `directory`. Raises: as `place_put`."""
    placement = place(
        [each.source for each in found],
        destination,
        local_kind(destination),
        is_one_of_several=bool(failed),
        side="local",
    )
    await asyncio.to_thread(_check_apart, found, placement.targets)
    await _check_meeting(found, placement, _names_here)
    return beneath(found, failed, placement, None)


async def _round_trip_s(client: SftpClient, first_s: float) -> float:
    """Return the smallest of a few round trips. A long one counts as it is: to ask again would cost as much again."""
    if first_s > _LONG_S:
        return first_s
    smallest_s = first_s
    for _ in range(_PINGS):
        asked_s = time.monotonic()
        try:
            await client.run(operations.realpath(b"."))
        except StatusError:
            return smallest_s
        smallest_s = min(smallest_s, time.monotonic() - asked_s)
    return smallest_s


def beneath(
    found: Sequence[FoundSource], failed: Sequence[Failed], placement: Placement, rtt_s: float | None
) -> Placed:
    """Return a placement with its targets relative to the local folder that will be held open."""
    targets: tuple[bytes, ...]
    if placement.directory is None:
        target = placement.targets[0]
        directory, targets = parent(target) or b".", (base(target),)
    else:
        directory = placement.directory
        targets = tuple(_relative(target, directory) for target in placement.targets)
    return Placed(
        pairs=tuple(zip(found, targets, strict=True)),
        failed=tuple(failed),
        directory=directory,
        make_directory=placement.make_directory,
        rtt_s=rtt_s,
    )


def local_kind(path: bytes) -> FileKind | None:
    """Return what stands at a local path, links followed; None when nothing does."""
    try:
        return stat_source(path or b".", follow=True).kind
    except SourceMissing:
        return None


def _check_apart(found: Sequence[FoundSource], targets: Sequence[bytes]) -> None:
    """Refuse to copy a folder into itself. Raises: UsageError."""
    for each, target in zip(found, targets, strict=True):
        inside = os.path.realpath(target) + b"/"
        if each.attributes.kind is FileKind.DIRECTORY and inside.startswith(os.path.realpath(each.path) + b"/"):
            raise UsageError(f"{printable(target)} lies inside {printable(each.path)}: it would be copied into itself")


async def _names_here(source: FoundSource) -> list[bytes]:
    return await asyncio.to_thread(os.listdir, source.path)


def _relative(target: bytes, directory: bytes) -> bytes:
    """Return `target` relative to `directory`, which it is or lies in; b"" for the folder itself."""
    if target == directory:
        return b""
    return target.removeprefix(b"./") if directory == b"." else target[len(directory) :].lstrip(b"/")


def _check_any(found: Sequence[FoundSource], failed: Sequence[Failed]) -> None:
    if found or not failed:
        return
    for _, error in failed:
        if not isinstance(error, SourceMissing):
            raise error
    raise NothingMatched(", ".join(printable(path) for path, _ in failed) + ": no such file")


async def _check_meeting(
    found: Sequence[FoundSource], placement: Placement, names_in: Callable[[FoundSource], Awaitable[list[bytes]]]
) -> None:
    """Refuse two sources whose contents would land on one name.

    Raises: DuplicateDestination; FileError when a folder cannot be listed.
    """
    if not placement.meeting or placement.directory is None:
        return
    listings: dict[int, list[bytes]] = {}
    for index in placement.meeting:
        try:
            listings[index] = await names_in(found[index])
        except StatusError as exc:
            raise remote_error(exc, found[index].path, "list", of_source=True) from exc
        except OSError:
            listings[index] = []  # the scan will tell what is wrong with it
    error: FastcopyError | None = find_collision([each.source for each in found], placement.directory, listings)
    if error is not None:
        raise error
