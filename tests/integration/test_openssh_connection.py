"""Logins, channels and commands through the system's ssh, against a real sshd; and that nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from fastcopy.config import SshOptions
from fastcopy.connection.openssh import OpensshConnection, OpensshConnector
from fastcopy.errors import (
    ChannelLost,
    CipherRefused,
    ConnectError,
    ConnectionRefused,
    ConnectTimeout,
    FastcopyError,
    HostKeyChanged,
    HostKeyUnknown,
    HostUnknown,
    InvalidValue,
    LoginRefused,
    NoSftp,
    ServerPrintsText,
    TooManyLogins,
    TooManySessions,
)
from tests.support.sshd import Sshd, sftp_server_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from fastcopy.transport.base import Transport
    from tests.conftest import SshdFactory

INIT = b"\0\0\0\5\1\0\0\0\3"
VERSION = b"\2\0\0\0\3"
#: Seconds. Far more than anything here takes; a test never gates on it.
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def private_parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where private directories are made; after each test neither one of them nor a process is left."""
    parent = Path(tempfile.mkdtemp(prefix="fc-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    yield parent
    assert (children(), list(parent.iterdir())) == ([], [])
    parent.rmdir()


def open_fds() -> int:
    """Count our descriptors (of pipes, above all)."""
    return len(os.listdir("/dev/fd"))


def children() -> list[str]:
    """The command lines of our child processes; servers of the tests and their sessions left out."""
    lines = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if not any("sshd" in ancestor.name() for ancestor in (process, *process.parents())):
                lines.append(" ".join(process.cmdline()))
    return [line for line in lines if " -MN t" not in line]


@contextlib.asynccontextmanager
async def connector_to(sshd: Sshd, **options: object) -> AsyncIterator[OpensshConnector]:
    """A connector that must leave neither a process nor a descriptor."""
    keywords: dict[str, Any] = {"config_file": str(sshd.client_config), **options}
    before = open_fds()
    connector = OpensshConnector("t", None, SshOptions(**keywords))
    try:
        yield connector
    finally:
        await connector.close()
        assert (children(), open_fds()) == ([], before)


@contextlib.asynccontextmanager
async def connected(sshd: Sshd, **options: object) -> AsyncIterator[OpensshConnection]:
    async with connector_to(sshd, **options) as connector:
        connection = await connector.connect(interactive=False)
        try:
            yield connection
        finally:
            await connection.close()


async def first_bytes(transport: Transport) -> bytes:
    """Begin SFTP and return what the other side begins with."""
    with contextlib.suppress(ChannelLost):
        transport.write(INIT)
    deadline = time.monotonic() + PATIENCE_S
    while (received := transport.read(1 << 16)) is None and time.monotonic() < deadline:
        await asyncio.to_thread(transport.wait, readable=True, writable=False, timeout_s=0.1)
    return received or b""


async def refusal(sshd: Sshd, **options: object) -> FastcopyError:
    """Return why this login is refused."""
    async with connector_to(sshd, **options) as connector:
        with pytest.raises(FastcopyError) as caught:
            await connector.connect(interactive=False)
    return caught.value


async def test_a_login_opens_channels_that_speak_sftp(sshd: Sshd) -> None:
    """Two channels over one login answer INIT, and the login tells what it settled on."""
    async with connected(sshd) as connection:
        for transport in (await connection.open_sftp(), await connection.open_sftp()):
            assert (await first_bytes(transport))[4:9] == VERSION
            transport.close()
        assert (connection.info.way, connection.info.compress) == ("openssh", False)
        assert connection.info.server_version is not None
        assert connection.info.server_version.startswith("OpenSSH")


async def test_commands_run_on_the_same_login(sshd_with: SshdFactory) -> None:
    """stdin, both outputs and the exit status come through, 255 too, and nobody logs in twice."""
    sshd = sshd_with()
    async with connected(sshd) as connection:
        result = await connection.run("tr a-z A-Z; echo oops >&2; exit 255", stdin=b"hello")
    assert (result.stdout, result.stderr, result.exit_status) == (b"HELLO", b"oops\n", 255)
    assert sshd.logins() == 1


async def test_a_command_is_one_word_for_the_remote_shell(sshd: Sshd) -> None:
    """Quotes, newlines and leading dashes reach the shell as they are."""
    async with connected(sshd) as connection:
        result = await connection.run("printf '%s|' -n 'a  b'\necho \"$((1+1))\"")
    assert result.stdout == b"-n|a  b|2\n"


async def test_a_command_without_an_exit_status_has_none(sshd: Sshd) -> None:
    """One that a signal ended is not taken for one that ended with 255."""
    async with connected(sshd) as connection:
        result = await connection.run("kill -9 $$")
    assert result.exit_status is None


async def test_more_stdin_than_a_pipe_holds_is_fed(sshd: Sshd) -> None:
    """3 MiB in, 3 MiB counted."""
    async with connected(sshd) as connection:
        result = await connection.run("wc -c", stdin=b"x" * (3 << 20))
    assert result.stdout.strip() == str(3 << 20).encode()


async def test_a_flood_is_cut_and_its_command_ended(sshd: Sshd) -> None:
    """What prints without end neither fills the memory nor holds us up."""
    async with connected(sshd) as connection:
        result = await connection.run("exec yes", limit_bytes=1000, timeout_s=PATIENCE_S)
    assert (result.stdout, result.exit_status) == (b"y\n" * 500, None)


async def test_a_command_that_does_not_end_is_given_up(sshd: Sshd) -> None:
    """TimeoutError, no process here, and the login goes on."""
    async with connected(sshd) as connection:
        with pytest.raises(TimeoutError):
            await connection.run("exec sleep 1000", timeout_s=0.2)
        assert (await connection.run("echo on")).stdout == b"on\n"


async def test_a_session_too_many_is_refused_without_a_second_login(sshd_with: SshdFactory) -> None:
    """MaxSessions 1: the second channel and any command are TooManySessions; sshd saw one login."""
    sshd = sshd_with(MaxSessions=1)
    async with connected(sshd) as connection:
        transport = await connection.open_sftp()
        with pytest.raises(TooManySessions):
            await connection.open_sftp()
        with pytest.raises(TooManySessions):
            await connection.run("true")
        assert (await first_bytes(transport))[4:9] == VERSION
        transport.close()
    assert sshd.logins() == 1


async def explained(sshd: Sshd, *, close_first: bool = False) -> FastcopyError:
    """Open a channel of a server without SFTP; return what it is told to be."""
    async with connected(sshd) as connection:
        transport = await connection.open_sftp()
        received = await first_bytes(transport)
        if close_first:
            transport.close()
        error = await connection.explain(transport, received)
        transport.close()
    return error


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"Subsystem": None}, NoSftp, "it refused the sftp subsystem"),
        ({"Subsystem": "sftp /no/such/program"}, NoSftp, "exit status 127"),
        ({"ForceCommand": "true"}, NoSftp, "ended at once with status 0"),
        ({"ForceCommand": "echo this account is closed; exit 1"}, NoSftp, "this account is closed"),
        ({"ForceCommand": f"echo Welcome; exec {sftp_server_path()}"}, ServerPrintsText, "Welcome"),
    ],
    ids=["no subsystem", "no program", "forced to end", "closed account", "text first"],
)
async def test_a_server_without_sftp_is_told_by_the_cause(
    sshd_with: SshdFactory, options: dict[str, Any], kind: type[FastcopyError], words: str
) -> None:
    """The five ways of having no SFTP each have their own sentence."""
    error = await explained(sshd_with(**options))
    assert (type(error), error.exit_code) == (kind, 3)
    assert words in str(error)


async def test_text_is_told_when_the_channel_was_closed_before_asking(sshd_with: SshdFactory) -> None:
    """A client that closes at the first wrong byte still learns why."""
    sshd = sshd_with(ForceCommand=f"echo Welcome; exec {sftp_server_path()}")
    assert type(await explained(sshd, close_first=True)) is ServerPrintsText


async def test_a_lost_login_is_told_as_such(sshd_with: SshdFactory) -> None:
    """Once sshd's session is killed its channels end, and no new one is tried elsewhere."""
    sshd = sshd_with()
    async with connected(sshd) as connection:
        transport = await connection.open_sftp()
        assert (await first_bytes(transport))[4:9] == VERSION
        for pid in sshd.session_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert await first_bytes(transport) == b""
        assert type(await connection.explain(transport, b"")) is ChannelLost
        with pytest.raises(ChannelLost):
            await connection.open_sftp()
        with pytest.raises(ChannelLost):
            await connection.run("true")
        transport.close()
    assert sshd.logins() == 1


async def test_a_key_the_server_does_not_know_is_a_refused_login(sshd: Sshd, tmp_path: Path) -> None:
    """The sentence names the user and what the server takes."""
    config = sshd.write_client_config(tmp_path / "config", IdentityFile=sshd.keys.host)
    error = await refusal(sshd, config_file=str(config))
    assert (type(error), error.exit_code) == (LoginRefused, 3)
    assert "it accepts publickey" in str(error)


def fingerprint_of(key: Path) -> str:
    return subprocess.check_output(["ssh-keygen", "-lf", f"{key}.pub"], text=True).split()[1]


async def test_an_unknown_host_key_is_refused_with_its_fingerprint(sshd: Sshd, tmp_path: Path) -> None:
    """Nobody can be asked, so nobody is trusted."""
    config = sshd.write_client_config(tmp_path / "config", UserKnownHostsFile="/dev/null", StrictHostKeyChecking="ask")
    error = await refusal(sshd, config_file=str(config))
    fingerprint = await asyncio.to_thread(fingerprint_of, sshd.keys.host)
    assert (type(error), error.exit_code) == (HostKeyUnknown, 6)
    assert fingerprint in str(error)


async def test_a_changed_host_key_is_refused_with_the_way_out(sshd: Sshd, tmp_path: Path) -> None:
    """The sentence holds the very ssh-keygen command that forgets the old key."""
    kind, key = sshd.keys.client.with_suffix(".pub").read_text().split()[:2]
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[{sshd.host}]:{sshd.port} {kind} {key}\n")
    config = sshd.write_client_config(tmp_path / "config", UserKnownHostsFile=known_hosts)
    error = await refusal(sshd, config_file=str(config))
    assert (type(error), error.exit_code) == (HostKeyChanged, 6)
    assert f"ssh-keygen -R [{sshd.host}]:{sshd.port}" in str(error)


async def test_a_revoked_host_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    """A key marked @revoked is told to be so."""
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"@revoked {sshd.known_hosts.read_text()}")
    config = sshd.write_client_config(tmp_path / "config", UserKnownHostsFile=known_hosts)
    error = await refusal(sshd, config_file=str(config))
    assert (error.exit_code, "is marked as revoked" in str(error)) == (6, True)


async def test_a_port_nobody_listens_on_is_refused(sshd: Sshd) -> None:
    """Connection refused, with the port."""
    error = await refusal(sshd, port=1)
    assert (type(error), "port 1: Connection refused" in str(error)) == (ConnectionRefused, True)


async def test_an_unknown_host_is_told(sshd: Sshd) -> None:
    """A name that cannot be resolved."""
    error = await refusal(sshd, options=("HostName=nope.invalid",))
    assert (type(error), "nope.invalid" in str(error)) == (HostUnknown, True)


async def test_a_cipher_the_server_refuses_tells_what_it_offers(sshd_with: SshdFactory) -> None:
    """What was asked and what is offered stand side by side."""
    error = await refusal(sshd_with(Ciphers="aes256-ctr"), ciphers=("aes128-gcm",))
    assert str(error) == (
        "t has none of the ciphers asked for (aes128-gcm@openssh.com); it offers: aes256-ctr. "
        "Choose one of those with -c."
    )
    assert type(error) is CipherRefused


async def test_a_cipher_of_old_scripts_is_told_to_be_gone(sshd: Sshd) -> None:
    """arcfour fails before anything is reached, naming its replacement."""
    error = await refusal(sshd, ciphers=("arcfour",))
    assert (type(error), error.exit_code) == (InvalidValue, 2)
    assert "use aes128-gcm@openssh.com instead" in str(error)


async def test_the_cipher_asked_for_is_the_one_used(sshd: Sshd) -> None:
    """A short name is enough, and the login tells what was settled."""
    async with connected(sshd, ciphers=("aes256-gcm",)) as connection:
        assert connection.info.cipher == "aes256-gcm@openssh.com"


async def test_compression_is_told(sshd: Sshd) -> None:
    """-C shows in what the login settled on."""
    async with connected(sshd, compress=True) as connection:
        assert connection.info.compress is True


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"config_file": "/no/such/config"}, "--ssh-config"),
        ({"options": ("NoSuchOption=1",)}, "-o"),
        ({"identities": ("/no/such/key",)}, "--identity"),
        ({"ciphers": ("aes",)}, "--cipher"),
    ],
)
async def test_options_ssh_does_not_understand_are_usage_errors(
    sshd: Sshd, options: dict[str, object], option: str
) -> None:
    """A bad option ends with exit 2 and its name, before anything is reached."""
    error = await refusal(sshd, **options)
    assert (type(error), error.exit_code, error.details["option"]) == (InvalidValue, 2, option)


async def test_a_host_that_looks_like_an_option_is_none(sshd: Sshd) -> None:
    """`-oProxyCommand=...` as a host runs nothing."""
    connector = OpensshConnector("-oProxyCommand=touch /tmp/pwned", None, SshOptions())
    with pytest.raises(InvalidValue):
        await connector.connect(interactive=False)
    await connector.close()


async def _serve_once(answer: bytes, *, hang: bool = False) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        if hang:
            await reader.read()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ConnectionRefused, "does not speak SSH"),
        (b"Exceeded MaxStartups\r\n", TooManyLogins, "MaxStartups"),
        (b"Not allowed at this time\r\n", LoginRefused, "PerSourcePenalties"),
        (b"", TooManyLogins, "before SSH began"),
    ],
)
async def test_a_greeting_that_is_none_is_told(
    sshd: Sshd, answer: bytes, kind: type[FastcopyError], words: str
) -> None:
    """Web servers, drops and penalties are told apart by what comes before SSH begins."""
    async with await _serve_once(answer) as server:
        error = await refusal(sshd, port=server.sockets[0].getsockname()[1])
    assert type(error) is kind
    assert words in str(error)


async def test_a_mute_host_is_given_up_in_time(sshd: Sshd) -> None:
    """A peer that takes the connection and says nothing ends in ConnectTimeout, with no process left."""
    async with await _serve_once(b"", hang=True) as server:
        error = await refusal(sshd, port=server.sockets[0].getsockname()[1], connect_timeout_s=0.5)
    assert type(error) is ConnectTimeout


async def test_a_jump_host_is_gone_through(sshd: Sshd, tmp_path: Path) -> None:
    """ProxyJump works, and what fails at the jump host is told as on the way there."""
    there = sshd.write_client_config(tmp_path / "config").read_text().removeprefix("Host t\n")
    config = tmp_path / "both"
    config.write_text(f"Host t\n{there}    ProxyJump hop\nHost hop\n{there}Host gone\n    Port 1\n{there}")
    async with connected(sshd, config_file=str(config)) as connection:
        assert (await connection.run("echo through")).stdout == b"through\n"
    error = await refusal(sshd, config_file=str(config), jump="gone")
    assert (type(error), "on the way there" in str(error)) == (ConnectionRefused, True)


async def test_what_ssh_config_does_to_interactive_logins_does_no_harm(sshd_with: SshdFactory, tmp_path: Path) -> None:
    """Forwards, remote and local commands, ttys and going to the background are all kept out."""
    sshd = sshd_with()
    config = sshd.write_client_config(
        tmp_path / "config",
        LocalForward="127.0.0.1:1 127.0.0.1:1",
        ExitOnForwardFailure="yes",
        RemoteCommand="false",
        RequestTTY="force",
        ForkAfterAuthentication="yes",
        PermitLocalCommand="yes",
        LocalCommand=f"touch {tmp_path}/harm",
        LogLevel="QUIET",
    )
    async with connected(sshd, config_file=str(config)) as connection:
        transport = await connection.open_sftp()
        assert (await first_bytes(transport))[4:9] == VERSION
        transport.close()
    assert not (tmp_path / "harm").exists()


class OwnMaster:
    """An ssh master such as a user keeps: `server` has the one login, `config` the ControlPath."""

    def __init__(self, server: Sshd, directory: Path) -> None:
        self.server = server
        self.path = Path(tempfile.mkdtemp(prefix="fc-", dir="/tmp")) / "own"
        self.config = server.write_client_config(directory / "config", ControlPath=self.path, ControlMaster="auto")
        self.process = subprocess.Popen(["ssh", "-F", str(self.config), "-MN", "t"], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while not self.path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.path.parent.rmdir()


@pytest.fixture
def own_master(sshd_with: SshdFactory, tmp_path: Path) -> Iterator[OwnMaster]:
    master = OwnMaster(sshd_with(), tmp_path)
    yield master
    master.close()


async def test_the_users_own_master_is_left_alone_unless_asked(own_master: OwnMaster) -> None:
    """A ControlMaster in the ssh_config is not used: the job has a login of its own."""
    connector = OpensshConnector("t", None, SshOptions(config_file=str(own_master.config)))
    connection = await connector.connect(interactive=False)
    assert (await connection.run("echo own")).stdout == b"own\n"
    assert own_master.server.logins() == 2
    await connection.close()
    await connector.close()
    assert own_master.process.poll() is None


async def test_the_users_own_master_is_reused_when_asked(own_master: OwnMaster) -> None:
    """It serves channels and commands, is the only login there is, and lives on."""
    connector = OpensshConnector("t", None, SshOptions(config_file=str(own_master.config), reuse_master=True))
    connection = await connector.connect(interactive=False)
    transport = await connection.open_sftp()
    assert (await first_bytes(transport))[4:9] == VERSION
    transport.close()
    assert (await connection.run("echo reused")).stdout == b"reused\n"
    with pytest.raises(LoginRefused):
        await connector.connect(interactive=False)
    await connection.close()
    await connector.close()
    assert (own_master.server.logins(), own_master.process.poll()) == (1, None)


async def test_no_living_master_to_reuse_is_told(sshd_with: SshdFactory) -> None:
    """--reuse-master without one tells how to start it, and does not log in."""
    sshd = sshd_with()
    error = await refusal(sshd, reuse_master=True)
    assert (type(error), "ssh -fNM t" in str(error), sshd.logins()) == (ConnectError, True, 0)


async def test_logins_of_one_connector_run_side_by_side(sshd: Sshd) -> None:
    """Three further logins at once share one private directory and one reading of ssh_config."""
    async with connector_to(sshd) as connector:
        connections = await asyncio.gather(*(connector.connect(interactive=False) for _ in range(3)))
        outputs = [(await connection.run("echo $PPID")).stdout for connection in connections]
        await asyncio.gather(*(connection.close() for connection in connections))
    assert len(set(outputs)) == 3


async def test_cpu_of_what_ended_is_counted(sshd: Sshd) -> None:
    """A login alone costs some milliseconds of CPU, and after the end all of it is known."""
    async with connected(sshd) as connection:
        assert connection.cpu_of_ended_processes().total_s == 0.0
        await connection.run("true")
        of_command = connection.cpu_of_ended_processes().total_s
        assert of_command > 0.0
    assert connection.cpu_of_ended_processes().total_s > of_command


async def test_closing_twice_and_late_is_harmless(sshd: Sshd) -> None:
    """Close is idempotent, ends open channels, and a transport may be closed after it."""
    async with connected(sshd) as connection:
        transport = await connection.open_sftp()
        await connection.close()
        await connection.close()
        assert await first_bytes(transport) == b""
        transport.close()


@pytest.mark.parametrize("stage", range(12))
async def test_cancelling_a_login_at_any_stage_leaves_nothing(sshd: Sshd, stage: int) -> None:
    """From before ssh -G to about the last step of the login; once, and twice in a row."""
    async with connector_to(sshd) as connector:
        began = time.monotonic()
        await (await connector.connect(interactive=False)).close()
        took_s = time.monotonic() - began
    async with connector_to(sshd) as connector:
        task = asyncio.create_task(connector.connect(interactive=False))
        await asyncio.sleep(took_s * stage / 12)
        task.cancel()
        if stage % 2:
            await asyncio.sleep(0)
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).close()


@pytest.mark.parametrize("steps", range(0, 40, 4))
async def test_cancelling_a_channel_at_any_stage_leaves_nothing(sshd: Sshd, steps: int) -> None:
    """Opening a channel is given up after some milliseconds of it, and the login goes on."""
    async with connected(sshd) as connection:
        task = asyncio.create_task(connection.open_sftp())
        await asyncio.sleep(steps / 1000)
        task.cancel()
        try:
            (await task).close()
        except asyncio.CancelledError:
            assert [line for line in children() if " -s -- t sftp" in line] == []
        assert (await connection.run("echo on")).stdout == b"on\n"


async def test_cancelling_a_command_leaves_nothing(sshd: Sshd) -> None:
    """A command is given up while it runs."""
    async with connected(sshd) as connection:
        task = asyncio.create_task(connection.run("exec sleep 1000", timeout_s=PATIENCE_S))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [line for line in children() if "sleep 1000" in line] == []


async def test_cancelling_the_end_of_a_login_ends_it_all_the_same(sshd: Sshd) -> None:
    """An impatient second Ctrl-C leaves no process either."""
    async with connector_to(sshd) as connector:
        connection = await connector.connect(interactive=False)
        transport = await connection.open_sftp()
        task = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [line for line in children() if "guardian" not in line] == []
        transport.close()


#: Logs in, prints its pid's children, and waits to be killed.
VICTIM = """
import asyncio, sys, tempfile
from fastcopy.config import SshOptions
from fastcopy.connection.openssh import OpensshConnector
tempfile.tempdir = sys.argv[2]
async def main():
    connector = OpensshConnector("t", None, SshOptions(config_file=sys.argv[1]))
    connection = await connector.connect(interactive=False)
    transport = await connection.open_sftp()
    print("up", flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


def test_a_killed_client_leaves_no_login(sshd_with: SshdFactory, private_parent: Path) -> None:
    """SIGKILL cannot be caught; the guardian ends the master and removes the private directory."""
    sshd = sshd_with()
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(sshd.client_config), str(private_parent)], stdout=subprocess.PIPE, text=True
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "up\n"
    processes = psutil.Process(victim.pid).children(recursive=True)
    assert len([process for process in processes if "-M" in process.cmdline()]) == 1
    victim.kill()
    victim.wait()
    victim.stdout.close()
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert ([process.cmdline() for process in alive], list(private_parent.iterdir())) == ([], [])
    assert sshd.wait_idle() == []


#: Logs in on the terminal, then shrugs off a Ctrl-C and runs a command over the login.
PERSON = """
import asyncio, signal, sys, tempfile
from fastcopy.config import SshOptions
from fastcopy.connection.openssh import OpensshConnector
tempfile.tempdir = sys.argv[2]
signal.signal(signal.SIGINT, lambda *_: print("INTERRUPTED", flush=True))
async def main():
    connector = OpensshConnector("t", None, SshOptions(config_file=sys.argv[1]))
    connection = await connector.connect(interactive=True)
    print("LOGGED IN", flush=True)
    sys.stdin.readline()
    print((await connection.run("echo STILL THERE")).stdout.decode(), flush=True)
    await connection.close()
    await connector.close()
asyncio.run(main())
"""


class Terminal:
    """A program on a terminal of its own, and a person who reads and types."""

    def __init__(self, argv: list[str]) -> None:
        pid, self.fd = pty.fork()
        if pid == 0:
            os.execv(argv[0], argv)
        self.process = psutil.Process(pid)
        self.shown = ""

    def expect(self, words: str) -> None:
        """Read until `words` are shown."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.shown and time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.shown += os.read(self.fd, 4096).decode(errors="replace")
        assert words in self.shown
        self.shown = self.shown.split(words, 1)[1]

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def shows_typing(self) -> bool:
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)

    def wait(self) -> int | None:
        """Wait until the program has ended; return its exit status."""
        status: int | None = self.process.wait(PATIENCE_S)
        return status

    def close(self) -> None:
        """Hang up: what still runs there is killed."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.kill()
            self.process.wait()
        os.close(self.fd)


@pytest.fixture
def terminal_for(private_parent: Path) -> Iterator[Callable[[str, Path], Terminal]]:
    """Runs a script with this ssh_config on a terminal that is hung up with the test."""
    terminals: list[Terminal] = []

    def run(script: str, config: Path) -> Terminal:
        terminals.append(Terminal([sys.executable, "-c", script, str(config), str(private_parent)]))
        return terminals[-1]

    yield run
    for terminal in terminals:
        terminal.close()


@pytest.fixture
def locked_key(sshd: Sshd, tmp_path: Path) -> Path:
    """A copy of the client key, under the passphrase `open sesame`."""
    key = tmp_path / "locked"
    shutil.copy(sshd.keys.client, key)
    lock = ["ssh-keygen", "-q", "-p", "-N", "open sesame", "-f", str(key)]
    subprocess.run(lock, check=True, stdout=subprocess.DEVNULL)
    return key


#: Gives up at the first Ctrl-C, as the command line does.
QUITTER = """
import asyncio, sys, tempfile
from fastcopy.config import SshOptions
from fastcopy.connection.openssh import OpensshConnector
tempfile.tempdir = sys.argv[2]
async def main():
    connector = OpensshConnector("t", None, SshOptions(config_file=sys.argv[1]))
    try:
        await connector.connect(interactive=True)
    finally:
        await connector.close()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupted_question_leaves_the_terminal_as_it_was(
    sshd: Sshd, tmp_path: Path, locked_key: Path, terminal_for: Callable[[str, Path], Terminal]
) -> None:
    """Ctrl-C at the passphrase ends ssh in order: what is typed afterwards is shown again."""
    config = sshd.write_client_config(tmp_path / "config", IdentityFile=locked_key, IdentityAgent="none")
    terminal = terminal_for(QUITTER, config)
    terminal.expect("Enter passphrase")
    assert not terminal.shows_typing()
    terminal.type("\x03")
    assert (terminal.wait(), terminal.shows_typing()) == (130, True)


def test_the_first_login_asks_on_the_terminal_and_survives_its_interrupt(
    sshd: Sshd, tmp_path: Path, locked_key: Path, terminal_for: Callable[[str, Path], Terminal]
) -> None:
    """The host key question and the passphrase are asked as ssh asks; a later Ctrl-C does not reach the login."""
    config = sshd.write_client_config(
        tmp_path / "config",
        IdentityFile=locked_key,
        UserKnownHostsFile=tmp_path / "known_hosts",
        StrictHostKeyChecking="ask",
        IdentityAgent="none",
    )
    terminal = terminal_for(PERSON, config)
    terminal.expect("continue connecting")
    terminal.type("yes\n")
    terminal.expect("Permanently added")
    terminal.expect("Enter passphrase")
    terminal.type("open sesame\n")
    terminal.expect("LOGGED IN")
    terminal.type("\x03")
    terminal.type("\n")
    terminal.expect("INTERRUPTED")
    terminal.expect("STILL THERE")
    assert terminal.wait() == 0


def test_no_terminal_means_no_question(sshd: Sshd, tmp_path: Path, private_parent: Path) -> None:
    """Interactive or not: without a terminal an unknown host key is an error at once."""
    config = sshd.write_client_config(tmp_path / "config", UserKnownHostsFile="/dev/null", StrictHostKeyChecking="ask")
    run = subprocess.run(
        [sys.executable, "-c", PERSON, str(config), str(private_parent)],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, "HostKeyUnknown" in run.stderr) == (1, True)
    deadline = time.monotonic() + PATIENCE_S  # the script dies without closing: that is the guardian's work
    while list(private_parent.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
