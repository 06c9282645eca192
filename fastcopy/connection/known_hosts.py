"""Which host keys are known for a host, and what to do about one: known_hosts files and StrictHostKeyChecking.

Owns the file format (sshd(8): patterns, hashed names, [host]:port, markers) and the decision. Keys are compared as the
base64 text of the files, so this needs no cryptography and must not import asyncssh.
Invariant: an unknown key is taken only where the user's configuration says so; a changed or revoked one never gets a
password.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastcopy.connection.config_file import matches_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fastcopy.connection.login_settings import LoginSettings

#: Source: OpenSSH's ssh.h.
DEFAULT_PORT = 22


class Verdict(enum.Enum):
    """What is known about a key that a host showed."""

    TRUSTED = "trusted"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A public key as files hold it: its type and its base64 blob."""

    kind: str
    blob: str

    @classmethod
    def of_text(cls, text: str) -> PublicKey:
        """Take it from a line `TYPE BASE64 [comment]`. Raises: ValueError when it is not that."""
        kind, blob = text.split()[:2]
        return cls(kind=kind, blob=blob)

    @property
    def fingerprint(self) -> str:
        """As ssh and ssh-keygen -l print it."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def __str__(self) -> str:
        return f"{self.kind} {self.fingerprint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a known_hosts file that names the host."""

    marker: str  # "" | "cert-authority" | "revoked"
    key: PublicKey
    place: str  # FILE:LINE


class KnownHosts:
    """The entries of all files for one host."""

    def __init__(self, settings: LoginSettings) -> None:
        """Read the files that `settings` names; one that is missing or unreadable holds nothing, as for ssh."""
        self._settings = settings
        self.name = known_name(settings)
        files = (*settings.user_known_hosts, *settings.global_known_hosts)
        lines = [(place, line) for path in files for place, line in _lines(path)]
        self.entries = list(_entries(lines, self.name))
        #: Entries without the port: they may vouch for the host, but a difference from them says nothing.
        self._portless: list[Entry] = []
        if self.name != settings.hostname.lower() and settings.host_key_alias is None:
            self._portless = list(_entries(lines, settings.hostname.lower()))
        self.warnings: list[str] = []

    def verdict(self, key: PublicKey) -> Verdict:
        """Say what is known about `key`, shown as the host's own."""
        if any(entry.key == key for entry in (*self.entries, *self._portless) if entry.marker == "revoked"):
            return Verdict.REVOKED
        known = [entry.key for entry in self.entries if not entry.marker]
        if key in known or key in (entry.key for entry in self._portless if not entry.marker):
            return Verdict.TRUSTED
        return Verdict.CHANGED if known else Verdict.UNKNOWN

    def authority_verdict(self, key: PublicKey) -> Verdict:
        """Say what is known about `key`, which signed the host's certificate."""
        entries = (*self.entries, *self._portless)
        if any(entry.key == key for entry in entries if entry.marker == "revoked"):
            return Verdict.REVOKED
        is_trusted = any(entry.key == key for entry in entries if entry.marker == "cert-authority")
        return Verdict.TRUSTED if is_trusted else Verdict.UNKNOWN

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types of the keys known, for asking the host to show one of those."""
        return tuple(dict.fromkeys(entry.key.kind for entry in (*self.entries, *self._portless) if not entry.marker))

    @property
    def has_authority(self) -> bool:
        """Whether a certificate could prove this host."""
        return any(entry.marker == "cert-authority" for entry in (*self.entries, *self._portless))

    @property
    def places(self) -> str:
        """Where the host's known keys stand."""
        return ", ".join(entry.place for entry in self.entries if not entry.marker)

    def remember(self, key: PublicKey) -> None:
        """Trust `key` from now on, and write it to the user's file; where that cannot be written, only warn."""
        self.entries.append(Entry(marker="", key=key, place="this job"))
        if not self._settings.user_known_hosts:
            return
        path = self._settings.user_known_hosts[0]
        name = hashed(self.name) if self._settings.hash_known_hosts else self.name
        try:
            os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            with open(fd, "rb+", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 1))
                newline = "" if file.read(1) in (b"", b"\n") else "\n"
                file.write(f"{newline}{name} {key.kind} {key.blob}\n".encode())
        except OSError as exc:
            self.warnings.append(f"the host key of {self.name} could not be kept in {path}: {exc.strerror}")


def known_name(settings: LoginSettings) -> str:
    """Return the name a host goes by in known_hosts: `ssh-keygen -R NAME` would remove it."""
    if settings.host_key_alias is not None:
        return settings.host_key_alias
    hostname = settings.hostname.lower()
    return hostname if settings.port == DEFAULT_PORT else f"[{hostname}]:{settings.port}"


def hashed(name: str) -> str:
    """Return `name` as HashKnownHosts writes it. Source: hostfile.c, host_hash."""
    salt = os.urandom(20)
    return f"|1|{base64.b64encode(salt).decode()}|{_hash(salt, name)}"


def _hash(salt: bytes, name: str) -> str:
    return base64.b64encode(hmac.digest(salt, name.encode(), "sha1")).decode()


def _lines(path: str) -> Iterator[tuple[str, str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                yield f"{path}:{number}", line.strip()
    except OSError:
        return


def _entries(lines: Iterable[tuple[str, str]], name: str) -> Iterator[Entry]:
    """Give the entries for `name`; a line that makes no sense is passed over, as ssh does."""
    for place, line in lines:
        if not line or line.startswith("#"):
            continue
        marker = ""
        if line.startswith("@"):
            marker, _, line = line[1:].partition(" ")
        names, _, key = line.strip().partition(" ")
        if marker not in ("", "cert-authority", "revoked") or not _names(names, name):
            continue
        try:
            yield Entry(marker=marker, key=PublicKey.of_text(key), place=place)
        except ValueError:
            continue


def _names(patterns: str, name: str) -> bool:
    if not patterns.startswith("|"):
        return matches_host(patterns.lower().split(","), name.lower())
    try:
        _, version, salt, digest = patterns.split("|")
        return version == "1" and hmac.compare_digest(_hash(base64.b64decode(salt), name), digest)
    except (ValueError, binascii.Error):
        return False
