"""The report: its JSON form is a promise, its exit code follows the table, its memory is bounded."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from fastcopy import errors
from fastcopy.measure import report as subject
from fastcopy.measure.report import ReportBuilder, Settings, SideCpu, exit_code_of
from fastcopy.model import CpuUsage, Direction


class Clock:
    """A clock that stands still until told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def full_report() -> dict[str, Any]:
    clock = Clock()
    builder = ReportBuilder(clock=clock)
    builder.direction = Direction.PUT
    builder.ssh = "openssh"
    builder.durable = "yes"
    builder.settings = Settings(
        parallel=4, connections=2, request_bytes=261120, queue_depth=64, cipher="aes128-gcm@openssh.com"
    )
    builder.rtt_s = 0.0001
    with builder.phase("connect"):
        clock.now_s += 0.5
    with builder.phase("copy"):
        clock.now_s += 1.5
    builder.found(3, 3 << 30)
    builder.copied(2 << 30)
    builder.skipped()
    builder.failed(b"bad\xff", errors.PermissionRefused(path=b"bad\xff", operation="open", side="remote"))
    builder.warn("going on with 3 channels")
    builder.fell_back("tls", "sftp", "no python3 there")
    builder.cpu_local = SideCpu(usage=CpuUsage(user_s=1.0, system_s=2.0), source="psutil")
    return builder.build().to_json()


def test_json_has_exactly_the_promised_keys() -> None:
    """A full report equals version 1 of the form, key by key."""
    expected = {
        "version": 1,
        "command": "copy",
        "exit_code": 4,
        "direction": "put",
        "mode": "sftp",
        "ssh": "openssh",
        "verify": "size",
        "durable": "yes",
        "settings": {
            "parallel": 4,
            "connections": 2,
            "request_bytes": 261120,
            "queue_depth": 64,
            "cipher": "aes128-gcm@openssh.com",
            "compress": False,
            "limit_bytes_per_s": None,
        },
        "files": {"total": 3, "copied": 1, "skipped": 1, "failed": 1},
        "bytes": {"total": 3 << 30, "copied": 2 << 30, "resumed": 0, "wasted": 0},
        "seconds": 2.0,
        "bytes_per_s": float(1 << 30),
        "phases_s": {"connect": 0.5, "scan": 0.0, "copy": 1.5, "verify": 0.0, "commit": 0.0},
        "rtt_s": 0.0001,
        "cpu": {
            "local": {"user_s": 1.0, "system_s": 2.0, "s_per_gib": 1.5, "source": "psutil"},
            "remote": {"user_s": None, "system_s": None, "s_per_gib": None, "source": "none"},
        },
        "retries": 0,
        "fallbacks": [{"from": "tls", "to": "sftp", "why": "no python3 there"}],
        "failures": [
            {
                "path": "bad\\xff",
                "path_b64": base64.b64encode(b"bad\xff").decode(),
                "kind": "PermissionRefused",
                "message": "bad\\xff: permission denied (open on the remote side)",
            }
        ],
        "warnings": ["going on with 3 channels", "tls could not be had, the job goes on with sftp: no python3 there"],
    }
    assert full_report() == expected
    assert list(full_report()) == list(expected)


def test_json_is_plain_and_ascii() -> None:
    """What is written can be parsed back to the same values and holds no byte outside ASCII."""
    text = json.dumps(full_report())
    assert json.loads(text) == full_report()
    assert text.isascii()


@pytest.mark.parametrize("name", ["plain", "back\\slash", "new\nline", "\x1b[2J", "\u202egnp.exe", "ünï", "\x9b31m"])
def test_a_utf8_name_stands_exactly(name: str) -> None:
    """A name that is UTF-8 comes back byte for byte from "path" and needs no path_b64."""
    builder = ReportBuilder()
    builder.failed(name.encode(), errors.SourceMissing(path=name.encode()))
    (failure,) = json.loads(json.dumps(builder.build().to_json()))["failures"]
    assert failure["path"] == name
    assert sorted(failure) == ["kind", "message", "path"]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], 0),
        ([0], 0),
        ([4], 4),
        ([4, 3], 3),
        ([3, 7, 4], 7),
        ([7, 5], 5),
        ([4, 5, 6, 7, 3], 6),
        ([2], 2),
        ([2, 4], 2),
        ([1], 1),
        ([1, 4], 1),
        ([1, 3], 3),
        ([99], 1),
    ],
)
def test_the_most_serious_exit_code_wins(codes: list[int], expected: int) -> None:
    """6, then 5, 7, 3; "some files failed, the rest are copied" only where nothing worse is known."""
    assert exit_code_of(codes) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.SourceMissing(path=b"x"), 4),
        (errors.IntegrityError("differs", path=b"x"), 5),
        (errors.UnsafeName("dots", path=b"x"), 6),
        (errors.ProtocolError("wrong id"), 7),
        (errors.ChannelLost("reset", host="h"), 3),
        (errors.FastcopyError("odd"), 4),
        (ZeroDivisionError("ours"), 4),
    ],
)
def test_any_exception_is_that_files_failure(error: Exception, expected: int) -> None:
    """Law 7: a file that fails by any exception makes exit 4, or the code of its class where that one ranks."""
    builder = ReportBuilder()
    builder.failed(b"x", error)
    report = builder.build()
    assert report.exit_code == expected
    assert [failure.kind for failure in report.failures] == [type(error).__name__]


def test_a_job_wide_error_stands_in_the_report_and_in_its_failures() -> None:
    """An error of the whole job is `error`, a failure with an empty path, and decides over single files."""
    builder = ReportBuilder()
    builder.failed(b"x", errors.SourceMissing(path=b"x"))
    first = errors.NothingMatched("no *.dmp")
    builder.aborted(first)
    report = builder.build()
    assert report.error is first
    assert report.exit_code == 2
    assert [(each.path, each.kind) for each in report.failures] == [(b"x", "SourceMissing"), (b"", "NothingMatched")]
    assert report.files.failed == 1


def test_failures_are_bounded_in_memory_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound failures are counted, weigh in the exit code, and the report says that they are not listed."""
    monkeypatch.setattr(subject, "MAX_FAILURES", 3)
    builder = ReportBuilder()
    for number in range(5):
        builder.failed(b"%d" % number, errors.SourceMissing(path=b"x"))
    builder.failed(b"5", errors.IntegrityError("differs", path=b"5"))
    report = builder.build()
    assert [failure.path for failure in report.failures] == [b"0", b"1", b"2"]
    assert report.files.failed == 6
    assert report.exit_code == 5
    assert report.warnings == ("3 further failures are counted but not listed",)


def test_warnings_are_kept_once_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning said many times stands once, and their number is bounded."""
    monkeypatch.setattr(subject, "MAX_WARNINGS", 2)
    builder = ReportBuilder()
    news = [builder.warn(text) for text in ("b", "a", "b", "c")]
    assert news == [True, True, False, False]
    assert builder.build().warnings == ("b", "a")


def test_phases_that_overlap_count_each_and_once_each() -> None:
    """A phase entered twice at the same time counts its span once; another one beside it counts in full."""
    clock = Clock()
    builder = ReportBuilder(clock=clock)
    with builder.phase("copy"):
        clock.now_s += 1
        with builder.phase("copy"), builder.phase("scan"):
            clock.now_s += 2
        clock.now_s += 4
    phases = builder.build().phases_s
    assert (phases["copy"], phases["scan"]) == (7.0, 2.0)


def test_a_phase_that_fails_or_still_runs_counts() -> None:
    """Time spent in a phase that raised, and in one that is still running, is not lost."""
    clock = Clock()
    builder = ReportBuilder(clock=clock)

    def torn() -> None:
        with builder.phase("scan"):
            clock.now_s += 3
            raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        torn()
    with builder.phase("copy"):
        clock.now_s += 2
        phases = builder.build().phases_s
    assert (phases["scan"], phases["copy"]) == (3.0, 2.0)


def test_ps_tells_no_split() -> None:
    """Where only `ps` could tell, user and system time are null and the sum still makes a cost."""
    side = SideCpu(usage=CpuUsage(user_s=3.0), source="ps")
    assert side.to_json(1 << 30) == {"user_s": None, "system_s": None, "s_per_gib": 3.0, "source": "ps"}


def test_cost_is_null_without_a_byte() -> None:
    """No byte copied: no cost per GiB, rather than a division by nothing."""
    assert SideCpu(usage=CpuUsage(user_s=1.0), source="psutil").to_json(0)["s_per_gib"] is None
