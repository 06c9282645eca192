"""Which name each source gets at the destination: the directory rules, always the same on a second run.

Pure: kinds of what is there are told by others. The table stands at `place`.
Invariant: no two sources get one name; that is refused before any byte moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastcopy.errors import DuplicateDestination, TargetNotDirectory, UsageError, printable
from fastcopy.model import FileKind
from fastcopy.plan.names import base, clean, join

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def means_contents(path: bytes) -> bool:
    """Tell whether a source typed so means what is in the directory, not the directory: `src/`, `src/.`, `.`, `..`."""
    return path.endswith(b"/") or base(path) in (b"", b".", b"..")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One source of the command line and what is there.

    `path` is as typed, `~` already expanded. `kind` is that of what a link leads to, as in scp: someone who names a
    link wants what it stands for; only links found inside a tree are subject to --symlinks. A link that leads
    nowhere may be given as SYMLINK and is placed as a file is. `contents` is `means_contents(path)`.
    """

    path: bytes
    kind: FileKind
    contents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where everything goes.

    `targets` has one path per source, in their order: the file's new path, or the directory that the tree's own
    entries go into. `directory` is DST where it serves as a directory, and `make_directory` tells that it is
    missing and is to be made. `meeting` lists the sources whose contents meet others in DST: their names
    must be listed and shown to `find_collision` before any byte moves.
    """

    targets: tuple[bytes, ...]
    directory: bytes | None = None
    make_directory: bool = False
    meeting: tuple[int, ...] = ()


def place(
    sources: Sequence[Source],
    destination: bytes,
    destination_kind: FileKind | None,
    destination_slash: bool = False,
    *,
    is_one_of_several: bool = False,
    side: str = "destination",
) -> Placement:
    """Decide each source's target.

    | source | DST | target |
    | --- | --- | --- |
    | directory `src` | missing or a directory | `DST/src` |
    | directory `src/`, `src/.`, `.`, `..`, `/` | missing or a directory | its contents in `DST` |
    | one file | a directory, or typed `DST/` | `DST/file` |
    | one file | missing, or a file | `DST`, its new name |
    | several | missing or a directory | each by its row, inside `DST` |

    Args:
        sources: what was typed, at least one.
        destination: DST's path; b"" is the directory that relative paths begin in.
        destination_kind: what is there, links followed; None when nothing is.
        destination_slash: DST was typed with a slash behind it, if `destination` does not show that.
        is_one_of_several: more sources were typed than `sources` holds (some are missing): DST is a directory then too.
        side: for the message: "local" or "remote".
    Raises:
        TargetNotDirectory: something else stands where DST must be a directory.
        DuplicateDestination: two sources have one name.
        UsageError: no source; `file/`; a file onto a device, FIFO or socket.
    """
    if not sources:
        raise UsageError("nothing to copy: no source was given")
    for source in sources:
        if source.kind is not FileKind.DIRECTORY and _is_contents(source):
            raise UsageError(f"{printable(source.path)}: not a directory, but typed as one; leave out the slash")
    is_directory = destination_slash or means_contents(destination) or is_one_of_several
    target = clean(destination) or b"."
    if len(sources) == 1 and sources[0].kind is not FileKind.DIRECTORY and not is_directory:
        if destination_kind is FileKind.SPECIAL:
            raise UsageError(f"{printable(target)} is a device, FIFO or socket: a copy would take its place")
        if destination_kind is not FileKind.DIRECTORY:
            return Placement(targets=(target,))
    if destination_kind not in (None, FileKind.DIRECTORY, FileKind.UNKNOWN):
        raise TargetNotDirectory(path=target, side=side)
    return _place_inside(sources, target, missing=destination_kind is None)


def _place_inside(sources: Sequence[Source], directory: bytes, *, missing: bool) -> Placement:
    if error := find_collision(sources, directory, {}):
        raise error
    spread = tuple(index for index, source in enumerate(sources) if _is_contents(source))
    return Placement(
        targets=tuple(directory if _is_contents(source) else join(directory, base(source.path)) for source in sources),
        directory=directory,
        make_directory=missing,
        meeting=spread if len(sources) > 1 else (),
    )


def find_collision(
    sources: Sequence[Source], directory: bytes, listings: Mapping[int, Iterable[bytes]]
) -> DuplicateDestination | None:
    """Return the error to raise when two sources would give one name in `directory`; None when all are different.

    Two directories of one name are such a case too: their trees are not merged.

    Args:
        listings: for each index of `Placement.meeting`, the names found in that source. Listed only as far as the
            first collision, so generators do.
    """
    taken: dict[bytes, bytes] = {}
    for index, source in enumerate(sources):
        contents = _is_contents(source)
        for name in listings.get(index, ()) if contents else (base(source.path),):
            path = join(source.path, name) if contents else source.path
            if name in taken:
                return DuplicateDestination(path=join(directory, name), first=taken[name], second=path)
            taken[name] = path
    return None


def _is_contents(source: Source) -> bool:
    return source.contents or means_contents(source.path)
