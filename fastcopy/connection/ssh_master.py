"""The ssh process that holds a login of ours: it logs in, then listens on a socket for mux clients.

Owns that process, its log and what it prints. Must not know whom it logs in to.
Invariant: after `end` or `end_now` the process is gone and nothing of it is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from fastcopy.connection.pipes import Collector, PipeEnds
from fastcopy.connection.process import ChildProcess
from fastcopy.connection.ssh_log import SshLog
from fastcopy.model import CpuUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Bytes kept of what ssh, or a jump host's ssh, prints on stderr.
_STDERR_BYTES = 8 << 10
#: Keeps the terminal's Ctrl-C and hang-up from ssh: the job ends it in order. ssh leaves ignored signals ignored.
_DEAF_TO_TERMINAL = ("/bin/sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh")


class SshMaster:
    """One ssh master, from its start to its end."""

    def __init__(self, *, socket: str, log: str, on_log: Callable[[str], None] | None = None) -> None:
        """Prepare the log; `start` or `start_on_terminal` comes next.

        Args:
            socket: where it will listen.
            log: the path for its `-E`.
            on_log: told what it logs, until `stop_conversation`.
        """
        self._socket = socket
        self._news = asyncio.Event()
        self._on_log = on_log
        self._child: ChildProcess | None = None
        self._stderr: Collector | None = None
        self._log = SshLog(log, on_news=self._hear)

    def __repr__(self) -> str:
        return f"<SshMaster behind {self._socket}: {self._child!r}>"

    def start(self, command: Sequence[str]) -> None:
        """Start it away from any terminal: it cannot ask, nor can the ssh of a jump host."""
        environ = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
        with PipeEnds() as err:
            self._child = ChildProcess(command, stderr=err.write_fd, environ=environ, on_exit=self._news.set)
            self._stderr = Collector(err.take_read(), limit_bytes=_STDERR_BYTES, keep_end=True)

    def start_on_terminal(self, command: Sequence[str]) -> None:
        """Start it on the terminal, where it may ask."""
        self._child = ChildProcess(
            [*_DEAF_TO_TERMINAL, *command], stderr=None, on_terminal=True, on_exit=self._news.set
        )

    def _hear(self, text: str) -> None:
        self._news.set()
        if self._on_log is not None:
            self._on_log(text)

    def stop_conversation(self) -> None:
        """Tell nobody any more what it logs."""
        self._on_log = None

    async def wait_news(self, timeout_s: float | None) -> None:
        """Wait until it said something or ended, at most `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        self._news.clear()

    @property
    def is_listening(self) -> bool:
        """Whether the socket is there; ssh makes it in one step, once the user is in."""
        return os.path.exists(self._socket)

    @property
    def has_ended(self) -> bool:
        return self._child is None or not self._child.is_running

    @property
    def exit_status(self) -> int | None:
        return self._child.exit_status if self._child is not None else None

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self._log.text

    @property
    def heard_log(self) -> str:
        """What the event loop has read of its log; for other threads."""
        return self._log.heard

    @property
    def stderr(self) -> str:
        """What it printed; "" where that went to the terminal."""
        return self._stderr.drain().decode("utf-8", "replace") if self._stderr is not None else ""

    @property
    def ended_cpu(self) -> CpuUsage:
        return self._child.ended_cpu if self._child is not None else CpuUsage()

    async def wait_end(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` for it to end; return whether it has."""
        if self._child is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._child.wait()
        return self.has_ended

    def terminate(self) -> None:
        """Ask it to end; returns at once. Idempotent."""
        if self._child is not None:
            self._child.terminate()

    def end_now(self) -> None:
        """End it without the event loop."""
        if self._child is not None:
            self._child.end_now()
        self._release()

    async def end(self) -> None:
        """End it. Idempotent. Cancellation: it is ended all the same."""
        try:
            if self._child is not None:
                await self._child.end()
        finally:
            self._release()

    def _release(self) -> None:
        self._log.close()
        if self._stderr is not None:
            self._stderr.close()
