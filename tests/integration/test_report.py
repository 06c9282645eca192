"""What a run tells: the JSON report, the last line, silence where it was asked for, and no bar without a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.command import Environment, copy, fastcopy, fastcopy_command
from tests.support.route import remote
from tests.support.trees import build, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.route import Route
    from tests.support.sshd import Sshd

#: The report, version 1 (design section 4): every key, and the types its value may have.
NUMBER = (int, float)
SHAPE: dict[str, Any] = {
    "version": int,
    "command": str,
    "exit_code": int,
    "direction": str,
    "mode": str,
    "ssh": str,
    "verify": str,
    "durable": str,
    "settings": {
        "parallel": int,
        "connections": int,
        "request_bytes": int,
        "queue_depth": int,
        "cipher": (str, type(None)),
        "compress": bool,
        "limit_bytes_per_s": type(None),
    },
    "files": {"total": int, "copied": int, "skipped": int, "failed": int},
    "bytes": {"total": int, "copied": int, "resumed": int, "wasted": int},
    "seconds": NUMBER,
    "bytes_per_s": NUMBER,
    "phases_s": {"connect": NUMBER, "scan": NUMBER, "copy": NUMBER, "verify": NUMBER, "commit": NUMBER},
    "rtt_s": NUMBER,
    "cpu": {
        "local": {"user_s": NUMBER, "system_s": NUMBER, "s_per_gib": NUMBER, "source": str},
        "remote": {"user_s": NUMBER, "system_s": NUMBER, "s_per_gib": NUMBER, "source": str},
    },
    "retries": int,
    "fallbacks": list,
    "failures": list,
    "warnings": list,
}


def differences(value: Any, shape: Any, where: str = "report") -> list[str]:
    """Return what of `value` is not as `shape` says: keys missing or beyond, wrong types."""
    if not isinstance(shape, dict):
        return [] if isinstance(value, shape) else [f"{where}: {value!r}"]
    if not isinstance(value, dict):
        return [f"{where}: {value!r}"]
    found = [f"{where}.{key}: missing or unknown" for key in value.keys() ^ shape.keys()]
    for key in value.keys() & shape.keys():
        found += differences(value[key], shape[key], f"{where}.{key}")
    return found


def test_the_report_has_its_shape(route: Route, tmp_path: Path) -> None:
    """Every key of the report is there with its type, and none beyond."""
    source = build(tmp_path / "source", {b"a": 3 << 20, b"b": 10, b"empty": 0})
    outcome = route.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 2, "--connections", 2))
    assert outcome.exit_code == 0, outcome.stderr
    assert differences(outcome.report, SHAPE) == []


def test_the_report_tells_what_happened(route: Route, tmp_path: Path) -> None:
    """Counts, bytes, direction, way and settings are those of this run."""
    source = build(tmp_path / "source", {b"a": 40 << 20, b"b": 10, b"empty": 0})
    options = ("-n", 2, "--connections", 1, "-B", 32768, "-R", 16)
    report = route.copy(f"{source}/", to=tmp_path / "copy", options=options).report
    told = {key: report[key] for key in ("version", "command", "exit_code", "direction", "mode", "ssh", "failures")}
    assert told == {
        "version": 1,
        "command": "copy",
        "exit_code": 0,
        "direction": route.direction,
        "mode": "sftp",
        "ssh": route.way,
        "failures": [],
    }
    settings = report["settings"]
    chosen = (settings["parallel"], settings["connections"], settings["request_bytes"], settings["queue_depth"])
    assert chosen == (2, 1, 32768, 16)
    assert report["files"] == {"total": 3, "copied": 3, "skipped": 0, "failed": 0}
    assert report["bytes"] == {"total": (40 << 20) + 10, "copied": (40 << 20) + 10, "resumed": 0, "wasted": 0}
    assert report["seconds"] >= report["phases_s"]["copy"] > 0
    assert report["rtt_s"] > 0


def test_both_sides_cost_something(route: Route, tmp_path: Path) -> None:
    """CPU seconds of both sides are there, above 0 for 64 MiB, and no more than two cores could spend in the time."""
    source = build(tmp_path / "source", {b"a": 64 << 20})
    began = os.times()
    outcome = route.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 2))
    ended = os.times()
    assert outcome.exit_code == 0, outcome.stderr
    local, remote_cpu = outcome.report["cpu"]["local"], outcome.report["cpu"]["remote"]
    waited = ended.children_user + ended.children_system - began.children_user - began.children_system
    assert 0 < local["user_s"] + local["system_s"] <= waited + 0.05  # what the kernel says of our dead children
    assert 0 < remote_cpu["user_s"] + remote_cpu["system_s"] <= (os.cpu_count() or 1) * outcome.report["seconds"]
    assert local["s_per_gib"] == pytest.approx((local["user_s"] + local["system_s"]) * 16, rel=0.01, abs=0.01)
    assert (local["source"], remote_cpu["source"]) == ("psutil", "procfs")


def test_remote_cpu_counts_this_job_only(sshd: Sshd, tmp_path: Path) -> None:
    """A session that burns CPU beside the job is not in the job's figures."""
    source = build(tmp_path / "source", {b"a": 1000})
    burn = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done"
    ssh = ["ssh", "-F", str(sshd.client_config), "t", burn]
    with subprocess.Popen(ssh, stdin=subprocess.DEVNULL) as burning:
        outcome = copy(source / "a", remote(tmp_path / "copy"), config=sshd.client_config)
        still_burning = burning.poll() is None
        burning.terminate()
    cpu = outcome.report["cpu"]["remote"]
    assert still_burning
    assert cpu["user_s"] + cpu["system_s"] < 0.5


def test_json_into_a_file(sshd: Sshd, tmp_path: Path) -> None:
    """--json FILE writes the report there and leaves stdout empty."""
    (tmp_path / "source").write_bytes(b"x")
    words = ("--json", tmp_path / "report.json", "-F", sshd.client_config, tmp_path / "source")
    outcome = fastcopy("copy", *words, remote(tmp_path / "copy"))
    assert (outcome.exit_code, outcome.stdout) == (0, "")
    assert differences(json.loads((tmp_path / "report.json").read_text()), SHAPE) == []


def test_a_failed_login_still_gives_a_report(sshd: Sshd, tmp_path: Path) -> None:
    """A run that ends before it copies writes its report too: exit code and failure are in it."""
    (tmp_path / "source").write_bytes(b"x")
    config = sshd.write_client_config(tmp_path / "config", Port=1)
    outcome = copy(tmp_path / "source", "t:x", config=config)
    assert (outcome.exit_code, outcome.report["exit_code"]) == (3, 3), outcome.stderr
    assert [failure["kind"] for failure in outcome.report["failures"]] == ["ConnectionRefused"]


def test_one_last_line(sshd: Sshd, tmp_path: Path) -> None:
    """D21, E10: without a terminal stderr has one line with files, rate and CPU, and no bar."""
    source = build(tmp_path / "source", {b"a": 1000, b"b": 1000})
    outcome = fastcopy("copy", "-F", sshd.client_config, f"{source}/", remote(tmp_path / "copy"))
    said = (outcome.stdout + outcome.stderr).strip().splitlines()
    assert (outcome.exit_code, "\r" in outcome.stderr) == (0, False)
    assert 1 <= len(said) <= 3, outcome.stderr
    assert re.search(r"2 files", outcome.said)
    assert re.search(r"(MiB|KiB|B)/s", outcome.said)


def test_quiet_is_silent(each_direction: Route, tmp_path: Path) -> None:
    """-q prints nothing at all when all went well."""
    source = build(tmp_path / "source", {b"a": 1000})
    words = each_direction.arguments((source / "a",), tmp_path / "copy", ("-q",))
    outcome = fastcopy("copy", *words)
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, "", "")


def test_quiet_tells_failures(each_direction: Route, tmp_path: Path) -> None:
    """-q still tells what failed."""
    source = build(tmp_path / "source", {b"a": 1000})
    outcome = fastcopy("copy", *each_direction.arguments((source / "a", source / "none"), tmp_path / "copy", ("-q",)))
    assert (outcome.exit_code, "none" in outcome.stderr) == (4, True)


def test_verbose_says_more(each_direction: Route, tmp_path: Path) -> None:
    """-v tells what was chosen."""
    source = build(tmp_path / "source", {b"a": 1000})
    plain = fastcopy("copy", *each_direction.arguments((source / "a",), tmp_path / "copy"))
    verbose = fastcopy("copy", *each_direction.arguments((source / "a",), tmp_path / "copy2", ("-v",)))
    assert (plain.exit_code, verbose.exit_code) == (0, 0)
    assert len(verbose.stderr) > len(plain.stderr)


def test_closed_standard_streams(sshd: Sshd, tmp_path: Path) -> None:
    """D21: with stdin, stdout and stderr closed the copy is right and no file is hit by a message."""
    source = build(tmp_path / "source", {b"a": 100_000})
    environment = Environment()
    closed = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *fastcopy_command(), "copy"]
    words = ["-F", str(sshd.client_config), f"{source}/", os.fsdecode(remote(tmp_path / "copy"))]
    try:
        done = subprocess.run([*closed, *words], env=environment.variables, check=False, timeout=60)
        orphans = environment.orphans()
    finally:
        environment.remove()
    assert (done.returncode, snapshot(tmp_path / "copy"), orphans) == (0, snapshot(source), [])


@pytest.mark.parametrize("columns", [0, 20, 80])
def test_a_bar_on_a_terminal(columns: int, sshd: Sshd, tmp_path: Path) -> None:
    """D21: on a terminal a bar runs, on one of width 0 none does; the copy is right, the cursor ends on a new line."""
    source = build(tmp_path / "source", {b"a": 8 << 20})
    environment = Environment({"TERM": "xterm"})
    words = ["copy", "-F", str(sshd.client_config), f"{source}/", os.fsdecode(remote(tmp_path / "copy"))]
    ours, theirs = pty.openpty()
    set_columns(theirs, columns)
    try:
        with subprocess.Popen(
            [*fastcopy_command(), *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment.variables,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            said = everything(ours)
            process.wait(timeout=60)
        orphans = environment.orphans()
    finally:
        os.close(ours)
        environment.remove()
    assert (process.returncode, snapshot(tmp_path / "copy"), orphans) == (0, snapshot(source), []), said
    drawn = b"\r" in said.replace(b"\r\n", b"\n")
    assert (drawn, said.endswith(b"\n"), b"Traceback" in said) == (columns > 0, True, False), said


def set_columns(terminal_fd: int, columns: int) -> None:
    fcntl.ioctl(terminal_fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0))


def everything(terminal_fd: int) -> bytes:
    """Read a terminal until nobody holds its other end, for at most a minute."""
    said = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([terminal_fd], [], [], 1)[0]:
            continue
        try:
            said += os.read(terminal_fd, 1 << 16)
        except OSError:  # Linux: the other end was closed
            break
    return said


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_any_locale(locale: str, sshd: Sshd, tmp_path: Path) -> None:
    """D21: names that the locale cannot print are copied, and told without a crash."""
    source = build(tmp_path / "source", {"größe".encode(): 10})
    words = (f"{source}/größe", f"{source}/nöne", remote(f"{tmp_path}/copy/"))
    outcome = copy(*words, config=sshd.client_config, variables={"LC_ALL": locale})
    assert (outcome.exit_code, snapshot(tmp_path / "copy")) == (4, snapshot(source)), outcome.stderr
