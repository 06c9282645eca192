"""Logging in by asyncssh, in this process: no ssh program needed, and a person types each secret once per job.

Owns what is found out once per job (settings, known hosts, secrets) and the way through jump hosts. Must not open
channels. Host keys, keys and passwords are judged in asyncssh_dialogue.py, failures in asyncssh_errors.py.
Invariant: whatever ends a login before it stands, no connection, process or waiting task of it is left.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncssh

from fastcopy.config import AddressFamily, SshOptions
from fastcopy.connection import asyncssh_algorithms as algorithms
from fastcopy.connection.asyncssh_connection import AsyncsshConnection, Leg, close_chain
from fastcopy.connection.asyncssh_dial import Dialler
from fastcopy.connection.asyncssh_dialogue import LoginDialogue
from fastcopy.connection.asyncssh_errors import login_error
from fastcopy.connection.asyncssh_identities import Identities, agent_keys
from fastcopy.connection.asyncssh_transport import DEFAULT_CHANNEL_MEMORY_BYTES
from fastcopy.connection.known_hosts import KnownHosts, PublicKey
from fastcopy.connection.login_secrets import Secrets
from fastcopy.connection.login_settings import LoginSettings, jump_options, login_settings, split_jumps
from fastcopy.errors import ConnectError, HostKeyUnknown, InvalidValue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: Bytes the server may send on a channel before we have taken them: at a round trip of 100 ms, 160 MiB/s.
#: Source: DEFAULT_QUEUE_DEPTH requests of DEFAULT_REQUEST_BYTES are 16 MiB; more is never in flight.
DEFAULT_WINDOW_BYTES = 16 << 20
_FAMILIES = {
    AddressFamily.ANY: socket.AF_UNSPEC,
    AddressFamily.IPV4: socket.AF_INET,
    AddressFamily.IPV6: socket.AF_INET6,
}
#: Jump hosts that have jump hosts of their own. Source: ours; a configuration that goes round must end.
_DEEPEST_JUMP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hop:
    """One host to log in to, on the way or at its end."""

    settings: LoginSettings
    known_hosts: KnownHosts
    ciphers: tuple[str, ...]
    shown_host: str


class AsyncsshConnector:
    """Makes logins to one host with asyncssh."""

    def __init__(
        self,
        host: str,
        user: str | None,
        options: SshOptions,
        *,
        ask: Callable[[str], Awaitable[str | None]] | None = None,
        window_bytes: int = DEFAULT_WINDOW_BYTES,
        memory_bytes: int = DEFAULT_CHANNEL_MEMORY_BYTES,
    ) -> None:
        """Reach nobody yet.

        Args:
            host: as the user wrote it: a Host of ssh_config, a name, an address.
            user: None for what ssh_config says.
            ask: shows a prompt and returns what was typed, without its line end; None where nothing was. What is
                asked for is a secret unless the prompt ends in "(yes/no)? ". None: there is nobody to ask.
            window_bytes: see AsyncsshConnection.
            memory_bytes: see AsyncsshConnection.
        """
        self._host = host
        self._user = user
        self._options = options
        self._secrets = Secrets(ask)
        self._window_bytes = window_bytes
        self._memory_bytes = memory_bytes
        self._hops: tuple[_Hop, ...] = ()
        self._setting_up = asyncio.Lock()
        #: What the user should know of: options that are not honoured, keys that could not be read.
        self.warnings: list[str] = []

    def __repr__(self) -> str:
        return f"<AsyncsshConnector to {self._host}>"

    async def connect(self, *, interactive: bool) -> AsyncsshConnection:
        """See Connector.connect."""
        async with self._setting_up:
            if not self._hops:
                self._hops = await asyncio.to_thread(self._find_hops)
        while True:
            try:
                return await self._log_in(interactive)
            except _UnknownKey as found:
                question = (
                    f"The host key of {found.hop.known_hosts.name} is not known: {found.key}\n"
                    "Is it right, and shall it be trusted from now on (yes/no)? "
                )
                if not await self._secrets.confirm(question, may_ask=interactive):
                    raise found.error from None
                await self._remember(found.hop, found.key)

    async def close(self) -> None:
        """See Connector.close."""
        self._secrets.forget()

    # --- once per job ---

    def _find_hops(self) -> tuple[_Hop, ...]:
        """Read the configuration. Runs off the loop: it reads files."""
        for path in self._options.identities:
            expanded = os.path.expanduser(path)
            if "%" not in path and not os.path.exists(expanded) and not os.path.exists(f"{expanded}.pub"):
                raise InvalidValue(f"there is no key file {path}", option="--identity")
        if self._options.reuse_master:
            raise InvalidValue("is about the system's ssh; leave out --ssh asyncssh", option="--reuse-master")
        settings = login_settings(self._host, self._user, self._options)
        hops = [*self._jumps(settings, 0), self._hop(settings, self._options.ciphers, self._host)]
        for hop in hops:
            self._warn(*hop.settings.warnings)
        return tuple(hops)

    def _jumps(self, settings: LoginSettings, depth: int) -> list[_Hop]:
        if settings.proxy_jump is None:
            return []
        if depth >= _DEEPEST_JUMP:
            raise InvalidValue(f"the jump hosts of {settings.host} never end", option="--jump")
        hops: list[_Hop] = []
        options = jump_options(self._options)
        for number, (user, host, port) in enumerate(split_jumps(settings.proxy_jump)):
            jump_settings = login_settings(
                host,
                user,
                SshOptions(
                    config_file=options.config_file,
                    family=options.family,
                    connect_timeout_s=options.connect_timeout_s,
                    port=port,
                ),
            )
            if number == 0:  # as ssh does: only the nearest one's own jump hosts count
                hops += self._jumps(jump_settings, depth + 1)
            hops.append(self._hop(jump_settings, (), f"{host} (a jump host)"))
        return hops

    def _hop(self, settings: LoginSettings, asked_ciphers: tuple[str, ...], shown_host: str) -> _Hop:
        return _Hop(
            settings=settings,
            known_hosts=KnownHosts(settings),
            ciphers=tuple(algorithms.ciphers(settings, asked_ciphers)),
            shown_host=shown_host,
        )

    # --- each login ---

    async def _log_in(self, interactive: bool) -> AsyncsshConnection:
        chain: list[Leg] = []
        try:
            for hop in self._hops:
                leg, dialogue = await self._reach(hop, chain[-1].connection if chain else None, interactive)
                chain.append(leg)
        except BaseException:
            await close_chain(chain)
            raise
        return AsyncsshConnection(
            chain,
            dialogue=dialogue,
            host=self._host,
            timeout_s=self._hops[-1].settings.connect_timeout_s,
            window_bytes=self._window_bytes,
            memory_bytes=self._memory_bytes,
        )

    async def _reach(
        self, hop: _Hop, through: asyncssh.SSHClientConnection | None, interactive: bool
    ) -> tuple[Leg, LoginDialogue]:
        settings = hop.settings
        identities = Identities(settings, self._secrets)
        dialler = Dialler(
            family=_FAMILIES[settings.family],
            bind_address=settings.bind_address,
            through=through,
            proxy_command=settings.proxy_command,
        )
        dialogue: LoginDialogue | None = None
        try:
            async with asyncio.timeout(settings.connect_timeout_s) as deadline:
                dialogue = LoginDialogue(
                    settings, hop.known_hosts, identities, self._secrets, may_ask=interactive, deadline=deadline
                )
                connection = await self._authenticate(hop, dialogue, identities, dialler)
        except BaseException as exc:
            await dialler.end()
            if isinstance(exc, Exception):
                raise self._failure(exc, hop, dialogue, dialler) from exc
            raise
        finally:
            if dialogue is not None:
                dialogue.end()
                self._warn(*dialogue.warnings, *identities.warnings)
        if dialogue.accepted_key is not None:
            await self._remember(hop, dialogue.accepted_key)
        return Leg(connection, dialler), dialogue

    async def _authenticate(
        self, hop: _Hop, dialogue: LoginDialogue, identities: Identities, dialler: Dialler
    ) -> asyncssh.SSHClientConnection:
        settings = hop.settings
        pairs = await identities.load(unlock=dialogue.unlock)
        async with agent_keys(settings, identities) as from_agent:
            in_agent = {pair.public_data for pair in from_agent}
            dialogue.offer([*from_agent, *(pair for pair in pairs if pair.public_data not in in_agent)])
            return await asyncssh.connect(settings.hostname, settings.port, **_arguments(hop, dialogue, dialler))

    def _failure(self, exc: Exception, hop: _Hop, dialogue: LoginDialogue | None, dialler: Dialler) -> Exception:
        if dialogue is None:
            return login_error(exc, host=hop.shown_host, greeting=dialler.greeting)
        if dialogue.refusal is not None:
            if dialogue.unknown_key is not None and isinstance(dialogue.refusal, HostKeyUnknown):
                return _UnknownKey(hop, dialogue.unknown_key, dialogue.refusal)
            return dialogue.refusal
        if isinstance(exc, asyncssh.PermissionDenied) and dialogue.has_sent_password:
            dialogue.refuse_password()
        if isinstance(exc, TimeoutError):
            exc = TimeoutError(f"no login within {hop.settings.connect_timeout_s:g} s")
        if dialler.said and not dialler.greeting:
            return ConnectError(f"its ProxyCommand says: {dialler.said}", host=hop.shown_host)
        return login_error(exc, host=hop.shown_host, greeting=dialler.greeting, offers=dialogue.offers)

    async def _remember(self, hop: _Hop, key: PublicKey) -> None:
        await asyncio.to_thread(hop.known_hosts.remember, key)
        self._warn(*hop.known_hosts.warnings)

    def _warn(self, *messages: str) -> None:
        self.warnings += [message for message in messages if message not in self.warnings]


class _UnknownKey(ConnectError):
    """The host key of {host} is not known, and the user may be asked about it."""

    def __init__(self, hop: _Hop, key: PublicKey, error: HostKeyUnknown) -> None:
        super().__init__(host=hop.shown_host)
        self.hop = hop
        self.key = key
        self.error = error


def _arguments(hop: _Hop, dialogue: LoginDialogue, dialler: Dialler) -> dict[str, Any]:
    """Return asyncssh.connect's arguments: everything is said, so that it reads no configuration of its own."""
    settings = hop.settings
    return {
        "config": None,
        "tunnel": dialler,
        "proxy_command": None,
        "username": settings.user,
        "client_factory": lambda: dialogue,
        "known_hosts": ([], [], []),  # the dialogue judges every key
        "x509_trusted_certs": None,
        "x509_trusted_cert_paths": [],
        "server_host_key_algs": algorithms.host_keys(settings, hop.known_hosts),
        "kex_algs": algorithms.key_exchanges(settings),
        "encryption_algs": list(hop.ciphers),
        "mac_algs": algorithms.macs(settings),
        "compression_algs": ["zlib@openssh.com", "none"] if settings.compress else ["none"],
        "client_keys": None,  # the dialogue offers them
        "agent_path": None,
        "agent_forwarding": False,
        "gss_host": None,
        "host_based_auth": False,
        "public_key_auth": settings.pubkey_auth,
        "password_auth": settings.password_auth,
        "kbdint_auth": settings.kbdint_auth,
        "preferred_auth": settings.preferred_auth or ("publickey", "keyboard-interactive", "password"),
        "rekey_bytes": algorithms.rekey_bytes(settings, hop.ciphers),
        "rekey_seconds": settings.rekey_s or 0,
        "tcp_keepalive": settings.tcp_keepalive,
        "keepalive_interval": settings.alive_interval_s,
        "keepalive_count_max": settings.alive_count,
        "connect_timeout": None,  # one deadline holds for everything, ours
        "login_timeout": 0,
        "canonicalize_hostname": False,
        "command": None,
        "env": None,
        "send_env": None,
        "request_pty": False,
        "x11_forwarding": False,
    }
