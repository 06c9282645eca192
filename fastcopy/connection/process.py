"""One child process: started cheaply, waited for by the event loop, ended for certain, its CPU time known.

Owns the process from fork to wait4. Lives on the event loop's thread: no method may be called from another one.
Must not know about ssh. Invariant: a process is reaped exactly once, here, and never signalled after that, so that no
signal can reach a stranger who was given the same number.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from fastcopy.model import CpuUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Seconds between SIGTERM and SIGKILL, and between SIGKILL and giving up. Source: law 12 (all gone within 2 s).
GRACE_S = 0.9
#: Seconds. How often to look where the kernel cannot tell us (macOS, Linux before 5.3).
_LOOK_S = 0.02
#: What a process counts as when somebody else reaped it (SIGCHLD ignored by our own parent): the status is lost.
_LOST_STATUS = 255


class ChildProcess:
    """A running or ended child; `exit_status` is None while it runs, negative when a signal ended it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int | None = subprocess.DEVNULL,
        on_terminal: bool = False,
        environ: Mapping[str, str] | None = None,
        on_exit: Callable[[], None] | None = None,
    ) -> None:
        """Start `argv`; needs a running event loop.

        Args:
            stdin, stdout, stderr: descriptors to hand over (the caller closes his own copies); None for our own stderr.
            on_terminal: stay in our session and process group and so may ask on the terminal; else the child has
                no terminal and never sees its Ctrl-C.
            on_exit: called once, in the loop, after the process was reaped.
        Raises: OSError when it cannot be started.
        """
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._ended = asyncio.Event()
        self._kill_timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._pidfd: int | None = None
        self.name = argv[0]
        self.exit_status: int | None = None
        self.ended_cpu = CpuUsage()
        self._process = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=stderr, env=environ, start_new_session=not on_terminal
        )
        self.pid = self._process.pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._look()
        else:
            self._loop.add_reader(self._pidfd, self._reap)

    def __repr__(self) -> str:
        state = "running" if self.exit_status is None else f"exit status {self.exit_status}"
        return f"<ChildProcess {self.name} {self.pid}: {state}>"

    @property
    def is_running(self) -> bool:
        return self.exit_status is None

    async def wait(self) -> int:
        """Wait until the process has ended; return its exit status. Cancellation: the process goes on."""
        await self._ended.wait()
        assert self.exit_status is not None
        return self.exit_status

    def terminate(self) -> None:
        """Ask the process to end; it is killed if it has not within GRACE_S. Returns at once. Idempotent."""
        if self.exit_status is None and self._kill_timer is None:
            self._signal(signal.SIGTERM)
            self._kill_timer = self._loop.call_later(GRACE_S, self._signal, signal.SIGKILL)

    async def end(self) -> None:
        """End the process and wait until it is gone. Cancellation: it is ended all the same, at once."""
        self.terminate()
        try:
            async with asyncio.timeout(2 * GRACE_S):
                await self._ended.wait()
        except TimeoutError:
            pass  # not even SIGKILL: the kernel holds it; nothing more can be done
        except asyncio.CancelledError:
            self.end_now()
            raise

    def end_now(self) -> None:
        """End the process without the event loop, in some milliseconds; SIGTERM first: ssh restores the terminal."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            self._signal(signal_number)
            deadline = time.monotonic() + GRACE_S / 3
            while self._reap() is False and time.monotonic() < deadline:
                time.sleep(0.001)

    def _signal(self, signal_number: int) -> None:
        if self.exit_status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal_number)

    def _look(self) -> None:
        if not self._reap():
            self._look_timer = self._loop.call_later(_LOOK_S, self._look)

    def _reap(self) -> bool:
        """Take the exit status if there is one; return whether the process has ended."""
        if self.exit_status is not None:
            return True
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            self.exit_status = _LOST_STATUS
        else:
            if pid == 0:
                return False
            self.exit_status = os.waitstatus_to_exitcode(status)
            self.ended_cpu = CpuUsage(user_s=usage.ru_utime, system_s=usage.ru_stime)
        self._process.returncode = self.exit_status  # else Popen would wait for it as well
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        for timer in (self._kill_timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        self._ended.set()
        if self._on_exit is not None:
            self._on_exit()
        return True
