"""The arithmetic of the table and the measuring of a command: cheap, no server, no peer."""

from __future__ import annotations

import os
import sys

import pytest

from tests.conftest import NOT_LINUX
from tests.perf.measure import Command, CommandFailed, Run, measure
from tests.perf.race import Result
from tests.perf.row import Quantity, Row, pairs
from tests.perf.rows import FULL, races, rows
from tests.perf.table import verdict

#: pidfd and smaps_rollup.
on_linux = pytest.mark.skipif(sys.platform != "linux", reason=NOT_LINUX)


def _runs(*walls_s: float, cpu_s: float = 1.0) -> tuple[Run, ...]:
    return tuple(Run(wall_s=wall_s, cpu_s=cpu_s) for wall_s in walls_s)


def _row(*, at_least: float | None = None, at_most: float | None = None, quantity: Quantity = Quantity.TIME) -> Row:
    return Row(
        figure="f", race="r", quantity=quantity, theirs="peer", at_least=at_least, at_most=at_most, total_bytes=1
    )


def test_a_ratio_is_the_median_of_pairs() -> None:
    """The weather of a round is in both of its runs and goes out of the ratio, unlike with a ratio of medians."""
    results = {"fastcopy": Result(runs=_runs(1, 5, 2)), "peer": Result(runs=_runs(2, 20, 2))}
    measured = _row(at_least=2.0).measured(results)
    assert (measured.low, measured.median, measured.high, measured.reached) == (1.0, 2.0, 4.0, True)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (_row(at_least=2.01), "NOT reached"),
        (_row(at_most=0.5, quantity=Quantity.CPU), "reached"),
        (_row(at_most=0.49, quantity=Quantity.CPU), "NOT reached"),
        (_row(), "for information"),
    ],
)
def test_verdicts(row: Row, expected: str) -> None:
    """Faster is a larger ratio, less CPU a smaller one; a figure just beyond its goal is not reached."""
    results = {"fastcopy": Result(runs=_runs(1.0, cpu_s=1.0)), "peer": Result(runs=_runs(2.0, cpu_s=2.0))}
    assert verdict(row, row.measured(results)) == expected


def test_a_figure_without_runs_is_not_reached() -> None:
    """A peer that failed or is not installed leaves its row with the reason, never with a verdict in our favour."""
    results = {"fastcopy": Result(runs=_runs(1.0)), "peer": Result(trouble="peer is not installed")}
    measured = _row(at_least=0.0).measured(results)
    assert (measured.reached, measured.trouble) == (False, "peer: peer is not installed")


def test_a_slow_peer_lends_its_latest_run() -> None:
    """Two runs in five rounds are those of rounds 1 and 4, as race.py starts them."""
    theirs = [pair[1].wall_s for pair in pairs(_runs(1, 2, 3, 4, 5), _runs(10, 20))]
    assert theirs == [10, 10, 10, 20, 20]


def test_every_row_has_its_race_and_contestants() -> None:
    """No row asks for a race or a contestant that is not there, and no race runs for nobody."""
    there = {(race.name, contestant.name) for race in races(FULL) for contestant in race.contestants}
    asked = {(row.race, name) for row in rows(FULL) for name in (row.ours, row.theirs) if name}
    assert asked == there


@on_linux
def test_a_command_is_measured_with_its_children() -> None:
    """CPU of a child that was waited for counts, and so does the memory of one that holds some."""
    work = "data = b'x' * (64 << 20)\nsum(range(4_000_000))\nimport time; time.sleep(0.5)"
    words = (sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])")
    run = measure(Command(words=words), os.environ, memory=True)
    assert run.peak_pss_bytes > 64 << 20
    assert run.cpu_s > 0.02
    assert run.wall_s > 0.5


@on_linux
def test_a_failure_tells_its_last_words() -> None:
    """A command that does not end well raises with its code and what it said, instead of counting as fast."""
    with pytest.raises(CommandFailed, match=r"^exit code 3: no such host$"):
        measure(Command(words=("sh", "-c", "echo no such host >&2; exit 3")), os.environ)
