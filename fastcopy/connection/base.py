"""The Protocol of one SSH login and of the thing that makes logins.

A connection opens SFTP channels (as transports), runs commands on the same login, and closes. Two implementations:
openssh (a private master and its mux clients) and asyncssh (in this process). Failures are those of errors.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fastcopy.errors import FastcopyError
    from fastcopy.model import CpuUsage
    from fastcopy.transport.base import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a remote command ended. `exit_status` is None when a signal or a lost connection ended it."""

    exit_status: int | None
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    """What a login settled on. `way` is "openssh" or "asyncssh"; None where the way cannot know."""

    host: str
    way: str
    cipher: str | None = None
    compress: bool = False
    #: Whether somebody typed a password, passphrase or code for it: a further login would ask again.
    login_is_typed: bool = False
    server_version: str | None = None


class Connection(Protocol):
    """One SSH login: one TCP stream, one sshd process, one core on each side."""

    @property
    def info(self) -> ConnectionInfo: ...

    async def open_sftp(self) -> Transport:
        """Open one further SFTP channel and return its transport; the SFTP handshake is not made yet.

        Raises: TooManySessions when MaxSessions is reached (never a silent new login); NoSftp when the server has no
            such subsystem or its program is missing; ChannelLost when the login is gone.
        Cancellation: leaves no process and no channel behind.
        """
        ...

    async def explain(self, transport: Transport, received: bytes) -> FastcopyError:
        """Turn the end of a channel, or bytes that are no SFTP, into the error that names the cause.

        To be asked only of a channel that has not spoken SFTP yet; of a later one `transport.diagnosis` tells.

        Args:
            transport: what `open_sftp` returned; it may be closed already.
            received: the bytes that came where an SFTP packet should begin; b"" when the channel just ended.
        Returns: NoSftp when the server has no such subsystem or its program is missing; ServerPrintsText when
            `received` is text; TooManySessions; ChannelLost, with what ssh or the server said, otherwise. Waits at
            most 1 s for the channel to say how it ended.
        """
        ...

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_s: float = 10.0, limit_bytes: int = 1 << 20
    ) -> CommandResult:
        """Run `command` through the account's shell on this login, feed it `stdin`, collect what it prints.

        Output beyond `limit_bytes` per stream is cut and the command ended.
        Raises: TooManySessions; ChannelLost; TimeoutError after `timeout_s`. A non-zero exit is no error.
        """
        ...

    async def close(self) -> None:
        """End the login and everything on it within 2 s. Idempotent. No process is left."""
        ...

    def cpu_of_ended_processes(self) -> CpuUsage:
        """CPU of the local helper processes of this login that have ended and been reaped (0 for asyncssh)."""
        ...


class Connector(Protocol):
    """Makes logins to one host; keeps what was typed once (password, passphrase) for the further ones."""

    #: What the user should know of how logins are made here: options of ssh_config that have no effect.
    warnings: list[str]

    async def connect(self, *, interactive: bool) -> Connection:
        """Log in.

        Args:
            interactive: the job's first login may ask on the terminal, if there is one; all others must not.
        Raises: a ConnectError or UnsafePeer that says what to do.
        Cancellation: leaves no process, socket file or open connection behind.
        """
        ...

    async def close(self) -> None:
        """Forget secrets, remove the private directory. Idempotent; the connections are closed by their owners."""
        ...
