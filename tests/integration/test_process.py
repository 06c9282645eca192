"""Child processes: their end is noticed, they can be ended for certain, and their CPU time is known."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from fastcopy.connection.process import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["pidfd", "no pidfd"], autouse=True)
def noticing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With the kernel's notice, and without it as on macOS; no zombie is left either way."""
    if request.param == "no pidfd":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) - before == set()


async def test_an_exit_status_is_noticed() -> None:
    """By whoever waits, and by who asked to be called."""
    called = asyncio.Event()
    child = ChildProcess(["/bin/sh", "-c", "exit 3"], on_exit=called.set)
    assert (await child.wait(), child.exit_status, child.is_running) == (3, 3, False)
    assert called.is_set()


async def test_cpu_time_is_known_after_the_end() -> None:
    """From the kernel, at the moment of reaping."""
    child = ChildProcess(["/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
    await child.wait()
    assert child.ended_cpu.total_s > 0.0


async def test_a_process_that_ends_when_asked_is_not_killed() -> None:
    """SIGTERM comes first, and more than once is no harm."""
    child = ChildProcess(["/bin/sleep", "1000"])
    child.terminate()
    child.terminate()
    await child.end()
    assert child.exit_status == -signal.SIGTERM


async def test_a_process_that_does_not_end_when_asked_is_killed() -> None:
    """SIGKILL follows within a second."""
    with_trap = ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"]
    read_fd, write_fd = os.pipe()
    child = ChildProcess(with_trap, stdout=write_fd)
    os.close(write_fd)
    assert await asyncio.to_thread(os.read, read_fd, 6) == b"ready\n"
    os.close(read_fd)
    await child.end()
    assert child.exit_status == -signal.SIGKILL


async def test_waiting_can_be_cancelled() -> None:
    """The process goes on."""
    child = ChildProcess(["/bin/sleep", "1000"])
    waiting = asyncio.create_task(child.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert child.is_running
    await child.end()


async def test_a_cancelled_end_ends_it_all_the_same() -> None:
    """At once, before the cancellation goes on."""
    child = ChildProcess(["/bin/sleep", "1000"])
    ending = asyncio.create_task(child.end())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert not child.is_running


async def test_a_process_has_no_terminal_unless_it_may_ask() -> None:
    """A session of its own keeps Ctrl-C away and /dev/tty closed."""
    apart, together = ChildProcess(["/bin/sleep", "1000"]), ChildProcess(["/bin/sleep", "1000"], on_terminal=True)
    assert (os.getsid(apart.pid), os.getsid(together.pid)) == (apart.pid, os.getsid(0))
    assert os.getpgid(together.pid) == os.getpgrp()
    await apart.end()
    await together.end()


def kill_and_reap(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


async def test_a_status_somebody_else_took_is_told_as_lost() -> None:
    """Where our parent made us ignore SIGCHLD the kernel keeps no status; that is no reason to wait for ever."""
    child = ChildProcess(["/bin/sleep", "1000"])
    kill_and_reap(child.pid)
    assert await child.wait() == 255


async def test_a_program_that_is_not_there_is_an_error() -> None:
    """And leaves nothing."""
    with pytest.raises(FileNotFoundError):
        ChildProcess(["/no/such/program"])
