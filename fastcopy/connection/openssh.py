"""Speaking SSH through the system's ssh: a connection is a private master, a channel one of its mux clients.

`ssh -M -N` logs in (and so honours the whole ssh_config); each channel is `ssh -s HOST sftp` over the master's socket,
whose pipes are handed to the master, so that file bytes go file -> pipe -> master by splice. Must not speak SFTP.
Invariant: a mux client never logs in by itself, and whatever ends a connection, no process of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastcopy.connection import ssh_command, ssh_config, ssh_diagnosis
from fastcopy.connection.base import CommandResult, ConnectionInfo
from fastcopy.connection.mux_client import MuxClient
from fastcopy.connection.pipes import Collector, Feeder, PipeEnds
from fastcopy.connection.private_directory import PrivateDirectory
from fastcopy.connection.process import ChildProcess
from fastcopy.connection.ssh_conversation import Conversation, open_terminal
from fastcopy.connection.ssh_master import SshMaster
from fastcopy.errors import ChannelLost, ConnectError, ConnectTimeout, FastcopyError, InvalidValue, LoginRefused
from fastcopy.model import CpuUsage
from fastcopy.transport.pipe import PipeTransport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastcopy.config import SshOptions
    from fastcopy.connection.ssh_config import SshSettings
    from fastcopy.transport.base import Transport

#: Seconds a person may take to answer what the first login asks. Source: ours; sshd itself hangs up after 120 s.
ANSWER_S = 300.0
#: Seconds between looks for the master's socket once the user is in: it appears within a millisecond.
_SOCKET_LOOK_S = 0.002
#: Seconds for a channel to say how it ended; less where the server printed text, and may well go on.
_LAST_WORDS_S = 1.0
_TEXT_END_S = 0.3
#: Seconds until a dead master is seen to be dead after its clients were.
_MASTER_END_S = 0.1
#: Bytes kept of what the far side prints on an SFTP channel's stderr.
_STDERR_BYTES = 8 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setup:
    """What all logins of a job share."""

    ssh: str
    settings: SshSettings
    ciphers: tuple[str, ...]
    directory: PrivateDirectory


class OpensshConnector:
    """Makes logins to one host with the system's ssh."""

    def __init__(self, host: str, user: str | None, options: SshOptions) -> None:
        """Reach nobody yet.

        Args:
            host: as the user wrote it: a name of the ssh_config or of the network, an address.
            user: None for what ssh_config says.
        """
        self.warnings: list[str] = []
        self._host = host
        self._user = user
        self._options = options
        self._setup: _Setup | None = None
        self._setting_up = asyncio.Lock()
        self._has_reused = False

    def __repr__(self) -> str:
        return f"<OpensshConnector to {self._host}>"

    async def connect(self, *, interactive: bool) -> OpensshConnection:
        """See Connector.connect.

        With `reuse_master` the first connection is the user's own living master, and there is no second one: at such
        a site a person types for every login, so none is made without being asked for.
        """
        setup = await self._set_up()
        if self._options.reuse_master:
            return await self._reuse(setup)
        terminal_fd = open_terminal() if interactive else None
        try:
            return await self._log_in(setup, terminal_fd)
        finally:
            if terminal_fd is not None:
                os.close(terminal_fd)

    async def close(self) -> None:
        """See Connector.close."""
        setup, self._setup = self._setup, None
        if setup is not None:
            await setup.directory.close()

    async def _set_up(self) -> _Setup:
        async with self._setting_up:
            if self._setup is None:
                self._setup = await self._first_set_up()
            return self._setup

    async def _first_set_up(self) -> _Setup:
        options = self._options
        ssh = shutil.which("ssh")
        if ssh is None:
            raise ConnectError("there is no ssh program here; install it, or use --ssh asyncssh", host=self._host)
        for identity in options.identities:
            _check_identity(identity)
        arguments = [*ssh_command.login_flags(options, self._user), "--", self._host]
        with _system_errors_told(self._host):
            settings = await ssh_config.read_settings(ssh, arguments, timeout_s=options.connect_timeout_s)
            if options.ciphers:
                ciphers = ssh_config.asked_ciphers(options.ciphers, await ssh_config.known_ciphers(ssh))
            else:
                ciphers = ssh_config.preferred_ciphers(settings.ciphers, ssh_config.aes_in_hardware())
            return _Setup(ssh=ssh, settings=settings, ciphers=ciphers, directory=PrivateDirectory(ssh))

    async def _reuse(self, setup: _Setup) -> OpensshConnection:
        if self._has_reused:
            raise LoginRefused("--reuse-master keeps to the one login there is", host=self._host)
        path = setup.settings.control_path
        if path is None or not await _is_master_alive(setup.ssh, self._host, path):
            where = f"behind {path}" if path else "(no ControlPath in the ssh_config)"
            raise ConnectError(
                f"no shared ssh connection is alive {where}. Start one with: ssh -fNM {self._host},"
                " or leave out --reuse-master",
                host=self._host,
            )
        self._has_reused = True
        info = ConnectionInfo(host=self._host, way="openssh")
        return OpensshConnection(setup, path, info=info, timeout_s=self._options.connect_timeout_s)

    async def _log_in(self, setup: _Setup, terminal_fd: int | None) -> OpensshConnection:
        socket = setup.directory.new_name(".sock")
        log = setup.directory.new_name(".log")
        command = ssh_command.master_command(
            setup.ssh,
            self._host,
            options=self._options,
            user=self._user,
            settings=setup.settings,
            ciphers=setup.ciphers,
            socket=socket,
            log=log,
            batch=terminal_fd is None,
        )
        conversation = Conversation(terminal_fd) if terminal_fd is not None else None
        on_log = conversation.hear if conversation is not None else None
        with _system_errors_told(self._host):
            master = SshMaster(socket=socket, log=log, on_log=on_log)
        try:
            with _system_errors_told(self._host):
                if conversation is None:
                    master.start(command)
                else:
                    master.start_on_terminal(command)
            await self._wait_listening(master, setup, asks=conversation is not None)
        except BaseException:
            try:
                await master.end()
            finally:
                if conversation is not None:
                    conversation.restore()
            raise
        info = login_facts(master.log, host=self._host)
        return OpensshConnection(setup, socket, info=info, timeout_s=self._options.connect_timeout_s, master=master)

    async def _wait_listening(self, master: SshMaster, setup: _Setup, *, asks: bool) -> None:
        by_proxy = not setup.settings.all.keys().isdisjoint({"proxyjump", "proxycommand"})  # which may ask as well
        is_answering = asks and by_proxy
        allowed_s = ANSWER_S if is_answering else self._options.connect_timeout_s
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(began + allowed_s) as limit:
                while not master.is_listening:
                    log = master.log
                    if master.has_ended:
                        raise ssh_diagnosis.diagnose(
                            log, master.exit_status, master.stderr, host=self._host, asked_ciphers=setup.ciphers
                        )
                    if asks and not is_answering and ssh_diagnosis.HOST_ANSWERED in log:
                        is_answering, allowed_s = True, ANSWER_S
                        limit.reschedule(began + allowed_s)
                    await master.wait_news(_SOCKET_LOOK_S if ssh_diagnosis.AUTHENTICATED in log else None)
        except TimeoutError:
            said = ssh_diagnosis.last_words(master.log)
            hint = f" ({said})" if said else ""
            raise ConnectTimeout(f"no login within {allowed_s:g} s{hint}", host=self._host) from None


class OpensshConnection:
    """One login held by an ssh master; made by OpensshConnector."""

    def __init__(
        self, setup: _Setup, socket: str, *, info: ConnectionInfo, timeout_s: float, master: SshMaster | None = None
    ) -> None:
        """Take over `master`; None when the one behind `socket` is another's, and so left alone."""
        if master is not None:
            master.stop_conversation()
        self._setup = setup
        self._socket = socket
        self._info = info
        self._timeout_s = timeout_s
        self._master = master
        self._channels: list[MuxClient] = []
        self._commands: set[MuxClient] = set()
        self._cpu_of_commands = CpuUsage()

    def __repr__(self) -> str:
        open_count = sum(client.is_running for client in (*self._channels, *self._commands))
        return f"<OpensshConnection to {self._info.host}: {'over' if self._is_over else 'up'}, {open_count} sessions>"

    @property
    def info(self) -> ConnectionInfo:
        """See Connection.info."""
        return self._info

    @property
    def _is_over(self) -> bool:
        return self._master is not None and self._master.has_ended

    async def open_sftp(self) -> Transport:
        """See Connection.open_sftp. Returns once the server has opened the session: one round trip.

        Whether there is a subsystem shows only in how the channel answers; `explain` tells.
        """
        with (
            _system_errors_told(self._info.host),
            PipeEnds() as to_server,
            PipeEnds() as from_server,
            PipeEnds() as err,
        ):
            client = self._start("sftp", to_server.read_fd, from_server.write_fd, err.write_fd, is_subsystem=True)
            self._channels.append(client)
            client.stderr = Collector(err.take_read(), limit_bytes=_STDERR_BYTES, keep_end=True)
            try:
                await client.wait_open(self._timeout_s)
            except BaseException:
                await client.end()
                raise
            client.stop_listening()
            client.transport = PipeTransport(
                from_server.take_read(),
                to_server.take_write(),
                peer=self._info.host,
                on_close=client.on_transport_closed,
                diagnose=lambda: self._diagnosis(client),
            )
            return client.transport

    async def explain(self, transport: Transport, received: bytes) -> FastcopyError:
        """See Connection.explain."""
        client = next((client for client in self._channels if client.transport is transport), None)
        if client is None:
            return ChannelLost("the channel ended", host=self._info.host)
        await client.wait_end(_TEXT_END_S if received else _LAST_WORDS_S)
        status = client.own_exit_status
        master_log = None
        if self._master is not None and status in (None, 255) and await self._master.wait_end(_MASTER_END_S):
            master_log = self._master.log
        return ssh_diagnosis.explain_end(received, status, client.said, host=self._info.host, master_log=master_log)

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_s: float = 10.0, limit_bytes: int = 1 << 20
    ) -> CommandResult:
        """See Connection.run."""
        with _system_errors_told(self._info.host), PipeEnds() as to_server, PipeEnds() as out, PipeEnds() as err:
            client = self._start(command, to_server.read_fd, out.write_fd, err.write_fd, is_subsystem=False)
            self._commands.add(client)
            feeder = Feeder(to_server.take_write(), stdin)
            stdout, stderr = (
                Collector(ends.take_read(), limit_bytes=limit_bytes, on_full=client.terminate) for ends in (out, err)
            )
        try:
            await client.wait_end(timeout_s)
            if client.is_running:
                raise TimeoutError(f"no end of the command within {timeout_s:g} s")
            status, log = client.exit_status, client.log
            if ssh_diagnosis.SESSION_OPEN not in log:
                raise ssh_diagnosis.diagnose_channel(log, status, host=self._info.host)
            has_status = ssh_diagnosis.EXIT_STATUS_CAME in log
            if not has_status and self._is_over:
                raise self._lost()
            return CommandResult(
                exit_status=status if has_status else None, stdout=stdout.drain(), stderr=stderr.drain()
            )
        finally:
            feeder.close()
            stdout.close()
            stderr.close()
            await client.end()
            self._commands.discard(client)
            self._cpu_of_commands += client.ended_cpu

    async def close(self) -> None:
        """See Connection.close. A master of the user's own is left as it is."""
        processes: list[MuxClient | SshMaster] = [*self._channels, *self._commands]
        if self._master is not None:
            processes.append(self._master)
        for process in processes:
            process.terminate()
        try:
            for process in processes:
                await process.end()
        except asyncio.CancelledError:
            for process in processes:
                process.end_now()
            raise

    def cpu_of_ended_processes(self) -> CpuUsage:
        """See Connection.cpu_of_ended_processes."""
        total = sum((client.ended_cpu for client in self._channels), self._cpu_of_commands)
        return total + self._master.ended_cpu if self._master is not None else total

    def _start(self, command: str, stdin: int, stdout: int, stderr: int, *, is_subsystem: bool) -> MuxClient:
        if self._is_over:
            raise self._lost()
        log = self._setup.directory.new_name(".log")
        argv = ssh_command.mux_command(
            self._setup.ssh,
            self._info.host,
            socket=self._socket,
            log=log,
            is_subsystem=is_subsystem,
            command=command,
        )
        return MuxClient(argv, host=self._info.host, log=log, stdin=stdin, stdout=stdout, stderr=stderr)

    def _lost(self) -> ChannelLost:
        words = ssh_diagnosis.last_words(self._master.log) if self._master is not None else ""
        return ChannelLost(words or "the login ended", host=self._info.host)

    def _diagnosis(self, client: MuxClient) -> str:
        """Say what is known of a channel's end. Called in its pump's thread: only looks at what the loop has read."""
        if self._is_over and self._master is not None:
            return ssh_diagnosis.last_words(self._master.heard_log)
        return ssh_diagnosis.quoted(client.heard)


@contextlib.contextmanager
def _system_errors_told(host: str) -> Iterator[None]:
    """Tell a process that cannot be started, or descriptors that have run out, as what they are."""
    try:
        yield
    except OSError as exc:
        raise ConnectError(f"ssh cannot be started here ({exc.strerror or exc})", host=host) from exc


def login_facts(log: str, *, host: str) -> ConnectionInfo:
    """Read what a login settled on from its log."""
    version = re.search(r"remote software version (.*)$", log, re.MULTILINE)
    kex = re.search(r"kex: client->server cipher: (\S+) MAC: \S+ compression: (\S+)", log)
    return ConnectionInfo(
        host=host,
        way="openssh",
        cipher=kex[1] if kex else None,
        compress=kex is not None and kex[2] != "none",
        login_is_typed=re.search(r'^Authenticated .*using "(?:password|keyboard-interactive)', log, re.MULTILINE)
        is not None,
        server_version=version[1].strip() if version else None,
    )


def _check_identity(path: str) -> None:
    """Refuse a key file that is not there; ssh would only warn and try others. `%` tokens are ssh's to expand."""
    expanded = os.path.expanduser(path)
    if "%" not in path and not os.path.exists(expanded) and not os.path.exists(f"{expanded}.pub"):
        raise InvalidValue(f"there is no key file {path}", option="--identity")


async def _is_master_alive(ssh: str, host: str, socket: str) -> bool:
    child = ChildProcess(ssh_command.check_command(ssh, host, socket))
    try:
        async with asyncio.timeout(5.0):
            return await child.wait() == 0
    except TimeoutError:
        return False
    finally:
        await child.end()
