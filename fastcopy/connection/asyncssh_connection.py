"""One asyncssh login as a Connection: SFTP channels and commands over it, and its end.

Owns the connection and those to the jump hosts it goes through. Must not know how the login was made.
Invariant: a channel that nobody waits for any more is aborted as soon as the server has opened it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastcopy.connection.asyncssh_command import CommandSession
from fastcopy.connection.asyncssh_errors import channel_error, end_error
from fastcopy.connection.asyncssh_lean import make_lean
from fastcopy.connection.asyncssh_transport import PACKET_BYTES, SessionTransport
from fastcopy.connection.base import CommandResult, ConnectionInfo
from fastcopy.errors import ChannelLost
from fastcopy.model import CpuUsage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncssh

    from fastcopy.connection.asyncssh_dial import Dialler
    from fastcopy.connection.asyncssh_dialogue import LoginDialogue
    from fastcopy.errors import FastcopyError
    from fastcopy.transport.base import Transport

#: Seconds. Source: law 12; half for a proper goodbye, half for the sockets to go.
_GOODBYE_S = 0.9
#: Seconds to wait for a channel to say how it ended, and whether a server that printed text goes on.
_LAST_WORDS_S = 1.0
_TEXT_END_S = 0.3


@dataclass(frozen=True, slots=True)
class Leg:
    """One login on the way to the host, or the last one on it, and what carries it."""

    connection: asyncssh.SSHClientConnection
    dialler: Dialler


class AsyncsshConnection:
    """One login made by AsyncsshConnector."""

    def __init__(
        self,
        chain: Sequence[Leg],
        *,
        dialogue: LoginDialogue,
        host: str,
        timeout_s: float,
        window_bytes: int,
        memory_bytes: int,
    ) -> None:
        """Take over the logins in `chain`: those on the jump hosts, nearest first, and the one on the host.

        Args:
            timeout_s: how long opening a channel may take.
            window_bytes: what the server may send on a channel before we have taken it.
            memory_bytes: what may wait in this process per channel and direction.
        """
        self._chain = chain
        self._connection = chain[-1].connection
        make_lean(self._connection)
        self._dialogue = dialogue
        self._host = host
        self._timeout_s = timeout_s
        self._window_bytes = window_bytes
        self._memory_bytes = memory_bytes
        self._opening: set[asyncio.Task[Any]] = set()
        self._transports: list[SessionTransport] = []
        told = self._connection.get_extra_info
        self._info = ConnectionInfo(
            host=host,
            way="asyncssh",
            cipher=told("send_cipher"),
            compress=told("send_compression", "none") != "none",
            login_is_typed=dialogue.has_sent_code,
            server_version=(told("server_version") or "").removeprefix("SSH-2.0-") or None,
        )

    def __repr__(self) -> str:
        return f"<AsyncsshConnection to {self._host}: {self._dialogue.lost or 'up'}>"

    @property
    def info(self) -> ConnectionInfo:
        """See Connection.info."""
        return self._info

    async def open_sftp(self) -> SessionTransport:
        """See Connection.open_sftp."""
        transport = SessionTransport(asyncio.get_running_loop(), peer=self._host, memory_bytes=self._memory_bytes)
        await self._open(transport.session, subsystem="sftp", window=self._window_bytes)
        self._transports = [other for other in self._transports if not other.is_closed]
        self._transports.append(transport)
        return transport

    async def explain(self, transport: Transport, received: bytes) -> FastcopyError:
        """See Connection.explain."""
        if not isinstance(transport, SessionTransport) or transport.is_closed:
            return end_error(received, exit_status=None, said="", lost=self._dialogue.lost, host=self._host)
        await transport.wait_end(_TEXT_END_S if received else _LAST_WORDS_S)
        return end_error(
            received, exit_status=transport.exit_status, said=transport.said, lost=self._dialogue.lost, host=self._host
        )

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_s: float = 10.0, limit_bytes: int = 1 << 20
    ) -> CommandResult:
        """See Connection.run."""
        session = CommandSession(stdin, limit_bytes)
        try:
            async with asyncio.timeout(timeout_s):
                await self._open(session, command=command)
                result = await session.result()
        finally:
            session.abort()
        if not session.has_answered and self._dialogue.lost is not None:
            raise ChannelLost(self._dialogue.lost, host=self._host)
        return result

    async def _open(
        self,
        session: asyncssh.SSHClientSession[bytes],
        *,
        command: str | None = None,
        subsystem: str | None = None,
        **how: Any,
    ) -> None:
        """Open a session. Cancellation: as soon as the server has opened it, it is aborted."""
        opening = asyncio.ensure_future(
            self._connection.create_session(
                lambda: session, command, subsystem=subsystem, encoding=None, max_pktsize=PACKET_BYTES, **how
            )
        )
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(opening)
        except BaseException as exc:
            opening.add_done_callback(_discard)
            if isinstance(exc, Exception):
                error = channel_error(exc, host=self._host, subsystem=subsystem is not None, lost=self._dialogue.lost)
                raise error from exc
            raise

    async def close(self) -> None:
        """See Connection.close."""
        await close_chain(self._chain)
        if self._opening:
            await asyncio.wait(self._opening, timeout=_GOODBYE_S)

    def cpu_of_ended_processes(self) -> CpuUsage:
        """See Connection.cpu_of_ended_processes: there are none."""
        return CpuUsage()


def _discard(opening: asyncio.Task[Any]) -> None:
    """Abort a session that was opened for nobody."""
    if not opening.cancelled() and opening.exception() is None:
        channel, _ = opening.result()
        channel.abort()


async def close_chain(chain: Sequence[Leg]) -> None:
    """End logins, the farthest first, politely and then at once. Cancellation: at once."""
    try:
        async with asyncio.timeout(_GOODBYE_S):
            for leg in reversed(chain):
                leg.connection.close()
                await leg.connection.wait_closed()
    except TimeoutError:
        pass
    finally:
        for leg in reversed(chain):
            leg.connection.abort()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GOODBYE_S):
            for leg in reversed(chain):
                await leg.connection.wait_closed()
                await leg.dialler.end()
