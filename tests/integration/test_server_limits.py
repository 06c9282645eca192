"""What servers limit: sessions, logins, key material. The job goes on with what is granted and says so (case D01)."""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.evil_sftp import subsystem
from tests.support.sshd import sftp_server_path
from tests.support.trees import build, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import SshdFactory
    from tests.support.route import Route


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files enough to keep eight channels busy."""
    return build(tmp_path / "source", {b"big": 48 << 20, **{b"f%d" % number: 50_000 for number in range(40)}})


@pytest.mark.parametrize("sessions", [1, 3])
def test_max_sessions(sessions: int, source: Path, sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """D01: eight channels wanted, fewer granted: all arrives over one login, and MaxSessions is named once."""
    sshd = sshd_with(MaxSessions=sessions)
    limited = replace(route, sshd=sshd)
    outcome = limited.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 8, "--connections", 1))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)
    assert sshd.logins() == 1
    assert outcome.said.count("MaxSessions") == 1
    assert any("MaxSessions" in warning for warning in outcome.report["warnings"])


def test_max_sessions_with_free_choice(source: Path, sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """D01: where the number of logins is ours to choose, a refusal costs no login beyond one per channel."""
    sshd = sshd_with(MaxSessions=1)
    outcome = replace(route, sshd=sshd).copy(f"{source}/", to=tmp_path / "copy", options=("-n", 4))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)
    assert 1 <= sshd.logins() <= 4


def test_max_startups(source: Path, sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """MaxStartups 2 while six logins are wanted: all arrives, whether or not a login was dropped."""
    sshd = sshd_with(MaxStartups="2")
    outcome = replace(route, sshd=sshd).copy(f"{source}/", to=tmp_path / "copy", options=("-n", 6, "--connections", 6))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)
    assert 1 <= sshd.logins() <= 6


@pytest.mark.parametrize("limit", ["1M", "1M 1s"])
def test_rekeying(limit: str, sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """B04: keys renewed every MiB in the middle of four busy connections change no byte and stop nothing."""
    source = build(tmp_path / "source", {b"a": 12 << 20, b"b": 4 << 20})
    rekeying = replace(route, sshd=sshd_with(RekeyLimit=limit))
    outcome = rekeying.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 8, "--connections", 4))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)


def test_a_server_without_a_shell(source: Path, sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """Forced internal-sftp gives no command: the copy is right all the same."""
    sshd = sshd_with(Subsystem="sftp internal-sftp", ForceCommand="internal-sftp")
    outcome = replace(route, sshd=sshd).copy(f"{source}/", to=tmp_path / "copy")
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)


def test_a_server_that_tells_nothing_of_its_cpu(
    source: Path, sshd_with: SshdFactory, route: Route, tmp_path: Path
) -> None:
    """Neither a command nor /proc: the copy is right, and the remote CPU figures are null, not 0."""
    _, command = subsystem("no-proc").split(" ", 1)
    sshd = sshd_with(Subsystem=subsystem("no-proc"), ForceCommand=command)
    outcome = replace(route, sshd=sshd).copy(f"{source}/", to=tmp_path / "copy")
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)
    assert outcome.report["cpu"]["remote"] == {"user_s": None, "system_s": None, "s_per_gib": None, "source": "none"}


def test_a_server_with_few_open_files(sshd_with: SshdFactory, each_direction: Route, tmp_path: Path) -> None:
    """D03: a server process that may open 24 descriptors serves 500 small files and a large one."""
    sshd = sshd_with(Subsystem=f"sftp ulimit -n 24; exec {sftp_server_path()}")
    source = build(tmp_path / "source", {b"big": 3 << 20, **{b"f%d" % number: 100 for number in range(500)}})
    outcome = replace(each_direction, sshd=sshd).copy(f"{source}/", to=tmp_path / "copy", options=("-n", 4))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)


def test_few_open_files_here(source: Path, each_direction: Route, tmp_path: Path) -> None:
    """D03: the command itself may open 96 descriptors: all arrives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (96, hard))
    try:
        outcome = each_direction.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 4, "--connections", 2))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)
