"""One line of the table: which figure of which race, what it should reach, and what was measured.

Pure arithmetic on results. Invariant: a ratio is the median of ratios of pairs of the same round, never the ratio of
two medians; and a figure that was not measured is never reached.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.perf.measure import Run
    from tests.perf.race import Result

_MIB = 1 << 20
_GIB = 1 << 30


class Quantity(enum.Enum):
    """What is compared, by the unit it is shown in."""

    RATE = "MiB/s"
    TIME = "s"
    CPU = "s/GiB"
    MEMORY = "MiB"

    def of(self, run: Run, total_bytes: int) -> float:
        """Return this quantity of one run that moved `total_bytes`."""
        if self is Quantity.RATE:
            return total_bytes / _MIB / run.wall_s
        if self is Quantity.TIME:
            return run.wall_s
        if self is Quantity.CPU:
            return run.cpu_s / (total_bytes / _GIB)
        return run.peak_pss_bytes / _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One contestant's part in a row: its setting, and the median of its runs in the row's unit."""

    name: str
    setting: str
    command: str
    median: float
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a row came to: its figure at the median, lowest and highest; or `trouble`, why there is none."""

    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    reached: bool = False
    ours: Side | None = None
    theirs: Side | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure. Against a peer it is a ratio: of speed (above 1: we are faster), of CPU (below 1: we need less)."""

    figure: str
    race: str
    quantity: Quantity
    ours: str = "fastcopy"
    theirs: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    total_bytes: int = 0

    @property
    def informative(self) -> bool:
        """Whether there is nothing to reach."""
        return self.at_least is None and self.at_most is None

    @property
    def reach(self) -> str:
        """What should be reached, as the table says it."""
        unit = "" if self.theirs else f" {self.quantity.value}"
        if self.at_least is not None:
            return f"≥ {self.at_least:g}{unit}"
        return "-" if self.at_most is None else f"≤ {self.at_most:g}{unit}"

    def measured(self, results: Mapping[str, Result]) -> Measured:
        """Work out the figure from the results of the row's race."""
        sides = [self.ours] if self.theirs is None else [self.ours, self.theirs]
        for name in sides:
            if not results[name].runs:
                return Measured(trouble=f"{name}: {results[name].trouble}")
        ours = results[self.ours].runs
        theirs = results[self.theirs].runs if self.theirs else ()
        figures = (
            [self._ratio(*pair) for pair in pairs(ours, theirs)] if theirs else [self._amount(run) for run in ours]
        )
        middle = median(figures)
        return Measured(
            median=middle,
            low=min(figures),
            high=max(figures),
            reached=self._reached(middle),
            ours=self._side(self.ours, results),
            theirs=self._side(self.theirs, results) if self.theirs else None,
        )

    def _amount(self, run: Run) -> float:
        return self.quantity.of(run, self.total_bytes)

    def _ratio(self, ours: Run, theirs: Run) -> float:
        if self.quantity is Quantity.CPU:
            return ours.cpu_s / theirs.cpu_s
        return theirs.wall_s / ours.wall_s

    def _reached(self, figure: float) -> bool:
        return (self.at_least is None or figure >= self.at_least) and (self.at_most is None or figure <= self.at_most)

    def _side(self, name: str, results: Mapping[str, Result]) -> Side:
        result = results[name]
        return Side(
            name=name,
            setting=result.setting,
            command=str(result.command),
            median=median(self._amount(run) for run in result.runs),
            runs=result.runs,
        )


def pairs(ours: Sequence[Run], theirs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Pair runs of the same round; a side with fewer runs lends its latest one to the rounds it sat out."""
    rounds = max(len(ours), len(theirs))
    return [(ours[number * len(ours) // rounds], theirs[number * len(theirs) // rounds]) for number in range(rounds)]
