"""Signals, kills and lost connections in the middle of a copy: never half a file under its final name (case A15)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.delay_proxy import DelayProxy
from tests.support.trees import build, leftovers, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import SshdFactory
    from tests.support.route import Route
    from tests.support.sshd import Sshd

#: Seconds for a copy to get under way, generous for a busy machine.
_START_S = 30.0


@pytest.fixture
def server(sshd_with: SshdFactory) -> Sshd:
    """A server of the test's own, so that its sessions are this test's."""
    return sshd_with()


@pytest.fixture
def slow(server: Sshd, route: Route) -> Iterator[Route]:
    """A route that carries about 2 MiB/s a connection, so that a copy can be caught in the middle."""
    with DelayProxy(server.host, server.port, delay_s=0.01, inflight_bytes=40_000) as proxy:
        yield replace(route, sshd=server, config=server.config_through(proxy.port))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """More than the slow route carries in the time a test takes to look."""
    return build(tmp_path / "source", {b"big": 40 << 20, b"small": 10})


def wait_for_a_part(target: Path, larger_than_bytes: int = 100_000) -> None:
    """Wait until a part file below `target` holds some bytes."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if target.exists() and any(os.stat(part).st_blocks * 512 > larger_than_bytes for part in leftovers(target)):
            return
        time.sleep(0.01)
    raise AssertionError("no part file appeared")


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_cleanly(
    number: signal.Signals, exit_code: int, slow: Route, source: Path, server: Sshd, tmp_path: Path
) -> None:
    """B17: a signal ends the run with its code; no session, no process, no part file untold, no half file stays."""
    target = tmp_path / "copy"
    with slow.start(f"{source}/", to=target, options=("-n", 2)) as running:
        wait_for_a_part(target)
        running.process.send_signal(number)
        outcome = running.finish(timeout_s=10)
    assert outcome.exit_code == exit_code, outcome.stderr
    assert (target / "big").exists() is False
    untold = [part for part in leftovers(target) if part.rpartition(b"/")[2].decode() not in outcome.stderr]
    assert (untold, server.wait_idle()) == ([], [])


def test_a_killed_run_leaves_nothing_final_and_can_be_repeated(
    slow: Route, source: Path, server: Sshd, tmp_path: Path
) -> None:
    """A15, A08: after SIGKILL no half file stands under its name, and the same command again makes it right."""
    target = tmp_path / "copy"
    with slow.start(f"{source}/", to=target, options=("-n", 2)) as running:
        wait_for_a_part(target)
        running.process.kill()
        running.finish(killed=True)
    assert (target / "big").exists() is False
    outcome = replace(slow, config=None).copy(f"{source}/", to=target)
    assert outcome.exit_code == 0, outcome.stderr
    assert {name: node for name, node in snapshot(target).items() if b".fastcopy-" not in name} == snapshot(source)


def test_one_lost_connection_of_three_is_nobodys_trouble(slow: Route, server: Sshd, tmp_path: Path) -> None:
    """B13, R5: a session killed on the server in the middle: its work goes to the others, every byte arrives."""
    source = build(tmp_path / "source", {b"big": 6 << 20, **{b"f%d" % number: 20_000 for number in range(20)}})
    target = tmp_path / "copy"
    with slow.start(f"{source}/", to=target, options=("-n", 3, "--connections", 3)) as running:
        wait_for_a_part(target)
        wait_for_logins(server, 3)
        kill_a_session(server)
        outcome = running.finish()
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(target) == snapshot(source)


def test_the_loss_of_every_connection_is_told(slow: Route, source: Path, server: Sshd, tmp_path: Path) -> None:
    """B13: with every session killed again and again the run ends with exit 3, not a hang, and no half file."""
    target = tmp_path / "copy"
    with slow.start(f"{source}/", to=target, options=("-n", 2)) as running:
        wait_for_a_part(target)
        server.close()
        outcome = running.finish()
    assert (outcome.exit_code, (target / "big").exists()) == (3, False), outcome.stderr


def wait_for_logins(server: Sshd, count: int) -> None:
    """Wait until the server has accepted `count` logins."""
    deadline = time.monotonic() + _START_S
    while server.logins() < count:
        assert time.monotonic() < deadline, f"{server.logins()} logins, not {count}"
        time.sleep(0.01)


def kill_a_session(server: Sshd) -> None:
    """End the newest session of the server, as a crash there would."""
    newest = max(psutil.Process(server.pid).children(), key=lambda process: process.create_time())
    for process in [newest, *newest.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
