"""What the user reads at the end: one line, the failures, or the whole report as a table."""

from __future__ import annotations

import dataclasses

import pytest

from fastcopy import errors
from fastcopy.cli import summary
from fastcopy.cli.console import Console
from fastcopy.measure.report import (
    ByteCounts,
    Failure,
    Fallback,
    FileCounts,
    Report,
    ReportBuilder,
    Settings,
    SideCpu,
)
from fastcopy.model import CpuUsage, Direction

BASE = dataclasses.replace(
    ReportBuilder().build(),
    direction=Direction.PUT,
    ssh="openssh",
    seconds=2.0,
    files=FileCounts(total=10, copied=10),
    bytes=ByteCounts(total=1 << 30, copied=1 << 30),
    cpu_local=SideCpu(usage=CpuUsage(user_s=1.0, system_s=0.25), source="psutil"),
    cpu_remote=SideCpu(usage=CpuUsage(user_s=1.5, system_s=0.5), source="procfs"),
)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (BASE, "Copied 10 files, 1.0 GiB in 2.00 s (512 MiB/s), CPU s/GiB 1.25 here and 2.00 there."),
        (
            dataclasses.replace(BASE, cpu_remote=SideCpu()),
            "Copied 10 files, 1.0 GiB in 2.00 s (512 MiB/s), CPU s/GiB 1.25 here.",
        ),
        (
            dataclasses.replace(BASE, files=FileCounts(total=4, copied=1, skipped=2, failed=1)),
            "Copied 1 file, 1.0 GiB in 2.00 s (512 MiB/s), CPU s/GiB 1.25 here and 2.00 there; 2 skipped, 1 failed.",
        ),
        (
            dataclasses.replace(BASE, bytes=ByteCounts(total=10, copied=10)),
            "Copied 10 files, 10 B in 2.00 s (5 B/s).",
        ),
        (
            dataclasses.replace(BASE, bytes=ByteCounts(), files=FileCounts(total=1, copied=1)),
            "Copied 1 file, 0 B in 2.00 s.",
        ),
        (
            dataclasses.replace(BASE, bytes=ByteCounts(), files=FileCounts(total=3, skipped=3)),
            "Nothing to copy in 2.00 s; 3 skipped.",
        ),
        (
            dataclasses.replace(BASE, bytes=ByteCounts(), files=FileCounts(total=3, failed=3)),
            "Nothing copied in 2.00 s; 3 failed.",
        ),
    ],
)
def test_the_last_line(report: Report, expected: str) -> None:
    """One sentence: what was copied, how fast, at what cost, and what was not."""
    assert summary.last_line(report) == expected


def failure(path: bytes, message: str) -> Failure:
    return Failure(path=path, kind="SourceMissing", message=message, exit_code=4)


def test_failures_are_listed_with_kind_and_path() -> None:
    """One line each: its kind, its path even where the message lacks it; a job-wide one is its sentence alone."""
    failures = [failure(b"a", "a: no such file"), failure(b"b", "boom"), failure(b"", "Could not reach h: gone")]
    assert summary.failure_lines(failures) == [
        "SourceMissing: a: no such file",
        "SourceMissing: b: boom",
        "Could not reach h: gone",
    ]


def test_many_failures_are_cut_and_counted() -> None:
    """The screen gets the first ones and how many more there are; without a limit all of them."""
    failures = [failure(b"%d" % number, f"{number}: no such file") for number in range(5)]
    assert summary.failure_lines(failures, limit=3)[3:] == ["... and 2 more; --json FILE lists them all"]
    assert len(summary.failure_lines(failures, limit=None)) == 5


@pytest.mark.parametrize(
    "name",
    [b"\x1b[2J", b"\x9b31m", b"\xc2\x9b31m", b"new\nline", b"\x07\x08\r", "\u202egnp.exe".encode(), b"\xff", b"\x7f"],
)
def test_no_name_reaches_the_terminal_raw(name: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """R33: a failure over any name prints as one line without control, bidi or undecodable characters."""
    builder = ReportBuilder()
    builder.failed(name, errors.RemoteError("the server said \x1b]0;x\x07", path=name, operation="open"))
    builder.failed(name, OSError(5, "odd", name))
    Console().tell(summary.failure_lines(builder.build().failures))
    lines = capsys.readouterr().err.split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_the_table_tells_everything() -> None:
    """-v prints direction, counts, times, settings and CPU of both sides, aligned."""
    report = dataclasses.replace(
        BASE,
        rtt_s=0.0123,
        phases_s={"connect": 0.25, "scan": 0.0, "copy": 1.5},
        settings=Settings(parallel=4, connections=1, request_bytes=261120, queue_depth=64, cipher="aes128-gcm"),
        retries=2,
        bytes=ByteCounts(total=1 << 30, copied=1 << 30, wasted=1 << 20),
        fallbacks=(Fallback(asked="tls", used="sftp", why="no python3"),),
        warnings=("going on with 3 channels",),
        cpu_remote=SideCpu(usage=CpuUsage(user_s=2.0), source="ps"),
    )
    assert summary.table(report) == [
        "copied     put, sftp by openssh; verified by size; durable: unknown",
        "files      10 found, 10 copied, 0 skipped, 0 failed",
        "bytes      1.0 GiB copied of 1.0 GiB, 1.0 MiB wasted",
        "time       2.00 s (connect 0.25 s, copy 1.50 s), 512 MiB/s, round trip 12.3 ms",
        "settings   4 channels over 1 connection, requests of 261120 bytes, 64 in flight on each, aes128-gcm, "
        "not compressed",
        "CPU here   1.25 s (user 1.00 s, system 0.25 s), 1.25 s/GiB, by psutil",
        "CPU there  2.00 s, 2.00 s/GiB, by ps",
        "retries    2",
        "fallback   tls to sftp: no python3",
        "warning    going on with 3 channels",
    ]


def test_what_is_not_known_is_called_so() -> None:
    """A side without a figure says so, never 0."""
    assert "CPU there  not known" in summary.table(dataclasses.replace(BASE, cpu_remote=SideCpu()))
