"""A race: several contestants make the same trip in turn, round after round (A B C, A B C), so all share the weather.

A first pass is not counted: it warms everyone up, compares what arrived byte for byte, and picks each contestant's
best setting where it has several. Invariant: before every run the destination is empty and the server idle, and a run
whose files did not all arrive whole does not count: its contestant is out, with the reason.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.perf.ground import difference, shortfall
from tests.perf.measure import Command, CommandFailed, Run, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.perf.dataset import DataSet
    from tests.perf.ground import Ground
    from tests.perf.peers import Build

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to start a contestant, and what the table calls it."""

    label: str
    build: Build


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A program with the settings it may choose its best from."""

    name: str
    settings: tuple[Setting, ...]
    #: What must be on PATH; fastcopy itself is always there.
    program: str | None = None
    #: Runs in fewer rounds than the others, evenly spread, where it is very slow and hardly varies.
    rounds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Who races over which road, with what. Without `data` nothing is copied: the command's own time counts."""

    name: str
    contestants: tuple[Contestant, ...]
    data: DataSet | None = None
    direction: str = "put"
    rtt_s: float = 0.0
    #: Look at the memory while it runs.
    memory: bool = False
    #: Whether to begin with the pass that is not counted; without it each contestant's first setting is taken.
    first_pass: bool = True
    #: Rounds, if fewer than everywhere else, where a figure hardly varies.
    rounds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one contestant did in one race. Without runs, `trouble` says why."""

    setting: str = ""
    command: Command | None = None
    runs: tuple[Run, ...] = ()
    trouble: str = ""


class RaceCourse:
    """Runs races on one ground. `tell` gets a line about every run."""

    def __init__(self, ground: Ground, rounds: int, tell: Callable[[str], None]) -> None:
        self._ground = ground
        self._rounds = rounds
        self._tell = tell

    def run(self, race: Race, names: Collection[str]) -> dict[str, Result]:
        """Let those contestants of `race` run that are in `names`; return what each did."""
        rounds = min(race.rounds or self._rounds, self._rounds)
        runners = [_Runner(contestant) for contestant in race.contestants if contestant.name in names]
        if race.first_pass:
            for runner in runners:
                self._choose(runner, race)
        for number in range(rounds):
            for runner in runners:
                if runner.takes_part(number, rounds):
                    self._count(runner, race)
        return {runner.contestant.name: runner.result() for runner in runners}

    def _choose(self, runner: _Runner, race: Race) -> None:
        """Try every setting once, and keep the fastest."""
        walls_s: list[float] = []
        try:
            for setting in runner.contestant.settings:
                runner.setting = setting
                walls_s.append(self._run(runner, race, "first pass").wall_s)
        except CommandFailed as failure:
            runner.trouble = str(failure)
            return
        runner.setting = runner.contestant.settings[walls_s.index(min(walls_s))]

    def _count(self, runner: _Runner, race: Race) -> None:
        try:
            runner.runs.append(self._run(runner, race, f"run {len(runner.runs) + 1}"))
        except CommandFailed as failure:
            runner.trouble = str(failure)

    def _run(self, runner: _Runner, race: Race, which: str) -> Run:
        """Make one trip. Raises: CommandFailed also when something did not arrive."""
        program = runner.contestant.program
        if program is not None and shutil.which(program) is None:
            raise CommandFailed(f"{program} is not installed")
        trip = self._ground.trip(race.direction, race.data, race.rtt_s)
        runner.command = runner.setting.build(trip)
        run = measure(runner.command, self._ground.environment, memory=race.memory)
        wrong = shortfall(trip) if runner.compared else difference(trip)
        runner.compared = True
        if wrong:
            raise CommandFailed(f"exit code 0, but {wrong}")
        rate = f"{race.data.total_bytes / _MIB / run.wall_s:6.0f} MiB/s" if race.data else ""
        label = f"{runner.contestant.name} {runner.setting.label}"
        self._tell(f"{race.name:10} {label:36} {which:10} {run.wall_s:7.2f} s {rate}")
        return run


@dataclass(slots=True)
class _Runner:
    """One contestant while the race is on."""

    contestant: Contestant
    setting: Setting = field(init=False)
    runs: list[Run] = field(default_factory=list)
    command: Command | None = None
    compared: bool = False
    trouble: str = ""

    def __post_init__(self) -> None:
        self.setting = self.contestant.settings[0]

    def takes_part(self, number: int, rounds: int) -> bool:
        """Tell whether it runs in this round; `pairs` in row.py counts on this spread."""
        own = min(self.contestant.rounds or rounds, rounds)
        return not self.trouble and (number == 0 or number * own // rounds != (number - 1) * own // rounds)

    def result(self) -> Result:
        if self.trouble:
            return Result(trouble=self.trouble)
        return Result(setting=self.setting.label, command=self.command, runs=tuple(self.runs))
