"""Which hosts asyncssh logs in to: known_hosts and StrictHostKeyChecking, with files of OpenSSH's own making."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fastcopy.errors import (
    HostKeyChanged,
    HostKeyUnknown,
    UnsafePeer,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import SshdFactory
    from tests.support.sshd import Keys, Sshd

from tests.support.asyncssh_logins import Person, connector, login, new_key, refused, run


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the home and the agent of whoever runs the tests is seen."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


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
