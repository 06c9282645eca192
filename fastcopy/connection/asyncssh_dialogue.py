"""What asyncssh asks while one login goes on: is this the right host, which key, which password.

Owns the answers' order and that nothing secret goes to a host whose key is in doubt. Must not make connections.
Invariant: at most one password is sent per login; while a person types, the login's deadline stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import asyncssh

from fastcopy.connection.asyncssh_identities import unlocked_with
from fastcopy.connection.known_hosts import PublicKey, Verdict
from fastcopy.errors import FastcopyError, HostKeyChanged, HostKeyUnknown, UnsafePeer, printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from asyncssh.auth import KbdIntPrompts, KbdIntResponse

    from fastcopy.connection.asyncssh_identities import Identities
    from fastcopy.connection.known_hosts import KnownHosts
    from fastcopy.connection.login_secrets import Secrets
    from fastcopy.connection.login_settings import LoginSettings

#: Seconds a person may take to answer. Source: ours; sshd itself hangs up after 120 s.
ANSWER_S = 300.0


class LoginDialogue(asyncssh.SSHClient):
    """Answers for one login."""

    def __init__(
        self,
        settings: LoginSettings,
        known_hosts: KnownHosts,
        identities: Identities,
        secrets: Secrets,
        *,
        may_ask: bool,
        deadline: asyncio.Timeout,
    ) -> None:
        self._settings = settings
        self._known_hosts = known_hosts
        self._identities = identities
        self._secrets = secrets
        self._may_ask = may_ask and not settings.batch_mode
        self._deadline = deadline
        self._keys: list[asyncssh.SSHKeyPair] = []
        self._password_name = f"password of {settings.user}@{settings.hostname}:{settings.port}"
        self._has_tried_prompts = False
        self._is_host_in_doubt = False
        self._unlocking: set[asyncio.Task[object]] = set()
        #: Why the host was refused.
        self.refusal: FastcopyError | None = None
        #: The key nobody knows, where the user may be asked about it.
        self.unknown_key: PublicKey | None = None
        #: The key nobody knew, taken as the configuration says.
        self.accepted_key: PublicKey | None = None
        self.has_sent_password = False
        #: Something was typed that is good for one login only.
        self.has_sent_code = False
        self.warnings: list[str] = []
        #: Why the connection is over; None while it stands.
        self.lost: str | None = None
        self._connection: asyncssh.SSHClientConnection | None = None
        self._methods: tuple[str, ...] = ()

    # --- the host ---

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        shown = _plain(key)
        return self._judge(self._known_hosts.verdict(shown), shown)

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        shown = _plain(key)
        verdict = self._known_hosts.authority_verdict(shown)
        if verdict is Verdict.UNKNOWN:  # nothing to be asked about: no file line would make this certificate known
            self.refusal = HostKeyUnknown(f"its certificate is signed by {shown}", host=self._settings.host)
            return False
        return self._judge(verdict, shown)

    def _judge(self, verdict: Verdict, shown: PublicKey) -> bool:
        strictness = self._settings.strict_host_keys
        match verdict:
            case Verdict.TRUSTED:
                return True
            case Verdict.REVOKED:
                self.refusal = UnsafePeer(
                    f"its host key is marked as revoked here ({shown}). Nothing was sent.", host=self._settings.host
                )
                return False
            case Verdict.CHANGED if strictness == "no":
                self._is_host_in_doubt = True
                self.warnings.append(
                    f"the host key of {self._known_hosts.name} HAS CHANGED ({shown}); StrictHostKeyChecking=no goes on,"
                    " without passwords"
                )
                return True
            case Verdict.CHANGED:
                self.refusal = HostKeyChanged(
                    f"it is now {shown}, {self._known_hosts.places} has another", host=self._known_hosts.name
                )
                return False
            case Verdict.UNKNOWN if strictness in ("accept-new", "no"):
                self.accepted_key = shown
                return True
            case Verdict.UNKNOWN:
                self.refusal = HostKeyUnknown(str(shown), host=self._settings.host)
                self.unknown_key = shown if strictness == "ask" and self._may_ask else None
                return False

    # --- keys ---

    def offer(self, keys: Sequence[asyncssh.SSHKeyPair]) -> None:
        """Let these be tried, in this order."""
        self._keys = list(keys)

    async def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        self._note_offers()
        if self._keys:
            return self._keys.pop(0)
        while self._identities.opaque:
            path = self._identities.opaque.pop(0)
            if await self.unlock(path) is not None:
                return asyncssh.load_keypairs([self._secrets.keys[path]])[0]
        return None

    async def unlock(self, path: str) -> str | None:
        """Return the passphrase of the key file `path`, once it is known to be right, and keep the unlocked key."""
        task = asyncio.current_task()
        assert task is not None
        self._unlocking.add(task)
        name = f"passphrase of {path}"
        try:
            async with self._unhurried():
                typed = await self._secrets.get(
                    name, f"Enter passphrase for key {printable(path)!r}: ", may_ask=self._may_ask
                )
            if typed is None:
                return None
            if path not in self._secrets.keys:
                try:
                    key = await asyncio.get_running_loop().run_in_executor(None, unlocked_with, path, typed)
                except (OSError, ValueError) as exc:
                    self._secrets.refuse(name)
                    self._secrets.locked.add(path)
                    self.warnings.append(f"{printable(path)} cannot be unlocked with that: {printable(str(exc))}")
                    return None
                self._secrets.keys[path] = key
            return typed
        finally:
            self._unlocking.discard(task)

    # --- passwords ---

    async def password_auth_requested(self) -> str | None:
        self._note_offers()
        return await self._password(f"{self._settings.user}@{self._settings.host}'s password: ")

    async def _password(self, prompt: str) -> str | None:
        if self.has_sent_password:
            self._secrets.refuse(self._password_name)  # the server asks again, so it was wrong
            return None
        if self._is_host_in_doubt:
            return None
        async with self._unhurried():
            typed = await self._secrets.get(self._password_name, prompt, may_ask=self._may_ask)
        self.has_sent_password = typed is not None
        return typed

    def refuse_password(self) -> None:
        """Forget the password that was sent: the login failed."""
        self._secrets.refuse(self._password_name)

    def kbdint_auth_requested(self) -> str | None:
        self._note_offers()
        if self._has_tried_prompts or self._is_host_in_doubt:
            return None
        self._has_tried_prompts = True
        return ""  # the server chooses what it asks

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: KbdIntPrompts
    ) -> KbdIntResponse | None:
        answers: list[str] = []
        for prompt, echoes in prompts:
            shown = f"({self._settings.user}@{self._settings.host}) {printable(prompt)}"
            if not echoes and "password" in prompt.lower():
                answer = await self._password(shown)
            else:
                async with self._unhurried():
                    answer = await self._secrets.ask_once(shown, may_ask=self._may_ask)
                self.has_sent_code |= answer is not None
            if answer is None:
                return None
            answers.append(answer)
        return answers

    # --- the connection ---

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = printable(str(exc)) if exc is not None else "the connection was closed"

    def _note_offers(self) -> None:
        """Keep the methods the server takes; asyncssh forgets those it has tried."""
        if not self._methods and self._connection is not None:
            self._methods = tuple(self._connection.get_server_auth_methods())

    @property
    def offers(self) -> str:
        """What the server would let us log in with, and what is wrong with our keys, for an error message."""
        accepts = [f"it accepts {', '.join(self._methods)}"] if self._methods else []
        return "; ".join([*accepts, *self.warnings, *self._identities.warnings])

    def end(self) -> None:
        """Stop waiting for whoever types: the login is over, one way or the other."""
        for task in self._unlocking:
            task.cancel()

    @contextlib.asynccontextmanager
    async def _unhurried(self) -> AsyncIterator[None]:
        """Give a person ANSWER_S, and the server afterwards its time anew."""
        if not self._may_ask:
            yield
            return
        now = asyncio.get_running_loop().time
        self._deadline.reschedule(now() + ANSWER_S)
        try:
            yield
        finally:
            if not self._deadline.expired():
                self._deadline.reschedule(now() + self._settings.connect_timeout_s)


def _plain(key: asyncssh.SSHKey) -> PublicKey:
    return PublicKey.of_text(key.export_public_key().decode("ascii"))
