"""known_hosts files: which entries name a host, and the verdict on the key it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fastcopy.connection.known_hosts import KnownHosts, PublicKey, Verdict, hashed, known_name
from fastcopy.connection.login_settings import LoginSettings

if TYPE_CHECKING:
    from pathlib import Path

MINE = PublicKey(kind="ssh-ed25519", blob="AAAAC3NzaC1lZDI1NTE5AAAAIIeCMrSGcSqRTRoyZTBNzFh2gnRvA3tLpq0nUdtCKxYB")
OTHER = PublicKey(kind="ssh-rsa", blob="AAAAB3NzaC1yc2EAAAADAQABAAAAgQDf")
LINE = f"{MINE.kind} {MINE.blob}"


def known(tmp_path: Path, *lines: str, **settings: Any) -> KnownHosts:
    """The entries of a file with `lines`, for srv002 unless `settings` say otherwise."""
    file = tmp_path / "known_hosts"
    file.write_text("\n".join(lines) + "\n")
    given = {"host": "srv", "hostname": "srv002", "user": "u", "user_known_hosts": (str(file),), **settings}
    return KnownHosts(LoginSettings(**given))


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        (f"srv002 {LINE}", {}),
        (f"srv001,srv002,10.0.0.2 {LINE} a comment", {}),
        (f"SRV002 {LINE}", {}),
        (f"srv00? {LINE}", {}),
        (f"*,!srv001 {LINE}", {}),
        (f"{hashed('srv002')} {LINE}", {}),
        (f"[srv002]:2222 {LINE}", {"port": 2222}),
        (f"{hashed('[srv002]:2222')} {LINE}", {"port": 2222}),
        (f"srv002 {LINE}", {"port": 2222}),
        (f"cluster {LINE}", {"host_key_alias": "cluster", "port": 2222}),
        (f"[2001:db8::1]:2222 {LINE}", {"hostname": "2001:db8::1", "port": 2222}),
    ],
)
def test_an_entry_that_names_the_host(tmp_path: Path, line: str, settings: dict[str, Any]) -> None:
    """Plain, listed, wildcard, hashed and bracketed names are found, and a port's key may stand without the port."""
    assert known(tmp_path, line, **settings).verdict(MINE) is Verdict.TRUSTED


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        (f"srv001 {LINE}", {}),
        (f"*,!srv002 {LINE}", {}),
        (f"[srv002]:2222 {LINE}", {}),
        (f"{hashed('srv001')} {LINE}", {}),
        (f"|1|broken {LINE}", {}),
        (f"srv002 {LINE}", {"host_key_alias": "cluster"}),
        ("srv002", {}),
        ("srv002 ssh-ed25519", {}),
        (f"@unknown srv002 {LINE}", {}),
        (f"# srv002 {LINE}", {}),
        ("", {}),
    ],
)
def test_an_entry_of_another_or_of_nobody(tmp_path: Path, line: str, settings: dict[str, Any]) -> None:
    """Other hosts' entries, negated ones, and lines that make no sense say nothing."""
    assert known(tmp_path, line, **settings).verdict(MINE) is Verdict.UNKNOWN


def test_another_key_means_changed(tmp_path: Path) -> None:
    """A host with a known key that shows another, of whatever type, has changed."""
    assert known(tmp_path, f"srv002 {LINE}").verdict(OTHER) is Verdict.CHANGED


def test_a_key_without_port_says_nothing_against_one_with_port(tmp_path: Path) -> None:
    """Another server on another port of the same host is unknown, not changed."""
    assert known(tmp_path, f"srv002 {LINE}", port=2222).verdict(OTHER) is Verdict.UNKNOWN


def test_revoked_wins(tmp_path: Path) -> None:
    """A revoked key is refused, even if another line trusts it, and for a host that goes by its port."""
    lines = (f"srv002 {LINE}", f"@revoked * {LINE}")
    assert known(tmp_path, *lines).verdict(MINE) is Verdict.REVOKED
    assert known(tmp_path, *lines, port=2222).verdict(MINE) is Verdict.REVOKED


def test_authorities_vouch_for_certificates_only(tmp_path: Path) -> None:
    """A certificate authority's key is trusted to sign, not to be shown by the host itself."""
    hosts = known(tmp_path, f"@cert-authority *002 {LINE}")
    assert (hosts.has_authority, hosts.authority_verdict(MINE)) == (True, Verdict.TRUSTED)
    assert (hosts.verdict(MINE), hosts.authority_verdict(OTHER)) == (Verdict.UNKNOWN, Verdict.UNKNOWN)


def test_known_types_are_asked_for(tmp_path: Path) -> None:
    """The types of the known keys are told, each once, in the order of the file."""
    hosts = known(tmp_path, f"srv002 {OTHER.kind} {OTHER.blob}", f"srv002 {LINE}", f"srv002 {LINE}")
    assert hosts.kinds == ("ssh-rsa", "ssh-ed25519")


@pytest.mark.parametrize("hashes", [False, True])
def test_a_remembered_key_is_written_and_trusted(tmp_path: Path, hashes: bool) -> None:
    """A key taken over is trusted at once, and found by whoever reads the file; a missing line end is mended."""
    hosts = known(tmp_path, f"srv001 {LINE}", port=2222, hash_known_hosts=hashes)
    file = tmp_path / "known_hosts"
    file.write_text(file.read_text().rstrip())
    hosts.remember(MINE)
    assert hosts.verdict(MINE) is Verdict.TRUSTED
    assert known(tmp_path, *file.read_text().splitlines(), port=2222).verdict(MINE) is Verdict.TRUSTED
    assert ("srv002" in file.read_text(), hosts.warnings) == (not hashes, [])


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """Where the key cannot be kept, this job goes on and says so."""
    (tmp_path / "blocked").write_text("a file, where a directory is needed")
    hosts = known(tmp_path, user_known_hosts=(str(tmp_path / "blocked" / "known_hosts"),))
    hosts.remember(MINE)
    assert (hosts.verdict(MINE), len(hosts.warnings)) == (Verdict.TRUSTED, 1)


def test_missing_files_hold_nothing(tmp_path: Path) -> None:
    """No known_hosts file at all is no error: nothing is known."""
    assert known(tmp_path, user_known_hosts=(str(tmp_path / "none" / "x"),)).verdict(MINE) is Verdict.UNKNOWN


def test_names() -> None:
    """The name in known_hosts has the port where it is not 22, and an alias stands for all of it."""

    def name(**settings: Any) -> str:
        return known_name(LoginSettings(**{"host": "srv", "hostname": "SRV002", "user": "u", **settings}))

    assert (name(), name(port=2222), name(port=2222, host_key_alias="a")) == ("srv002", "[srv002]:2222", "a")


def test_fingerprint() -> None:
    """The fingerprint is what ssh-keygen -l prints for this key."""
    assert MINE.fingerprint == "SHA256:/ihCHT1BiHkOBKBjOFp2C1fVPrylav/DzZWH10A7XHc"
