"""Logins, channels and commands by asyncssh against a real sshd: what works, what is refused, what stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import asyncssh
import psutil
import pytest

from fastcopy.config import SshOptions
from fastcopy.connection.asyncssh_login import AsyncsshConnector
from fastcopy.errors import (
    ChannelLost,
    CipherRefused,
    ConnectError,
    ConnectionRefused,
    ConnectTimeout,
    HostKeyUnknown,
    HostUnknown,
    InvalidValue,
    LoginRefused,
    NoSftp,
    ServerPrintsText,
    TooManyLogins,
    TooManySessions,
)
from tests.support.sshd import sshd_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from fastcopy.transport.base import Transport
    from tests.conftest import SshdFactory
    from tests.support.sshd import Sshd

from tests.support.asyncssh_logins import (
    INIT,
    VERSION_3,
    WAIT_S,
    Person,
    allow,
    connector,
    hello,
    login,
    new_key,
    read,
    refused,
    run,
)


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the home and the agent of whoever runs the tests is seen."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


# --- a login that works -----------------------------------------------------------------------------------------------


async def test_login_by_key(sshd: Sshd) -> None:
    """A key of ssh_config logs in; cipher and server are told; commands run and SFTP answers."""
    async with login(sshd) as connection:
        assert (connection.info.way, connection.info.compress) == ("asyncssh", False)
        assert (connection.info.server_version or "").startswith("OpenSSH")
        ran = await connection.run("cat; echo err >&2; exit 3", stdin=b"hello")
        assert (ran.exit_status, ran.stdout, ran.stderr) == (3, b"hello", b"err\n")
        transport = await connection.open_sftp()
        assert await asyncio.to_thread(hello, transport) == VERSION_3
        transport.close()


@pytest.mark.parametrize("rekey", ["default", "1M"])
async def test_64_mib_both_ways(sshd_with: SshdFactory, tmp_path: Path, rekey: str) -> None:
    """A file sent to an echo and received back at the same time is the same, also when the server changes keys."""
    size = (64 << 20) if rekey == "default" else (8 << 20)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(1 << 20) * (size >> 20))
    async with login(sshd_with(Subsystem="sftp /bin/cat", RekeyLimit=rekey)) as connection:
        transport = await connection.open_sftp()
        await asyncio.to_thread(echo, transport, source, target, size)
        transport.close()
    assert target.read_bytes() == source.read_bytes()


def echo(transport: Transport, source: Path, target: Path, size: int) -> None:
    with source.open("rb") as from_file, target.open("wb") as to_file:
        sent = received = 0
        while received < size:
            moved = 0
            if sent < size:
                moved += (taken := transport.send_file(from_file.fileno(), sent, size - sent))
                sent += taken
            moved += (put := transport.receive_file(to_file.fileno(), received, size - received))
            received += put
            if not moved:
                transport.wait(readable=True, writable=sent < size, timeout_s=WAIT_S)


async def test_compression_only_when_asked(sshd: Sshd) -> None:
    """-C compresses, and both sides agree on it."""
    async with login(sshd, compress=True) as connection:
        assert connection.info.compress is True
        assert (await connection.run("head -c 1000000 /dev/zero")).stdout == bytes(1_000_000)


async def test_cipher_asked_for(sshd: Sshd) -> None:
    """A cipher named on the command line is the one used, also by its short name."""
    async with login(sshd, ciphers=("aes256-gcm",)) as connection:
        assert connection.info.cipher == "aes256-gcm@openssh.com"


@pytest.mark.parametrize(
    ("cipher", "sends_ignores"), [("aes128-gcm@openssh.com", False), ("aes256-ctr", False), ("aes128-cbc", True)]
)
async def test_ignore_packets_only_where_they_protect(
    sshd_with: SshdFactory, monkeypatch: pytest.MonkeyPatch, cipher: str, sends_ignores: bool
) -> None:
    """The IGNORE packet before each packet is dropped, but not for CBC, whose weakness it covers."""
    sent: list[int] = []
    send = asyncssh.SSHClientConnection.send_packet

    def note(self: asyncssh.SSHClientConnection, pkttype: int, *args: bytes, **how: Any) -> None:
        sent.append(pkttype)
        send(self, pkttype, *args, **how)

    monkeypatch.setattr(asyncssh.SSHClientConnection, "send_packet", note)
    async with login(sshd_with(Ciphers=cipher), ciphers=(cipher,)) as connection:
        sent.clear()
        assert (await connection.run("cat", stdin=b"hello")).stdout == b"hello"
        assert (94 in sent, 2 in sent) == (True, sends_ignores)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent of the test's own, without keys."""
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + WAIT_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield
    process.terminate()
    process.wait()


@pytest.mark.usefixtures("agent")
async def test_login_by_agent(sshd_with: SshdFactory, tmp_path: Path) -> None:
    """A key that only the agent holds logs in; IdentitiesOnly keeps keys that nobody named from being offered."""
    server = sshd_with()
    key = new_key(tmp_path / "agent_key")
    allow(server, key)
    run("ssh-add", "-q", key)
    key.unlink()
    async with login(server, None, "IdentitiesOnly=no"):
        pass
    assert type(await refused(connector(server, None, "IdentitiesOnly=yes"))) is LoginRefused
    async with login(server, None, "IdentitiesOnly=yes", identities=(str(key),)):
        pass


async def test_proxy_command(sshd_with: SshdFactory) -> None:
    """A ProxyCommand carries the login, and what it says on stderr harms nothing; with the login it ends."""
    server = sshd_with()
    sshd_itself = f"{sshd_path()} -i -f {server.directory / 'sshd_config'}"
    command = f"sh -c 'echo noise >&2; exec {sshd_itself}'"
    async with login(server, None, f"ProxyCommand={command}") as connection:
        ran = await connection.run("echo hi; ps -o pid= -p $PPID")
        assert ran.stdout.startswith(b"hi\n")
    assert server.logins() == 0
    assert not psutil.pid_exists(int(ran.stdout.split()[1]))


async def test_proxy_command_that_fails(sshd: Sshd) -> None:
    """What a ProxyCommand says before it gives up is the error."""
    error = await refused(connector(sshd, None, "ProxyCommand=echo the tunnel is down >&2; exit 1"))
    assert (type(error), "the tunnel is down" in str(error)) == (ConnectError, True)


# --- on the way there -------------------------------------------------------------------------------------------------


def with_jump(sshd: Sshd, jump: Sshd, tmp_path: Path, **changes: Any) -> Path:
    """Write an ssh_config with `t` behind the host `jump`."""
    file = jump.write_client_config(tmp_path / "jump_config", **changes)
    text = file.read_text().replace("Host t", "Host jump")
    file.write_text(sshd.client_config.read_text() + text)
    return file


@pytest.mark.parametrize("said", ["flag", "option", "config"])
async def test_jump_host(sshd: Sshd, sshd_with: SshdFactory, tmp_path: Path, said: str) -> None:
    """A jump host by -J, by -o or by ssh_config: one login on each, and each has its own settings."""
    jump = sshd_with()
    file = with_jump(sshd, jump, tmp_path)
    options: dict[str, Any] = {"config_file": str(file)}
    match said:
        case "flag":
            options["jump"] = "jump"
        case "option":
            options["options"] = ("ProxyJump=jump",)
        case "config":
            file.write_text(file.read_text().replace("Host t\n", "Host t\n    ProxyJump jump\n"))
    async with login(sshd, **options) as connection:
        assert (await connection.run("echo hi")).stdout == b"hi\n"
        assert (jump.logins(), len(jump.session_pids()) > 0) == (1, True)
    assert jump.wait_idle() == []


async def test_jump_host_that_is_not_known(sshd: Sshd, sshd_with: SshdFactory, tmp_path: Path) -> None:
    """The jump host's key is judged as strictly, and the error names the jump host."""
    file = with_jump(sshd, sshd_with(), tmp_path, UserKnownHostsFile="none")
    error = await refused(connector(sshd, config_file=str(file), jump="jump"))
    assert (type(error), "jump" in str(error)) == (HostKeyUnknown, True)


async def test_host_that_its_jump_host_cannot_reach(sshd: Sshd, sshd_with: SshdFactory, tmp_path: Path) -> None:
    """A host that refuses its jump host is refused, not lost."""
    file = with_jump(sshd, sshd_with(), tmp_path)
    error = await refused(connector(sshd, config_file=str(file), jump="jump", port=free_port()))
    assert (type(error), "jump host" in str(error)) == (ConnectionRefused, True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- a login that cannot be -------------------------------------------------------------------------------------------


async def test_port_where_nobody_listens(sshd: Sshd) -> None:
    """A closed port says so."""
    assert type(await refused(connector(sshd, port=free_port()))) is ConnectionRefused


async def test_host_that_does_not_exist() -> None:
    """A name that no resolver knows says so."""
    made = AsyncsshConnector("no-such-host.invalid", None, SshOptions(config_file="none"))
    assert type(await refused(made)) is HostUnknown


async def test_key_file_that_does_not_exist(sshd: Sshd) -> None:
    """-i with a file that is not there is a wrong value, before anybody is reached."""
    assert type(await refused(connector(sshd, identities=("/nonexistent/key",)))) is InvalidValue


async def test_wrong_key_tells_what_the_server_accepts(sshd: Sshd, tmp_path: Path) -> None:
    """A key the server does not know is a refused login that names its methods; unlocked ones are not asked about."""
    key = new_key(tmp_path / "stranger")
    file = sshd.write_client_config(tmp_path / "config", IdentityFile=key)
    error = await refused(connector(sshd, Person(), config_file=str(file)))
    assert (type(error), "it accepts publickey" in str(error)) == (LoginRefused, True)


async def test_cipher_the_server_does_not_have(sshd_with: SshdFactory) -> None:
    """A cipher the server lacks is told with what it offers."""
    server = sshd_with(Ciphers="chacha20-poly1305@openssh.com")
    error = await refused(connector(server, ciphers=("aes128-gcm@openssh.com",)))
    assert (type(error), "offers: chacha20-poly1305@openssh.com" in str(error)) == (CipherRefused, True)


async def test_cipher_that_is_gone(sshd: Sshd) -> None:
    """arcfour is told to be gone, with its replacement."""
    error = await refused(connector(sshd, ciphers=("arcfour",)))
    assert (type(error), "use aes128-gcm@openssh.com" in str(error)) == (InvalidValue, True)


@contextlib.asynccontextmanager
async def stranger(greeting: bytes | None) -> AsyncIterator[int]:
    """A listener that says `greeting` and hangs up, or for None says nothing and stays."""
    held: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        if greeting is not None:
            writer.write(greeting)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in held:
            writer.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("greeting", "kind"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ConnectionRefused),
        (b"Exceeded MaxStartups\r\n", TooManyLogins),
        (b"Not allowed at this time\r\n", LoginRefused),
        (b"", TooManyLogins),
        (None, ConnectTimeout),
    ],
)
async def test_what_answers_is_no_ssh_server(greeting: bytes | None, kind: type[Exception]) -> None:
    """A web server, a server that drops logins, and one that says nothing are told apart."""
    async with stranger(greeting) as port:
        options = SshOptions(config_file="none", port=port, connect_timeout_s=1.0)
        assert type(await refused(AsyncsshConnector("127.0.0.1", None, options))) is kind


async def test_too_many_logins(sshd_with: SshdFactory) -> None:
    """A login that MaxStartups drops is told by that name, and may be tried again."""
    server = sshd_with(MaxStartups="1:100:1")
    _, pending = await asyncio.open_connection(server.host, server.port)
    try:
        error = await refused(connector(server))
    finally:
        pending.close()
    assert (type(error), "MaxStartups" in str(error)) == (TooManyLogins, True)


# --- channels and commands --------------------------------------------------------------------------------------------


async def test_too_many_sessions(sshd_with: SshdFactory) -> None:
    """MaxSessions 1: the second channel is refused by name, no new login is made, and the first one works on."""
    server = sshd_with(MaxSessions=1)
    async with login(server) as connection:
        transport = await connection.open_sftp()
        with pytest.raises(TooManySessions):
            await connection.open_sftp()
        with pytest.raises(TooManySessions):
            await connection.run("true")
        assert await asyncio.to_thread(hello, transport) == VERSION_3
        assert server.logins() == 1
        transport.close()


async def test_server_without_sftp(sshd_with: SshdFactory) -> None:
    """A server without the subsystem says so when the channel is opened."""
    async with login(sshd_with(Subsystem=None)) as connection:
        with pytest.raises(NoSftp):
            await connection.open_sftp()


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("/nonexistent/sftp-server; exit $?", NoSftp, "cannot be run"),
        ("exit 1", NoSftp, "status 1"),
        ("echo Welcome; exec cat", ServerPrintsText, "Welcome"),
        ("echo Welcome; exit 1", NoSftp, "Welcome"),
    ],
)
async def test_what_ended_a_channel(
    sshd_with: SshdFactory, tmp_path: Path, program: str, kind: type[Exception], words: str
) -> None:
    """A missing program, one that gives up and one that prints text are told from what is known of the channel."""
    script = tmp_path / "program"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    async with login(sshd_with(Subsystem=f"sftp {script}")) as connection:
        transport = await connection.open_sftp()
        received = await asyncio.to_thread(read, transport, 7)
        error = await connection.explain(transport, received)
        assert (type(error), words in str(error)) == (kind, True), str(error)
        transport.close()


async def test_command_that_prints_too_much(sshd: Sshd) -> None:
    """Output beyond the limit is cut and the command ended."""
    async with login(sshd) as connection:
        ran = await connection.run("yes", limit_bytes=1000)
        assert ran.stdout == b"y\n" * 500


async def test_command_that_takes_too_long(sshd_with: SshdFactory) -> None:
    """A command past its time is given up; the login lives on."""
    async with login(sshd_with()) as connection:
        with pytest.raises(TimeoutError):
            await connection.run("sleep 1000", timeout_s=0.2)
        assert (await connection.run("echo hi")).stdout == b"hi\n"


async def test_lost_login_is_told_by_every_part_of_it(sshd_with: SshdFactory) -> None:
    """When the server's process dies, the channel, further channels and commands all say that the login is lost."""
    server = sshd_with()
    async with login(server) as connection:
        transport = await connection.open_sftp()
        await asyncio.to_thread(hello, transport)
        server.close()
        assert await asyncio.to_thread(read, transport, 1 << 20) != b"impossible"
        with pytest.raises(ChannelLost):
            transport.write(INIT)
        with pytest.raises(ChannelLost):
            await connection.open_sftp()
        with pytest.raises(ChannelLost):
            await connection.run("true")
        assert type(await connection.explain(transport, b"")) is ChannelLost
        transport.close()


async def test_close_ends_everything(sshd_with: SshdFactory) -> None:
    """Closing a login ends its channels, for the pumps too, and leaves nothing on the server."""
    server = sshd_with()
    async with login(server) as connection:
        transports = [await connection.open_sftp() for _ in range(3)]
        await connection.close()
        for transport in transports:
            await asyncio.to_thread(read, transport, 1 << 20)  # ends, and does not hang
            with pytest.raises(ChannelLost):
                transport.send_file(0, 0, 1)
            transport.close()
    assert server.wait_idle() == []


# --- nothing stays behind ---------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_left() -> Callable[[], list[str]]:
    """Return what tasks and sockets there are beyond those at the start."""

    def sockets() -> set[str]:
        found = set()
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.add(f"{fd}={os.readlink(f'/proc/self/fd/{fd}')}")
        return {name for name in found if "socket:" in name}

    before: set[str] = set()

    def left() -> list[str]:
        tasks = [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        return [*tasks, *sorted(sockets() - before)]

    before |= sockets()
    return left


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux")
async def test_cancelled_at_every_step(sshd_with: SshdFactory, nothing_left: Callable[[], list[str]]) -> None:
    """A login, an opening channel and a command, cancelled after any number of turns of the loop, leave nothing."""
    server = sshd_with()
    baseline = nothing_left()  # this loop's own sockets

    async def everything() -> None:
        made = connector(server)
        connection = await made.connect(interactive=False)
        try:
            transport = await connection.open_sftp()
            await connection.run("sleep 0.01")
            transport.close()
        finally:
            await connection.close()

    turns = 0
    step = 1
    while True:
        task = asyncio.create_task(everything())
        for _ in range(turns):
            await asyncio.sleep(0)
            if task.done():
                break
        if task.done():
            await task
            break
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await settled(nothing_left, baseline)
        turns += step
        step += 2 + step // 4  # dense at the beginning, and no more than some dozens in all
    await settled(nothing_left, baseline)
    assert server.wait_idle() == []


async def settled(left: Callable[[], list[str]], baseline: list[str]) -> None:
    """Wait some turns for callbacks that are due, and check that nothing is left."""
    for _ in range(100):
        if left() == baseline:
            return
        await asyncio.sleep(0.01)
    assert left() == baseline


async def test_cancelled_channel_takes_no_session(sshd_with: SshdFactory) -> None:
    """With MaxSessions 1, channels that were given up while they opened do not keep a later one out."""
    server = sshd_with(MaxSessions=1)
    async with login(server) as connection:
        for turns in range(12):
            opening = asyncio.create_task(connection.open_sftp())
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError, TooManySessions):
                (await opening).close()
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                transport = await connection.open_sftp()
                break
            except TooManySessions:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
        transport.close()


async def test_cancelled_while_a_person_types(sshd_with: SshdFactory, tmp_path: Path) -> None:
    """A login given up while it waits for a passphrase ends at once, and does not hold up the end of the loop."""
    server = sshd_with()
    key = new_key(tmp_path / "locked", passphrase="sesame")
    allow(server, key)
    asked = asyncio.Event()

    async def ask(prompt: str) -> str | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    options = SshOptions(config_file=str(server.client_config), identities=(str(key),))
    task = asyncio.create_task(AsyncsshConnector("t", None, options, ask=ask).connect(interactive=True))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.get_running_loop().shutdown_default_executor()


def test_importing_the_other_way_loads_no_asyncssh() -> None:
    """Who speaks through the system's ssh does not pay for asyncssh."""
    code = "import sys, fastcopy.connection.base, fastcopy.connection.openssh; sys.exit('asyncssh' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, shlex.quote(code)
