"""The private keys one asyncssh login may use, unlocked no earlier than the server has said that it wants them.

Owns reading identity files. Must not ask anybody itself: it goes through Secrets, which asks once a job.
Invariant: an encrypted key whose public half is known is asked for only after the server accepted that half; one key
that cannot be used never keeps the others from being tried.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh

from fastcopy.errors import printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from fastcopy.connection.login_secrets import Secrets
    from fastcopy.connection.login_settings import LoginSettings

#: How OpenSSH's own private key files begin, once out of base64. Source: PROTOCOL.key.
_OPENSSH_MAGIC = b"openssh-key-v1\0"


class Identities:
    """The key pairs for one login."""

    def __init__(self, settings: LoginSettings, secrets: Secrets) -> None:
        self._settings = settings
        self._secrets = secrets
        self.warnings: list[str] = []
        #: What the agent may be asked to sign with under IdentitiesOnly.
        self.public_keys: list[asyncssh.SSHKey] = []
        #: Encrypted files without a public half to show first: to be unlocked when nothing else was accepted.
        self.opaque: list[str] = []

    async def load(self, *, unlock: Callable[[str], object]) -> list[asyncssh.SSHKeyPair]:
        """Read the identity files; those named first come first.

        Args:
            unlock: a coroutine function from a file to its passphrase; called when the server wants that key.
        """
        pairs: list[asyncssh.SSHKeyPair] = []
        loop = asyncio.get_running_loop()
        for path in self._settings.identities:
            pairs += await loop.run_in_executor(None, self._load_one, path, unlock, loop)
        return pairs

    def _load_one(
        self, path: str, unlock: Callable[[str], object], loop: asyncio.AbstractEventLoop
    ) -> Sequence[asyncssh.SSHKeyPair]:
        try:
            data = Path(path).read_bytes()
        except OSError as exc:
            public = _public_half(path, b"")  # the private half may be in an agent
            if public is not None:
                self.public_keys.append(public)
            elif self._settings.identities_named:
                self.warnings.append(f"the identity file {printable(path)} cannot be read: {exc.strerror}")
            return []
        public = _public_half(path, data)
        if public is not None:
            self.public_keys.append(public)
        if path in self._secrets.locked:
            return []
        try:
            if path in self._secrets.keys:
                return asyncssh.load_keypairs([self._secrets.keys[path]], certlist=self._certificates(path))
            key = _unlocked(data)
            if key is not None:
                if public is None:
                    self.public_keys.append(key.convert_to_public())
                return asyncssh.load_keypairs([key], certlist=self._certificates(path))
            if public is not None:
                return asyncssh.load_keypairs(
                    [(path, public.export_public_key())],
                    passphrase=unlock,  # type: ignore[arg-type] # documented, also as a coroutine function; not typed
                    certlist=self._certificates(path),
                    loop=loop,
                )
        except (OSError, ValueError) as exc:
            self.warnings.append(f"the identity file {printable(path)} cannot be used: {printable(str(exc))}")
            return []
        self.opaque.append(path)
        return []

    def _certificates(self, path: str) -> list[str]:
        named = [*self._settings.certificates, f"{path}-cert.pub"]
        return [certificate for certificate in named if Path(certificate).is_file()]


def _unlocked(data: bytes) -> asyncssh.SSHKey | None:
    """Return the private key in `data`; None where it is encrypted. Raises: ValueError when it is no key."""
    try:
        return asyncssh.import_private_key(data)
    except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as exc:
        if isinstance(exc, asyncssh.KeyEncryptionError) or str(exc).startswith("Passphrase"):
            return None
        raise


def unlocked_with(path: str, passphrase: str) -> asyncssh.SSHKey:
    """Return the private key in the file `path`. Slow by design: not on the loop. Raises: OSError, ValueError."""
    return asyncssh.import_private_key(Path(path).read_bytes(), passphrase)


def _public_half(path: str, data: bytes) -> asyncssh.SSHKey | None:
    """Find the public half of a private key: beside it, or in the part of OpenSSH's format that is never encrypted."""
    with contextlib.suppress(OSError, ValueError):
        return asyncssh.read_public_key(f"{path}.pub")
    with contextlib.suppress(ValueError, IndexError, struct.error):
        lines = data.split(b"-----BEGIN OPENSSH PRIVATE KEY-----", 1)[1].split(b"-----END", 1)[0]
        return _public_in_container(base64.b64decode(lines))
    return None


def _public_in_container(container: bytes) -> asyncssh.SSHKey | None:
    if not container.startswith(_OPENSSH_MAGIC):
        return None
    at = len(_OPENSSH_MAGIC)
    fields = []
    for _ in range(3):  # cipher, key derivation, its options
        (length,) = struct.unpack_from(">I", container, at)
        fields.append(container[at + 4 : at + 4 + length])
        at += 4 + length
    (length,) = struct.unpack_from(">I", container, at + 4)  # after the number of keys
    blob = container[at + 8 : at + 8 + length]
    (kind_length,) = struct.unpack_from(">I", blob, 0)
    return asyncssh.import_public_key(blob[4 : 4 + kind_length] + b" " + base64.b64encode(blob))


@contextlib.asynccontextmanager
async def agent_keys(settings: LoginSettings, identities: Identities) -> AsyncIterator[list[asyncssh.SSHKeyPair]]:
    """Give the keys the agent holds: those of the identity files first, and only those under IdentitiesOnly.

    They can sign for as long as the context is open. An agent that is not there has none.
    """
    agent = None
    keys: list[asyncssh.SSHKeyPair] = []
    if settings.agent is not None and settings.pubkey_auth:
        with contextlib.suppress(OSError, ValueError, asyncssh.Error):
            agent = await asyncssh.connect_agent(settings.agent)
            keys = list(await agent.get_keys())
    named = {key.public_data for key in identities.public_keys}
    matching = [key for key in keys if key.public_data in named]
    others = [] if settings.identities_only else [key for key in keys if key.public_data not in named]
    try:
        yield [*matching, *others]
    finally:
        if agent is not None:
            agent.close()
            await agent.wait_closed()
