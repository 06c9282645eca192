"""`make bench`: fastcopy side by side with the installed peers, on this machine, now.

    python -m tests.perf.bench [--rounds N] [--quick] [--only REGEX]

Prints the table of goals with what was measured and writes every run to build/bench.json. Exit code 0: everything
was measured, reached or not; 1: some figure could not be measured. Needs Linux, sshd, and about 10 GiB of memory.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.perf import machine, table
from tests.perf.ground import Ground
from tests.perf.race import RaceCourse
from tests.perf.rows import FULL, QUICK, races, rows
from tests.support.sshd import sshd_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from tests.perf.race import Result
    from tests.perf.row import Row
    from tests.perf.rows import Sizes

_JSON = Path(__file__).parents[2] / "build" / "bench.json"
_MEMORY_DISK = Path("/dev/shm")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(words: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for, and return the exit code."""
    options = _options(words)
    sizes = QUICK if options.quick else FULL
    chosen = [row for row in rows(sizes) if re.search(options.only, row.figure)]
    needed_bytes = _needed_bytes(sizes)
    if not chosen:
        return _refuse(f"no row matches {options.only!r}")
    if sshd_path() is None:
        return _refuse("no sshd is installed; as root on Debian `make bench` installs it")
    if machine.room_bytes(options.directory) < needed_bytes:
        return _refuse(
            f"{options.directory} needs {needed_bytes >> 20} MiB of free memory; see --quick and --directory"
        )
    for number in _SIGNALS:
        signal.signal(number, _leave)
    facts = machine.facts() | {"load before": f"{machine.load():.1f}"}
    rounds = options.rounds or (2 if options.quick else 5)
    started = time.monotonic()
    with Ground(options.directory) as ground:
        _tell("touching memory")
        ground.touch_memory(needed_bytes)
        results = _run_races(RaceCourse(ground, rounds, _tell), sizes, chosen)
    lines = [(row, row.measured(results[row.race])) for row in chosen]
    took_s = time.monotonic() - started
    _say(" · ".join(f"{name} {fact}" for name, fact in facts.items()))
    _say(f"{rounds} rounds{', quick: sizes too small to judge by' if options.quick else ''}, {took_s:.0f} s\n")
    _say(table.markdown(lines))
    report = {"machine": facts, "rounds": rounds, "quick": options.quick, "rows": table.as_json(lines)}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return 1 if any(measured.trouble and not row.informative for row, measured in lines) else 0


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.bench", description="fastcopy beside its peers")
    parser.add_argument("--rounds", type=int, help="runs of each contestant; default 5, with --quick 2")
    parser.add_argument("--quick", action="store_true", help="small files and 2 rounds: does it all run?")
    parser.add_argument("--only", default="", metavar="REGEX", help="only rows whose figure matches")
    parser.add_argument("--directory", type=Path, default=_MEMORY_DISK, help="in memory; default %(default)s")
    parser.add_argument("--json", type=Path, default=_JSON, metavar="FILE", help="default build/bench.json")
    return parser.parse_args(words)


def _needed_bytes(sizes: Sizes) -> int:
    """Return the room for the largest data set and its copy, fastcopy's part file being the copy."""
    sets = (sizes.file, sizes.dumps, sizes.far_file, sizes.small_files, sizes.memory_file)
    return 2 * max(data.total_bytes for data in sets) + (256 << 20)


def _run_races(course: RaceCourse, sizes: Sizes, chosen: Sequence[Row]) -> dict[str, dict[str, Result]]:
    """Run the races that the chosen rows are about, with nobody in them that no row asks for."""
    results: dict[str, dict[str, Result]] = {}
    for race in races(sizes):
        names = {name for row in chosen if row.race == race.name for name in (row.ours, row.theirs) if name}
        if names:
            results[race.name] = course.run(race, names)
    return results


def _leave(number: int, frame: FrameType | None) -> None:
    """Turn a signal into an exit that cleans up, which an impatient second one must not interrupt."""
    for ignored in _SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    sys.exit(128 + number)


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"bench: {sentence}\n")
    return 2


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
