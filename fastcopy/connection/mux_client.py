"""A mux client: one more session, an SFTP channel or a command, over the login an ssh master holds.

Owns that ssh process, its log and what the far side prints on stderr. Its stdin and stdout are handed on to the master,
so it moves no bytes itself. Must not know whether SFTP is spoken.
Invariant: it never logs in: without a session it ends with status 255.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from fastcopy.connection import ssh_diagnosis
from fastcopy.connection.process import ChildProcess
from fastcopy.connection.ssh_log import SshLog
from fastcopy.errors import NoProgress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastcopy.connection.pipes import Collector
    from fastcopy.model import CpuUsage
    from fastcopy.transport.base import Transport


class MuxClient:
    """One session, from its start to its end."""

    def __init__(self, command: Sequence[str], *, host: str, log: str, stdin: int, stdout: int, stderr: int) -> None:
        """Start `command` (ssh_command.mux_command) on the three descriptors, which stay the caller's.

        Args:
            host: for error messages.
            log: the path that `command` has as its `-E`.
        """
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        #: The transport over its pipes, for an SFTP channel.
        self.transport: Transport | None = None
        #: Reads its stderr, where the caller wants it read to the end.
        self.stderr: Collector | None = None
        self._was_ended_here = False
        self._log = SshLog(log, on_news=self._hear)
        try:
            self._child = ChildProcess(command, stdin=stdin, stdout=stdout, stderr=stderr, on_exit=self._on_exit)
        except BaseException:
            self._log.close()
            raise

    def __repr__(self) -> str:
        return f"<MuxClient to {self._host}: {self._child!r}>"

    def _hear(self, text: str) -> None:
        self._news.set()

    def _on_exit(self) -> None:
        self._news.set()
        self._release()

    def _release(self) -> None:
        self._log.close()
        if self.stderr is not None:
            self.stderr.drain()
            self.stderr.close()

    @property
    def is_running(self) -> bool:
        return self._child.is_running

    @property
    def exit_status(self) -> int | None:
        return self._child.exit_status

    @property
    def own_exit_status(self) -> int | None:
        """How it ended by itself; None while it runs, or when it was ended from here."""
        return None if self._was_ended_here else self._child.exit_status

    @property
    def log(self) -> str:
        return self._log.text

    @property
    def said(self) -> str:
        """What came on stderr, read to this moment."""
        return self.stderr.drain().decode("utf-8", "replace") if self.stderr is not None else ""

    @property
    def heard(self) -> str:
        """What the event loop has read of stderr; for other threads."""
        return self.stderr.kept.decode("utf-8", "replace") if self.stderr is not None else ""

    @property
    def ended_cpu(self) -> CpuUsage:
        return self._child.ended_cpu

    async def wait_open(self, timeout_s: float) -> None:
        """Wait until the server has opened the session.

        Raises: TooManySessions, ChannelLost and the like (ssh_diagnosis) when there is none; NoProgress after
            `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while ssh_diagnosis.SESSION_OPEN not in self._log.text:
                    if not self.is_running:
                        raise ssh_diagnosis.diagnose_channel(self.log, self._child.exit_status, host=self._host)
                    await self._news.wait()
                    self._news.clear()
        except TimeoutError:
            raise NoProgress(host=self._host, timeout_s=f"{timeout_s:g}") from None

    def stop_listening(self) -> None:
        """Close the log, which says nothing more of worth once the session is open."""
        self._log.close()

    async def wait_end(self, timeout_s: float | None) -> None:
        """Wait until it has ended, at most `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._child.wait()

    def on_transport_closed(self) -> None:
        """End it, once our ends of its pipes are closed. May be called in any thread, at any time."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it every process of ours has ended
            self._loop.call_soon_threadsafe(self.terminate)

    def terminate(self) -> None:
        """Ask it to end; returns at once. Idempotent."""
        if self.is_running:
            self._was_ended_here = True
            self._child.terminate()

    def end_now(self) -> None:
        """End it without the event loop."""
        self._child.end_now()
        self._release()

    async def end(self) -> None:
        """End it. Idempotent. Cancellation: it is ended all the same."""
        self.terminate()
        try:
            await self._child.end()
        finally:
            self._release()
