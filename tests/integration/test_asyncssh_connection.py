"""Logins, channels and commands by asyncssh, against a real sshd and against the embedded server.

What a login is allowed, what it asks, what it refuses, and that nothing of it stays behind.
"""

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
    HostKeyChanged,
    HostKeyUnknown,
    HostUnknown,
    InvalidValue,
    LoginRefused,
    NoSftp,
    ServerPrintsText,
    TooManyLogins,
    TooManySessions,
    UnsafePeer,
)
from tests.support.sshd import sshd_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from fastcopy.connection.asyncssh_connection import AsyncsshConnection
    from fastcopy.transport.base import Transport
    from tests.conftest import SshdFactory
    from tests.support.sshd import Keys, Sshd

#: Seconds for one step of a pump on a busy machine.
WAIT_S = 30.0
INIT = b"\0\0\0\5\1\0\0\0\3"


class Person:
    """Answers what is asked from a list, and keeps the prompts."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []

    async def ask(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        return self.answers.pop(0)


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the home and the agent of whoever runs the tests is seen."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def connector(server: Sshd, person: Person | None = None, *options: str, **flags: Any) -> AsyncsshConnector:
    """Return a connector to host `t` of the server's ssh_config."""
    given = {"config_file": str(server.client_config), "options": options, **flags}
    return AsyncsshConnector("t", None, SshOptions(**given), ask=person.ask if person else None)


@contextlib.asynccontextmanager
async def login(
    server: Sshd, person: Person | None = None, *options: str, **flags: Any
) -> AsyncIterator[AsyncsshConnection]:
    """One login, interactive where there is a person."""
    made = connector(server, person, *options, **flags)
    connection = await made.connect(interactive=person is not None)
    try:
        yield connection
    finally:
        await connection.close()
        await made.close()


async def refused(made: AsyncsshConnector, *, interactive: bool = True) -> Exception:
    """Try to log in and return why that failed."""
    try:
        connection = await made.connect(interactive=interactive)
    except Exception as exc:
        return exc
    await connection.close()
    raise AssertionError("the login was not refused")


def read(transport: Transport, count: int) -> bytes:
    """Read `count` bytes, fewer at the peer's end."""
    got = bytearray()
    while len(got) < count:
        piece = transport.read(count - len(got))
        if piece is None:
            transport.wait(readable=True, writable=False, timeout_s=WAIT_S)
        elif piece:
            got += piece
        else:
            break
    return bytes(got)


def hello(transport: Transport) -> bytes:
    """Send INIT and return the type and the number of the answer."""
    assert transport.write(INIT) == len(INIT)
    return read(transport, 9)[4:]


def run(*command: object) -> str:
    """Run a program of OpenSSH's and return what it printed."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout


def new_key(path: Path, *, passphrase: str = "", kind: str = "ed25519", form: str = "RFC4716") -> Path:
    """Make a key pair; RFC4716 stands for OpenSSH's own format."""
    run("ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-m", form, "-C", "test", "-f", path)
    return path


def allow(server: Sshd, key: Path) -> None:
    """Let `key` log in to `server`, and nobody else."""
    (server.directory / "authorized_keys").write_text(key.with_suffix(".pub").read_text())


# --- a login that works -------------------------------------------------------------------------------------------


async def test_login_by_key(sshd: Sshd) -> None:
    """A key of ssh_config logs in; cipher and server are told; commands run and SFTP answers."""
    async with login(sshd) as connection:
        assert (connection.info.way, connection.info.compress) == ("asyncssh", False)
        assert (connection.info.server_version or "").startswith("OpenSSH")
        ran = await connection.run("cat; echo err >&2; exit 3", stdin=b"hello")
        assert (ran.exit_status, ran.stdout, ran.stderr) == (3, b"hello", b"err\n")
        transport = await connection.open_sftp()
        assert await asyncio.to_thread(hello, transport) == b"\x02\0\0\0\x03"
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


# --- what is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["with .pub", "alone", "old PEM alone"])
async def test_passphrase_is_asked_once(sshd_with: SshdFactory, tmp_path: Path, form: str) -> None:
    """An encrypted key, with and without its public half beside it, costs one passphrase for three logins."""
    server = sshd_with()
    old = {"kind": "rsa", "form": "PEM"} if form.startswith("old") else {}
    key = new_key(tmp_path / "locked", passphrase="sesame", **old)
    allow(server, key)
    if "alone" in form:
        key.with_suffix(".pub").unlink()
    person = Person("sesame")
    made = connector(server, person, identities=(str(key),))
    connections = [await made.connect(interactive=number == 0) for number in range(3)]
    assert person.prompts == [f"Enter passphrase for key '{key}': "]
    for connection in connections:
        await connection.close()
    await made.close()


async def test_wrong_passphrase_is_a_refused_login(sshd_with: SshdFactory, tmp_path: Path) -> None:
    """A wrong passphrase is told, and not asked for again."""
    server = sshd_with()
    key = new_key(tmp_path / "locked", passphrase="sesame")
    allow(server, key)
    person = Person("semolina")
    made = connector(server, person, identities=(str(key),))
    first, second = await refused(made), await refused(made)
    assert (type(first), type(second), len(person.prompts)) == (LoginRefused, LoginRefused, 1)
    assert f"{key} cannot be unlocked with that: Incorrect passphrase" in str(first)
    assert "semolina" not in str(first) + repr(made) + repr(made.warnings)


async def test_passphrase_is_not_asked_for_a_key_nobody_wants(sshd_with: SshdFactory, tmp_path: Path) -> None:
    """The server is asked about the public half first: a key it does not know is never unlocked."""
    key = new_key(tmp_path / "locked", passphrase="sesame")
    person = Person()
    async with login(sshd_with(), person, identities=(str(key),)):
        assert person.prompts == []


async def test_nobody_to_ask(sshd_with: SshdFactory, tmp_path: Path) -> None:
    """Without a person, under BatchMode, and for all but the first login, an encrypted key is a refused login."""
    server = sshd_with()
    key = new_key(tmp_path / "locked", passphrase="sesame")
    allow(server, key)
    person = Person()
    keys = (str(key),)
    assert type(await refused(connector(server, None, identities=keys))) is LoginRefused
    assert type(await refused(connector(server, person, "BatchMode=yes", identities=keys))) is LoginRefused
    assert type(await refused(connector(server, person, identities=keys), interactive=False)) is LoginRefused
    assert person.prompts == []


# --- which host ---------------------------------------------------------------------------------------------------


def host_key(keys: Keys) -> str:
    """The server's key as in known_hosts, without names."""
    return " ".join(keys.host.with_suffix(".pub").read_text().split()[:2])


@pytest.fixture
def shown(keys: Keys) -> str:
    """The server's fingerprint."""
    return run("ssh-keygen", "-lf", keys.host).split()[1]


def knowing(tmp_path: Path, *lines: str) -> str:
    """Return the option that makes these the known hosts."""
    file = tmp_path / "known"
    file.write_text("".join(f"{line}\n" for line in lines))
    return f"UserKnownHostsFile={file}"


@pytest.mark.parametrize("strictness", ["yes", "ask"])
async def test_unknown_host_key(sshd: Sshd, tmp_path: Path, shown: str, strictness: str) -> None:
    """A key nobody knows is refused where there is nobody to ask, and the error shows its fingerprint."""
    error = await refused(connector(sshd, None, knowing(tmp_path), f"StrictHostKeyChecking={strictness}"))
    assert (type(error), shown in str(error)) == (HostKeyUnknown, True)
    assert (tmp_path / "known").read_text() == ""


async def test_unknown_host_key_that_the_user_accepts(sshd: Sshd, tmp_path: Path, shown: str) -> None:
    """Asked and answered with yes, the key is kept: the next login, and the next job, do not ask."""
    person = Person("yes")
    options = (knowing(tmp_path), "StrictHostKeyChecking=ask")
    made = connector(sshd, person, *options)
    for _ in range(2):
        await (await made.connect(interactive=True)).close()
    assert (len(person.prompts), shown in person.prompts[0], "yes/no" in person.prompts[0]) == (1, True, True)
    async with login(sshd, None, *options):
        pass


async def test_unknown_host_key_that_the_user_declines(sshd: Sshd, tmp_path: Path) -> None:
    """Anything but yes is no."""
    made = connector(sshd, Person("y"), knowing(tmp_path), "StrictHostKeyChecking=ask")
    assert type(await refused(made)) is HostKeyUnknown
    assert (tmp_path / "known").read_text() == ""


@pytest.mark.parametrize("strictness", ["yes", "ask", "accept-new"])
async def test_changed_host_key(sshd: Sshd, tmp_path: Path, shown: str, strictness: str) -> None:
    """Another key than the known one is refused, whoever is there to ask; the name to forget is told."""
    other = new_key(tmp_path / "other").with_suffix(".pub").read_text()
    name = f"[{sshd.host}]:{sshd.port}"
    known = knowing(tmp_path, f"{name} {other}")
    error = await refused(connector(sshd, Person(), known, f"StrictHostKeyChecking={strictness}"))
    assert (type(error), shown in str(error), f"ssh-keygen -R {name}" in str(error)) == (HostKeyChanged, True, True)


async def test_changed_host_key_of_another_type(sshd: Sshd, tmp_path: Path) -> None:
    """A host known by an RSA key that shows an Ed25519 one has changed too: no way around by the type."""
    other = new_key(tmp_path / "other", kind="rsa").with_suffix(".pub").read_text()
    known = knowing(tmp_path, f"[{sshd.host}]:{sshd.port} {other}")
    assert type(await refused(connector(sshd, None, known, "StrictHostKeyChecking=accept-new"))) is HostKeyChanged


async def test_the_known_type_is_asked_for(keys: Keys, sshd_with: SshdFactory, tmp_path: Path) -> None:
    """A server with several host keys shows the one we know, not the one it likes best."""
    rsa = new_key(tmp_path / "rsa", kind="rsa")
    server = sshd_with(HostKey=f"{keys.host}\nHostKey {rsa}")
    line = f"[{server.host}]:{server.port} {rsa.with_suffix('.pub').read_text()}"
    async with login(server, None, knowing(tmp_path, line)):
        pass


async def test_revoked_host_key(sshd: Sshd, keys: Keys, tmp_path: Path) -> None:
    """A key marked @revoked is refused even where no key is asked for."""
    known = knowing(tmp_path, f"@revoked * {host_key(keys)}")
    error = await refused(connector(sshd, None, known, "StrictHostKeyChecking=no"))
    assert (type(error), "revoked" in str(error), error.exit_code) == (UnsafePeer, True, 6)  # type: ignore[attr-defined] # a FastcopyError


async def test_host_certificate(keys: Keys, sshd_with: SshdFactory, tmp_path: Path) -> None:
    """A host certificate is accepted when its authority is known; without one, the plain key of the host counts."""
    authority = new_key(tmp_path / "authority")
    own = new_key(tmp_path / "own")
    run("ssh-keygen", "-q", "-s", authority, "-I", "test", "-h", "-n", "127.0.0.1", f"{own}.pub")
    server = sshd_with(HostKey=own, HostCertificate=f"{own}-cert.pub")
    public = authority.with_suffix(".pub").read_text()
    async with login(server, None, knowing(tmp_path, f"@cert-authority * {public}")):
        pass
    plain = own.with_suffix(".pub").read_text()
    async with login(server, None, knowing(tmp_path, f"[127.0.0.1]:{server.port} {plain}")):
        pass
    other = keys.host.with_suffix(".pub").read_text()
    error = await refused(connector(server, None, knowing(tmp_path, f"@cert-authority * {other}")))
    assert type(error) is HostKeyUnknown


async def test_hashed_names(sshd: Sshd, keys: Keys, tmp_path: Path) -> None:
    """An entry that ssh-keygen hashed is found."""
    known = knowing(tmp_path, f"[{sshd.host}]:{sshd.port} {host_key(keys)}")
    run("ssh-keygen", "-q", "-H", "-f", tmp_path / "known")
    assert (tmp_path / "known").read_text().startswith("|1|")
    async with login(sshd, None, known):
        pass


async def test_accept_new_writes_what_ssh_reads(sshd: Sshd, keys: Keys, tmp_path: Path) -> None:
    """accept-new keeps the key in a file, and makes its directory; ssh-keygen finds it there under the host's name."""
    file = tmp_path / "new" / ".ssh" / "known"
    options = (f"UserKnownHostsFile={file}", "StrictHostKeyChecking=accept-new", "HashKnownHosts=yes")
    async with login(sshd, None, *options):
        pass
    assert host_key(keys) in run("ssh-keygen", "-F", f"[{sshd.host}]:{sshd.port}", "-f", file)


async def test_home_that_cannot_be_written(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no file can be kept the login works all the same, with a warning."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("HOME", str(blocked))
    made = connector(sshd, None, "UserKnownHostsFile=~/.ssh/known_hosts", "StrictHostKeyChecking=accept-new")
    for _ in range(2):
        await (await made.connect(interactive=False)).close()
    assert [("could not be kept" in warning) for warning in made.warnings] == [True]


async def test_no_checking_goes_on_with_a_warning(sshd: Sshd, tmp_path: Path) -> None:
    """StrictHostKeyChecking=no goes on with a changed key, as ssh does, and says so."""
    other = new_key(tmp_path / "other").with_suffix(".pub").read_text()
    made = connector(sshd, None, knowing(tmp_path, f"[{sshd.host}]:{sshd.port} {other}"), "StrictHostKeyChecking=no")
    await (await made.connect(interactive=False)).close()
    assert ["HAS CHANGED" in warning for warning in made.warnings] == [True]


# --- on the way there ---------------------------------------------------------------------------------------------


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


# --- a login that cannot be ---------------------------------------------------------------------------------------


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


# --- channels and commands ----------------------------------------------------------------------------------------


async def test_too_many_sessions(sshd_with: SshdFactory) -> None:
    """MaxSessions 1: the second channel is refused by name, no new login is made, and the first one works on."""
    server = sshd_with(MaxSessions=1)
    async with login(server) as connection:
        transport = await connection.open_sftp()
        with pytest.raises(TooManySessions):
            await connection.open_sftp()
        with pytest.raises(TooManySessions):
            await connection.run("true")
        assert await asyncio.to_thread(hello, transport) == b"\x02\0\0\0\x03"
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


# --- nothing stays behind -----------------------------------------------------------------------------------------


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
