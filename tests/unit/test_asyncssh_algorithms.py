"""Which algorithms are offered: ssh_config's lists, in terms of what asyncssh has, with AES-GCM first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fastcopy.connection import asyncssh_algorithms as algorithms
from fastcopy.connection.known_hosts import KnownHosts
from fastcopy.connection.login_settings import LoginSettings
from fastcopy.errors import InvalidValue

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = ["aes128-ctr", "aes256-ctr", "aes128-gcm", "3des-cbc"]
DEFAULT = ["aes128-gcm", "aes128-ctr"]


def settings(**changes: str | int) -> LoginSettings:
    return LoginSettings(**{"host": "h", "hostname": "h", "user": "u", **changes})  # type: ignore[arg-type] # of any field


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, DEFAULT),
        ("aes256-ctr,aes128-ctr", ["aes256-ctr", "aes128-ctr"]),
        ("aes256-ctr,umac-64@openssh.com", ["aes256-ctr"]),
        ("+3des-cbc", [*DEFAULT, "3des-cbc"]),
        ("-*-ctr", ["aes128-gcm"]),
        ("^aes256-ctr", ["aes256-ctr", *DEFAULT]),
        ("aes*", ["aes128-ctr", "aes256-ctr", "aes128-gcm"]),
        ("+aes128-gcm", DEFAULT),
    ],
)
def test_lists(spec: str | None, expected: list[str]) -> None:
    """Plain lists, `+`, `-`, `^` and patterns; what asyncssh does not have is passed over; nothing comes twice."""
    assert algorithms.expand(spec, KNOWN, DEFAULT, option="Ciphers") == expected


@pytest.mark.parametrize("spec", ["arcfour", "-*", "umac-64@openssh.com"])
def test_nothing_left(spec: str) -> None:
    """A list of which nothing is left is an error that says what there is."""
    with pytest.raises(InvalidValue, match="aes128-ctr"):
        algorithms.expand(spec, KNOWN, DEFAULT, option="Ciphers")


def test_gcm_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """With AES in hardware GCM leads, and without it the order stays; a site's list is not widened."""
    monkeypatch.setattr(algorithms, "aes_in_hardware", lambda: True)
    assert algorithms.ciphers(settings(), ())[0] == "aes128-gcm@openssh.com"
    site = settings(ciphers="aes256-ctr,aes256-gcm@openssh.com")
    assert algorithms.ciphers(site, ()) == ["aes256-gcm@openssh.com", "aes256-ctr"]
    led = settings(ciphers="^chacha20-poly1305@openssh.com")
    assert algorithms.ciphers(led, ())[0] == "chacha20-poly1305@openssh.com"
    monkeypatch.setattr(algorithms, "aes_in_hardware", lambda: False)
    assert algorithms.ciphers(site, ()) == ["aes256-ctr", "aes256-gcm@openssh.com"]


def test_ciphers_asked_for_are_taken_as_they_are() -> None:
    """The command line's ciphers win over the configuration's, in their order."""
    assert algorithms.ciphers(settings(ciphers="aes256-ctr"), ("aes192-ctr", "aes128-gcm")) == [
        "aes192-ctr",
        "aes128-gcm@openssh.com",
    ]


@pytest.mark.parametrize("name", ["arcfour", "arcfour256", "blowfish-cbc"])
def test_ciphers_that_are_gone(name: str) -> None:
    """asyncssh still has arcfour; it is refused all the same, with its replacement."""
    with pytest.raises(InvalidValue, match=r"use aes128-gcm@openssh\.com"):
        algorithms.ciphers(settings(), (name,))


def test_keys_are_changed_late_where_that_is_safe() -> None:
    """64 GiB for ciphers with blocks of 16 bytes, 1 GiB for smaller ones, and what RekeyLimit says."""
    assert algorithms.rekey_bytes(settings(), ["aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com"]) == 64 << 30
    assert algorithms.rekey_bytes(settings(), ["aes128-ctr", "3des-cbc"]) == 1 << 30
    assert algorithms.rekey_bytes(settings(rekey_bytes=1 << 20), ["aes128-ctr"]) == 1 << 20


def test_host_key_types(tmp_path: Path) -> None:
    """Types of known keys come first, SHA-1 never, certificates only where an authority is known."""
    file = tmp_path / "known"
    file.write_text("h ssh-rsa AAAA\n")
    known = LoginSettings(host="h", hostname="h", user="u", user_known_hosts=(str(file),))
    offered = algorithms.host_keys(known, KnownHosts(known))
    assert offered[:3] == ["rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519"]
    assert ("ssh-rsa" in offered, any("cert" in name for name in offered)) == (False, False)
    file.write_text("@cert-authority * ssh-ed25519 AAAA\n")
    assert algorithms.host_keys(known, KnownHosts(known))[0] == "ssh-ed25519-cert-v01@openssh.com"
    said = settings(host_key_algorithms="rsa-sha2-256")
    assert algorithms.host_keys(said, KnownHosts(said)) == ["rsa-sha2-256"]
