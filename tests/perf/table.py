"""What was measured, as a Markdown table for people and as JSON for programs.

Formats only. Invariant: every row asked for is in both, a figure that was not reached or not measured says so, except
that a row for information alone is left out where its peer is not installed.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.perf.row import Quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.perf.row import Measured, Row, Side

    Line = tuple[Row, Measured]

_HEAD = ("figure", "reach", "measured: median (min to max)", "fastcopy", "peer", "")
_DIGITS = {Quantity.RATE: 0, Quantity.TIME: 2, Quantity.CPU: 2, Quantity.MEMORY: 0}


def verdict(row: Row, measured: Measured) -> str:
    """Return how the row ended, in a word or two."""
    if measured.trouble:
        return "NOT measured"
    if row.informative:
        return "for information"
    return "reached" if measured.reached else "NOT reached"


def markdown(lines: Sequence[Line]) -> str:
    """Return the table, its columns padded so that it reads well as plain text too; then why a figure is missing."""
    shown = [line for line in lines if not (line[0].informative and line[1].trouble)]
    cells = [_HEAD, *(_cells(row, measured) for row, measured in shown)]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    text = [_line(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    text.insert(1, _line("-" * width for width in widths))
    text += [f"\n{row.figure}: not measured: {measured.trouble}" for row, measured in shown if measured.trouble]
    return "\n".join(text)


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: Row, measured: Measured) -> tuple[str, ...]:
    if measured.trouble:
        return row.figure, row.reach, "-", "-", "-", verdict(row, measured)
    digits = 2 if row.theirs else _DIGITS[row.quantity]
    figure = f"{measured.median:.{digits}f} ({measured.low:.{digits}f} to {measured.high:.{digits}f})"
    ours, theirs = _side(row, measured.ours), _side(row, measured.theirs)
    return row.figure, row.reach, figure, ours, theirs, verdict(row, measured)


def _side(row: Row, side: Side | None) -> str:
    if side is None:
        return "-"
    amount = f"{side.median:.{_DIGITS[row.quantity]}f} {row.quantity.value}"
    return f"{amount} ({side.setting})" if side.setting else amount


def as_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return one object per row, every single run included; units are in the names or in `unit`."""
    return [_row_json(row, measured) for row, measured in lines]


def _row_json(row: Row, measured: Measured) -> dict[str, Any]:
    head = {
        "figure": row.figure,
        "reach": {"at_least": row.at_least, "at_most": row.at_most},
        "is_ratio": row.theirs is not None,
        "unit": row.quantity.value,
        "verdict": verdict(row, measured),
    }
    if measured.trouble:
        return {**head, "trouble": measured.trouble}
    figures = {"median": measured.median, "min": measured.low, "max": measured.high}
    theirs = None if measured.theirs is None else asdict(measured.theirs)
    return {
        **head,
        "measured": figures,
        "total_bytes": row.total_bytes,
        "fastcopy": asdict(measured.ours) if measured.ours else None,
        "peer": theirs,
    }
