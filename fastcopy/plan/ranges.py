"""A set of byte ranges of one file: what has been acknowledged, what is missing.

A plain value that changes in place, for one thread. Kept sorted and merged, so a file copied in order is one range.
Invariant: ranges are disjoint, not empty, ascending, and never touch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from fastcopy.model import Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class RangeSet:
    """Bytes of a file, as few ranges. Adding at the end or next to a range costs O(log n)."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for piece in ranges:
            self.add(piece)

    def __iter__(self) -> Iterator[Range]:
        return map(Range, self._starts, self._stops)

    def __len__(self) -> int:
        """Return how many ranges it takes."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._starts == other._starts and self._stops == other._stops

    def __repr__(self) -> str:
        return f"RangeSet([{', '.join(f'{piece.start}..{piece.stop}' for piece in self)}])"

    @property
    def total(self) -> int:
        """Bytes in all ranges together."""
        return sum(self._stops) - sum(self._starts)

    def add(self, piece: Range) -> None:
        """Put the bytes of `piece` in; what is there already stays."""
        if piece.start == piece.stop:
            return
        first = bisect_left(self._stops, piece.start)  # the first that reaches to the piece or touches it
        last = bisect_right(self._starts, piece.stop)  # behind the last that begins in or right after it
        start, stop = piece.start, piece.stop
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def subtract(self, piece: Range) -> None:
        """Take the bytes of `piece` out, where they are in."""
        if piece.start == piece.stop:
            return
        first = bisect_right(self._stops, piece.start)
        last = bisect_left(self._starts, piece.stop)
        if first >= last:
            return
        before = (self._starts[first], piece.start)
        after = (piece.stop, self._stops[last - 1])
        rest = [(start, stop) for start, stop in (before, after) if start < stop]
        self._starts[first:last] = [start for start, _ in rest]
        self._stops[first:last] = [stop for _, stop in rest]

    def missing(self, span: Range | int) -> list[Range]:
        """Return the ranges of `span` that are not in, ascending; a number means the whole file [0, size)."""
        reached, stop = (span.start, span.stop) if isinstance(span, Range) else (0, span)
        gaps: list[Range] = []
        for index in range(bisect_right(self._stops, reached), bisect_left(self._starts, stop)):
            if self._starts[index] > reached:
                gaps.append(Range(reached, self._starts[index]))
            reached = self._stops[index]
        if reached < stop:
            gaps.append(Range(reached, stop))
        return gaps

    def covers(self, size: int) -> bool:
        """Tell whether every byte of [0, size) is in."""
        return size <= 0 or (bool(self._starts) and self._starts[0] == 0 and self._stops[0] >= size)
