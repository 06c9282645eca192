"""Logging in by asyncssh in a test, somebody who types, and keys made by OpenSSH's own programs.

Invariant: a connection is closed when its block ends, whatever the test did with it.
"""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING, Any

from fastcopy.config import SshOptions
from fastcopy.connection.asyncssh_login import AsyncsshConnector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fastcopy.connection.asyncssh_connection import AsyncsshConnection
    from fastcopy.transport.base import Transport
    from tests.support.sshd import Sshd

#: Seconds for one step of a pump on a busy machine.
WAIT_S = 30.0
INIT = b"\0\0\0\5\1\0\0\0\3"
#: Type and number of the answer to INIT.
VERSION_3 = b"\x02\0\0\0\x03"


class Person:
    """Answers what is asked from a list, and keeps the prompts."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []

    async def ask(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        return self.answers.pop(0)


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
