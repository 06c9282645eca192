"""What a channel does next: the queue of work, largest first, small files in batches.

A plain state machine for one thread (the event loop's): no lock, no clock, no await. It holds one cursor for a file
that is cut, not its chunks, so a terabyte costs as little as a megabyte.
Invariant: every byte of every entry added is handed out exactly once, unless it was put back.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastcopy.plan.chunks import SMALL_FILE_BYTES, chunk_at, chunk_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastcopy.model import Entry, Range

#: Files in one batch at most. Source: our choice; their open, write and close round trips all overlap.
BATCH_FILES = 64
#: Bytes in one batch at most (a single file may not exceed it: SMALL_FILE_BYTES is less). Source: our choice.
BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """Small files that one channel copies with their round trips overlapped."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that is worth its own unit but not cutting."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a file that several channels copy."""

    entry: Entry
    range: Range


Unit = Batch | WholeFile | Chunk


class _Cursor:
    """A large file and how far it has been handed out; ordered largest first, then first come."""

    __slots__ = ("entry", "rank", "start")

    def __init__(self, entry: Entry, order: int) -> None:
        self.entry = entry
        self.start = 0
        self.rank = (-entry.size, order)

    def __lt__(self, other: _Cursor) -> bool:
        return self.rank < other.rank


class Schedule:
    """The work not yet handed out.

    Units that were put back come first, then the file being cut, then the other large files by size, then batches.
    """

    def __init__(self) -> None:
        self._returned: deque[Unit] = deque()
        self._current: _Cursor | None = None
        self._large: list[_Cursor] = []
        self._small: deque[Entry] = deque()
        self._channels = 1
        self._added = 0
        self._pieces = 0
        self._files = 0
        self._bytes = 0
        #: How many parts of a file that is cut wait here: its cursor and each chunk put back count one.
        self._parts: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Return how many pieces wait: files, however large, and chunks that were put back each count one."""
        return self._pieces

    def __repr__(self) -> str:
        return f"<Schedule {self._pieces} pieces, {self._files} files, {self._bytes} bytes>"

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait to be handed out."""
        return self._bytes

    @property
    def pending_files(self) -> int:
        """Files of which anything waits to be handed out."""
        return self._files

    def add(self, entries: Sequence[Entry], channels: int) -> None:
        """Queue one window of the scan, largest first.

        Args:
            entries: files (a symlink counts as an empty one), in any order, each target once.
            channels: how many channels are meant to share the work, those still coming up included.
        """
        self._channels = max(1, channels)
        for entry in sorted(entries, key=_size, reverse=True):
            self._files += 1
            self._bytes += _size(entry)
            if _size(entry) <= SMALL_FILE_BYTES:
                self._small.append(entry)
                self._pieces += 1
            else:
                self._add_large(entry)

    def _add_large(self, entry: Entry) -> None:
        heapq.heappush(self._large, _Cursor(entry, self._added))
        self._added += 1
        self._pieces += 1

    def take(self) -> Unit | None:
        """Return the next piece of work; None when there is none now."""
        if self._returned:
            return self._forget(self._returned.popleft())
        if self._current is None and self._large:
            self._current = heapq.heappop(self._large)
        if self._current is not None:
            return self._take_large(self._current)
        return self._take_batch() if self._small else None

    def put_back(self, unit: Unit) -> None:
        """Queue `unit` again, in front of everything: the work of a lost channel, or what is left of it."""
        self._returned.appendleft(unit)
        if isinstance(unit, Chunk):
            self._pieces += 1
            self._bytes += len(unit.range)
            self._add_part(unit.entry)
            return
        entries = unit.entries if isinstance(unit, Batch) else (unit.entry,)
        self._pieces += len(entries)
        self._files += len(entries)
        self._bytes += sum(map(_size, entries))

    def _forget(self, unit: Unit) -> Unit:
        """Take `unit`, which was put back, out of the counts."""
        if isinstance(unit, Chunk):
            self._pieces -= 1
            self._bytes -= len(unit.range)
            self._drop_part(unit.entry)
            return unit
        entries = unit.entries if isinstance(unit, Batch) else (unit.entry,)
        self._pieces -= len(entries)
        self._files -= len(entries)
        self._bytes -= sum(map(_size, entries))
        return unit

    def _add_part(self, entry: Entry) -> None:
        waiting = self._parts.get(entry.target, 0)
        self._parts[entry.target] = waiting + 1
        self._files += not waiting

    def _drop_part(self, entry: Entry) -> None:
        waiting = self._parts.pop(entry.target) - 1
        if waiting:
            self._parts[entry.target] = waiting
        else:
            self._files -= 1

    def _take_large(self, cursor: _Cursor) -> WholeFile | Chunk:
        entry = cursor.entry
        piece = chunk_at(cursor.start, entry.size, chunk_bytes(self._bytes, self._channels))
        self._bytes -= len(piece)
        cursor.start = piece.stop
        if piece.stop < entry.size:
            if piece.start == 0:
                self._parts[entry.target] = 1
            return Chunk(entry, piece)
        self._current = None
        self._pieces -= 1
        if piece.start == 0:
            self._files -= 1
            return WholeFile(entry)
        self._drop_part(entry)
        return Chunk(entry, piece)

    def _take_batch(self) -> Batch:
        # Towards the end batches shrink, so that the last files are spread over all channels.
        limit = min(BATCH_FILES, -(-len(self._small) // (2 * self._channels)))
        entries = [self._small.popleft()]
        size = _size(entries[0])
        while len(entries) < limit and size + _size(self._small[0]) <= BATCH_BYTES:
            entries.append(self._small.popleft())
            size += _size(entries[-1])
        self._pieces -= len(entries)
        self._files -= len(entries)
        self._bytes -= size
        return Batch(tuple(entries))


def _size(entry: Entry) -> int:
    """Return the bytes to move: a symlink's size is its text's, which travels inside one request."""
    return 0 if entry.link is not None else entry.size
