"""What is printed arrives printable or not at all, and a stream in a bad state changes nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastcopy.cli.console import Console

ROOT = Path(__file__).resolve().parents[2]
#: Python as users start it: where output is not buffered, what is lost at exit cannot show.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {
    "PYTHONPATH": str(ROOT)
}
COPY = [sys.executable, "-m", "fastcopy", "copy"]


def test_every_line_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    """Results and complaints pass one gate: no control, bidi or undecodable character comes through raw."""
    console = Console()
    assert console.result(["a\x1b[2Jb", "c\ud800\u202ed"]) is None
    console.complain("e\nf\x9b")
    captured = capsys.readouterr()
    assert captured.out == "a\\x1b[2Jb\nc\\ud800\\u202ed\n"
    assert captured.err == "fastcopy: e\\x0af\\x9b\n"


def test_no_file_gets_a_standard_number() -> None:
    """Started with all three closed, the next file that is opened is none of fds 0 to 2, which lead nowhere."""
    code = "from fastcopy.cli.console import open_standard_streams as o; o(); import os; "
    code += "os._exit(os.open('/dev/null', 0) + 100 * sum(os.fstat(fd).st_rdev == os.stat('/dev/null').st_rdev "
    code += "for fd in (0, 1, 2)) // 3)"
    line = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(line, env=ENVIRONMENT, check=False).returncode == 103


def run_in_shell(redirection: str, tmp_path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Copy `source` to `copy` here, in a shell with `redirection`."""
    (tmp_path / "source").write_bytes(b"x" * 5000)
    line = ["sh", "-c", f'"$@" {redirection}', "sh", *COPY, *words, "source", "copy"]
    return subprocess.run(line, cwd=tmp_path, env=ENVIRONMENT | variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "redirection", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full", "| true", "2>&1 | true"]
)
def test_streams_in_a_bad_state(redirection: str, tmp_path: Path) -> None:
    """Closed, broken or full streams: the copy is right and its exit code is 0; no traceback, nothing in the file."""
    done = run_in_shell(redirection, tmp_path)
    assert (tmp_path / "copy").read_bytes() == b"x" * 5000
    assert "Traceback" not in done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("redirection", "words", "expected"),
    [
        (">&-", ("--json", "-"), 0),
        (">/dev/full", ("--json", "-"), 1),
        ("", ("--json", "/dev/full"), 1),
    ],
)
def test_a_report_that_cannot_be_written(
    redirection: str, words: tuple[str, ...], expected: int, tmp_path: Path
) -> None:
    """A full disk loses the report: exit 1 and a sentence. A stdout that was closed wanted none."""
    done = run_in_shell(redirection, tmp_path, *words)
    assert done.returncode == expected
    assert (tmp_path / "copy").read_bytes() == b"x" * 5000
    assert ("could not be written" in done.stderr) == (expected == 1)


def test_a_reader_that_went_away(tmp_path: Path) -> None:
    """A broken pipe on stdout is no failure of the copy."""
    reading, writing = os.pipe()
    os.close(reading)
    (tmp_path / "source").write_bytes(b"x")
    with os.fdopen(writing, "wb") as stdout:
        done = subprocess.run(
            [*COPY, "--json", "-", "source", "copy"],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_json_is_exact_in_any_locale(locale: str, tmp_path: Path) -> None:
    """Names in the JSON are exact whatever the locale, and what stderr cannot show is escaped."""
    done = run_in_shell("", tmp_path, "--json", "-", "nöne\x1b[2J", LC_ALL=locale, PYTHONCOERCECLOCALE="0")
    report = json.loads(done.stdout)
    assert [failure["path"] for failure in report["failures"]] == ["nöne\x1b[2J"]
    assert "\x1b" not in done.stdout + done.stderr
