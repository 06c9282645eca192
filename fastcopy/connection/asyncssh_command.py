"""One remote command on an asyncssh login: fed, collected within bounds, ended.

Owns the session's buffers. Must not know why the command is run.
Invariant: no more than `limit_bytes` of each stream are kept, and a command that prints more is ended.
"""

from __future__ import annotations

import asyncio

import asyncssh

from fastcopy.connection.base import CommandResult


class CommandSession(asyncssh.SSHClientSession[bytes]):
    """Collects what one command prints and how it ends."""

    def __init__(self, stdin: bytes, limit_bytes: int) -> None:
        self._stdin = stdin
        self._limit_bytes = limit_bytes
        self._streams = {None: bytearray(), asyncssh.EXTENDED_DATA_STDERR: bytearray()}
        self._exit_status: int | None = None
        self._end = asyncio.Event()
        self.channel: asyncssh.SSHClientChannel[bytes] | None = None
        #: Whether the server told how it ended, or we ended it ourselves, so that the result is whole.
        self.has_answered = False

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self.channel = chan

    def session_started(self) -> None:
        if self.channel is not None:
            if self._stdin:
                self.channel.write(self._stdin)
            self.channel.write_eof()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        stream = self._streams.get(datatype)
        if stream is None:
            return
        stream += data[: self._limit_bytes - len(stream)]
        if len(stream) >= self._limit_bytes and len(data):
            self.has_answered = True
            self.abort()

    def exit_status_received(self, status: int) -> None:
        self.has_answered = True
        self._exit_status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.has_answered = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.set()

    def abort(self) -> None:
        """End it now; sshd then hangs up on the command."""
        if self.channel is not None:
            self.channel.abort()
        self._end.set()

    async def result(self) -> CommandResult:
        """Wait for the end and return what came."""
        await self._end.wait()
        return CommandResult(
            exit_status=self._exit_status,
            stdout=bytes(self._streams[None]),
            stderr=bytes(self._streams[asyncssh.EXTENDED_DATA_STDERR]),
        )
