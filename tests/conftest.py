"""What every test shares: real servers, and the law that a skip nobody expected fails the run.

Owns the fixtures `sshd` (one plain OpenSSH server for the whole run), `sshd_with` (further ones with other settings)
and `keys`. Imports nothing of fastcopy, so that a broken product breaks its tests, not the collection.
Invariant: every skip's reason is in EXPECTED_SKIPS, else the run ends with failure.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.support.sshd import Keys, Sshd, sshd_path

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Tasks and callbacks that misbehave are told of.
os.environ.setdefault("PYTHONASYNCIODEBUG", "1")

NO_SSHD = "no OpenSSH sshd is installed here; as root on Debian `make test` installs it"
NOT_LINUX = "needs Linux"

#: Why a test may be skipped. Anything else is a test that silently stopped testing.
EXPECTED_SKIPS = frozenset({NO_SSHD, NOT_LINUX})

_unexpected_skips: list[str] = []


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if reason not in EXPECTED_SKIPS:
        _unexpected_skips.append(f"{report.nodeid}: {reason}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note_skip(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _unexpected_skips and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unexpected_skips:
        terminalreporter.section("skips nobody expects (tests/conftest.py): the run failed", red=True)
        for line in _unexpected_skips:
            terminalreporter.line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"sshd", "sshd_with"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("sshd")


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """The host key and the client key of all servers of this run."""
    if sshd_path() is None:
        pytest.skip(NO_SSHD)
    return Keys.generate(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def sshd(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A plain sshd with sftp-server, shared: tests must not depend on its log or sessions."""
    with Sshd(tmp_path_factory.mktemp("sshd"), keys) as server:
        yield server


class SshdFactory(Protocol):
    """Starts an sshd with these sshd_config keywords (None leaves one out); it ends with the test."""

    def __call__(self, *, obey_modes: bool = False, **options: object) -> Sshd: ...


@pytest.fixture
def sshd_with(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshdFactory]:
    """Start servers with settings of the test's own."""
    started: list[Sshd] = []

    def start(*, obey_modes: bool = False, **options: object) -> Sshd:
        server = Sshd(tmp_path_factory.mktemp("sshd"), keys, options, obey_modes=obey_modes)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()
