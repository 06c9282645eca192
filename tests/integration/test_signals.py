"""How the command line ends on a signal, with jobs that behave and jobs that do not (law 12)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Seconds from the first signal to the end. Source: law 12; half a second more for a busy machine.
_LIMIT_S = 2.5

_PROGRAM = """
import asyncio, subprocess, sys, time
from fastcopy.cli import signals

def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()

async def tidy():
    try:
        say("ready")
        await asyncio.sleep(60)
    finally:
        say("tidied")

async def stubborn():
    child = subprocess.Popen(["sleep", "60"])
    say(f"{child.pid}")
    say("ready")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            say("refused")

async def blocked():
    say("ready")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)

async def finished():
    say("ready")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "report"

try:
    say(str(signals.run(globals()[sys.argv[1]])))
except signals.Interrupted as interrupted:
    sys.exit(interrupted.exit_code)
"""


class Run:
    """A process that runs one of the jobs above; `ready` once it is under way."""

    def __init__(self, job: str, *, ignored: signal.Signals | None = None) -> None:
        def ignore() -> None:
            if ignored is not None:
                signal.signal(ignored, signal.SIG_IGN)

        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, job],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONASYNCIODEBUG": ""},
            preexec_fn=ignore,
            text=True,
        )
        self.said: list[str] = []
        self.wait_for("ready")

    def wait_for(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())
            if line.strip() == word:
                return
        raise AssertionError(f"{self.said}: {self.process.communicate()[1]}")

    def end(self) -> tuple[int, list[str], float]:
        """Wait for its end; return its exit code, what it said since, and how long that took in seconds."""
        began_s = time.monotonic()
        out, err = self.process.communicate(timeout=30)
        assert "Traceback" not in err
        return self.process.returncode, out.split(), time.monotonic() - began_s


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_cancels_the_job(number: signal.Signals, expected: int) -> None:
    """The job's own clean-up runs, and the exit code names the signal."""
    run = Run("tidy")
    run.process.send_signal(number)
    code, said, _ = run.end()
    assert (code, said) == (expected, ["tidied"])


@pytest.mark.parametrize("job", ["stubborn", "blocked"])
def test_a_job_that_does_not_end_is_ended(job: str) -> None:
    """A job that refuses to be cancelled, or that blocks the loop, lives 2 s at most, and what it started with it."""
    run = Run(job)
    run.process.send_signal(signal.SIGTERM)
    code, _, took_s = run.end()
    assert code == 143
    assert took_s < _LIMIT_S
    assert not [pid for pid in run.said if pid.isdigit() and psutil.pid_exists(int(pid))]


def test_a_second_interrupt_ends_at_once() -> None:
    """Whoever presses Ctrl-C twice does not want to wait for the grace."""
    run = Run("stubborn")
    run.process.send_signal(signal.SIGINT)
    run.wait_for("refused")
    run.process.send_signal(signal.SIGINT)
    code, _, took_s = run.end()
    assert code == 130
    assert took_s < 1.5
    assert not psutil.pid_exists(int(run.said[0]))


def test_nohup_is_respected() -> None:
    """A signal that was ignored when the command began stays ignored."""
    run = Run("tidy", ignored=signal.SIGHUP)
    run.process.send_signal(signal.SIGHUP)
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 143


def test_a_job_that_was_done_keeps_its_result() -> None:
    """A signal that comes too late to stop the job takes nothing from its result."""
    run = Run("finished")
    run.process.send_signal(signal.SIGTERM)
    code, said, _ = run.end()
    assert (code, said) == (0, ["report"])
