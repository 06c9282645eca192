"""One command, timed whole: from the start of its process to its exit, with the CPU and memory of its process tree.

Owns the running command alone: nothing of it outlives `measure`, whatever interrupts it. Imports nothing of fastcopy.
Invariant: no output passes through this process and, unless memory is asked for, nothing runs here meanwhile.
Linux only (pidfd, smaps_rollup).
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Seconds between two looks at the memory. Source: issue 2.
_SAMPLE_S = 0.1
#: Seconds a command may take before it counts as hanging; sftp over a long road takes 40.
TIMEOUT_S = 300.0
#: Seconds an interrupted command gets to clean up. Source: law 12.
_GRACE_S = 3.0
#: Characters of a failed command's output that are shown.
_SHOWN = 500


class CommandFailed(Exception):
    """A measured command did not end well; what it last said is in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run, and what to feed to its stdin."""

    words: tuple[str, ...]
    stdin: str = ""

    def __str__(self) -> str:
        shown = shlex.join(self.words)
        return f"{shown} <<< {shlex.quote(self.stdin.strip())}" if self.stdin else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run took. CPU is user and system time of all its processes that were waited for."""

    wall_s: float
    cpu_s: float
    #: Sum over the process tree at its highest; 0 where it was not asked for.
    peak_pss_bytes: int = 0


def measure(command: Command, environment: Mapping[str, str], *, memory: bool = False) -> Run:
    """Run `command` to its end.

    Args:
        memory: look at its memory ten times a second; costs a few ms of a core each time.
    Raises: CommandFailed when it exits with other than 0, or not within TIMEOUT_S.
    Cancellation: an interrupt ends the command and everything in its process group.
    """
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as stdin:
        stdin.write(command.stdin.encode())
        stdin.seek(0)
        started = time.perf_counter()
        process = subprocess.Popen(
            command.words,
            stdin=stdin,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,  # Ctrl-C is for us; and no terminal to ask on
        )
        try:
            peak_pss_bytes = _await_exit(process.pid, started + TIMEOUT_S, memory=memory)
            wall_s = time.perf_counter() - started
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            _end(process)
        if process.returncode != 0:
            said.seek(max(0, os.fstat(said.fileno()).st_size - _SHOWN))
            last_words = " ".join(said.read().decode(errors="backslashreplace").split())
            raise CommandFailed(f"exit code {process.returncode}: {last_words}")
    return Run(wall_s=wall_s, cpu_s=usage.ru_utime + usage.ru_stime, peak_pss_bytes=peak_pss_bytes)


def _await_exit(pid: int, deadline: float, *, memory: bool) -> int:
    """Return the highest PSS seen until the process ended; it is left to be waited for."""
    peak_bytes = 0
    pidfd = os.pidfd_open(pid)
    try:
        exit_of = select.poll()
        exit_of.register(pidfd, select.POLLIN)
        while (left_s := deadline - time.perf_counter()) > 0:
            if exit_of.poll((min(left_s, _SAMPLE_S) if memory else left_s) * 1000):
                return peak_bytes
            if memory:
                peak_bytes = max(peak_bytes, tree_pss_bytes(pid))
    finally:
        os.close(pidfd)
    raise CommandFailed(f"no end within {TIMEOUT_S:.0f} s")


def tree_pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process and all its descendants, now. Those that just ended count 0."""
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(_pss_bytes(process.pid) for process in processes)


def _pss_bytes(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that was interrupted, first kindly; one that has ended leaves nothing to do."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
