"""Passphrases, passwords and codes: asked once a job, never shown, never sent twice."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from fastcopy.config import SshOptions
from fastcopy.connection.asyncssh_login import AsyncsshConnector
from fastcopy.demo.server import DemoLogin, DemoServer
from fastcopy.errors import LoginRefused
from tests.support.asyncssh_logins import Person, allow, connector, login, new_key, refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.conftest import SshdFactory


class TakesPassword(DemoLogin):
    """Lets in who knows the password, and notes every one it is sent."""

    sent: ClassVar[list[str]]

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        self.sent.append(password)
        return bool(password == "sesame")


class AsksQuestions(DemoLogin):
    """Lets in who answers all questions right; an echoed one is a code, good for one login."""

    questions: ClassVar[list[tuple[str, bool]]] = [("Password: ", False)]
    sent: ClassVar[list[str]]

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> Any:
        return "", "", "", self.questions

    def validate_kbdint_response(self, username: str, responses: Any) -> bool:
        self.sent.extend(responses)
        return bool(responses[0] == "sesame")


class AsksCode(AsksQuestions):
    """Asks for the password and then for a code."""

    questions = [("Password: ", False), ("Code\x1b[2J: ", True)]  # noqa: RUF012 -- a ClassVar above


@contextlib.asynccontextmanager
async def asking(
    kind: type[DemoLogin], root: Path, person: Person | None, *options: str
) -> AsyncIterator[tuple[AsyncsshConnector, list[str]]]:
    """A server that wants a password, a connector without keys to it, and what the server was sent."""
    sent: list[str] = []
    made = type("Login", (kind,), {"sent": sent})
    async with DemoServer(root, login_class=made) as server:
        given = SshOptions(
            port=server.port,
            config_file="none",
            options=(*options, f"UserKnownHostsFile={server.known_hosts_path}", "IdentityFile=none"),
        )
        yield AsyncsshConnector(server.host, "u", given, ask=person.ask if person else None), sent


async def logins(made: AsyncsshConnector, count: int) -> list[bool]:
    """Log in `count` times, the first one interactive; return whether each said that it was typed."""
    connections = [await made.connect(interactive=number == 0) for number in range(count)]
    for connection in connections:
        await connection.close()
    return [connection.info.login_is_typed for connection in connections]


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the home and the agent of whoever runs the tests is seen."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


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


@pytest.mark.parametrize("kind", [TakesPassword, AsksQuestions])
async def test_password_is_asked_once(tmp_path: Path, kind: type[DemoLogin]) -> None:
    """A password costs one question for three logins, also where the server asks for it by keyboard-interactive."""
    person = Person("sesame")
    async with asking(kind, tmp_path, person) as (made, sent):
        assert await logins(made, 3) == [False] * 3  # a further login asks nobody
        assert (len(person.prompts), "u@127.0.0.1" in person.prompts[0], sent) == (1, True, ["sesame"] * 3)
        await made.close()
        assert "sesame" not in repr(vars(made))


@pytest.mark.parametrize("kind", [TakesPassword, AsksQuestions])
async def test_wrong_password_is_sent_once(tmp_path: Path, kind: type[DemoLogin]) -> None:
    """A wrong password is a refused login, and is neither asked for nor sent again: no account is locked by us."""
    person = Person("semolina")
    async with asking(kind, tmp_path, person) as (made, sent):
        first, second = await refused(made), await refused(made)
        assert (type(first), type(second), sent, len(person.prompts)) == (LoginRefused, LoginRefused, ["semolina"], 1)
        assert "semolina" not in str(first) + repr(first) + repr(made)


async def test_code_is_good_for_one_login(tmp_path: Path) -> None:
    """A one-time code is asked for, shown without its control characters, never kept, and told as typed."""
    person = Person("sesame", "123456")
    async with asking(AsksCode, tmp_path, person) as (made, sent):
        assert await logins(made, 1) == [True]
        assert person.prompts == ["(u@127.0.0.1) Password: ", r"(u@127.0.0.1) Code\x1b[2J: "]
        assert type(await refused(made, interactive=False)) is LoginRefused
        assert sent == ["sesame", "123456"]


@pytest.mark.parametrize("kind", [TakesPassword, AsksQuestions])
async def test_no_password_without_a_person(tmp_path: Path, kind: type[DemoLogin]) -> None:
    """Where nobody is asked (no person, BatchMode, a further login) nothing is sent."""
    person = Person()
    async with asking(kind, tmp_path, None) as (made, sent):
        assert (type(await refused(made)), sent) == (LoginRefused, [])
    async with asking(kind, tmp_path, person, "BatchMode=yes") as (made, sent):
        assert (type(await refused(made)), sent) == (LoginRefused, [])
    async with asking(kind, tmp_path, person) as (made, sent):
        assert (type(await refused(made, interactive=False)), sent) == (LoginRefused, [])
    assert person.prompts == []


@pytest.mark.parametrize("kind", [TakesPassword, AsksQuestions])
async def test_no_password_for_a_host_in_doubt(tmp_path: Path, kind: type[DemoLogin]) -> None:
    """StrictHostKeyChecking=no goes on with a changed key, but no password is asked for or sent there."""
    other = new_key(tmp_path / "other").with_suffix(".pub").read_text()
    person = Person("sesame")
    known = tmp_path / "known"
    doubt = (f"UserKnownHostsFile={known}", "StrictHostKeyChecking=no")
    async with asking(kind, tmp_path, person, *doubt) as (made, sent):
        known.write_text(f"127.0.0.1 {other}[127.0.0.1]:{made._options.port} {other}")
        assert (type(await refused(made)), sent, person.prompts) == (LoginRefused, [], [])


async def test_declined_password_is_asked_once(tmp_path: Path) -> None:
    """Who answers with Ctrl-D is not asked again."""
    person = Person(None)
    async with asking(TakesPassword, tmp_path, person) as (made, sent):
        assert (type(await refused(made)), type(await refused(made)), sent) == (LoginRefused, LoginRefused, [])
