"""Bad input and refusing servers: a sentence that says what to do, the exit code of the table, nothing lost or made."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.command import Outcome, copy, fastcopy
from tests.support.route import Route, remote
from tests.support.trees import build, snapshot

if TYPE_CHECKING:
    from tests.conftest import SshdFactory
    from tests.support.sshd import Keys, Sshd

#: Lines that a refusal may have: the sentence, and one more.
_LINES = 2


def assert_refused(outcome: Outcome, exit_code: int, *words: str) -> None:
    """Check the exit code, that all words are said, and that it is a sentence or two, not a wall of text."""
    missing = [word for word in words if not re.search(word, outcome.said)]
    shown = f"exit {outcome.exit_code}\n{outcome.stderr}"
    assert (outcome.exit_code, missing) == (exit_code, []), shown
    assert 1 <= len(outcome.stderr.strip().splitlines()) <= _LINES, shown
    assert outcome.report.get("exit_code", exit_code) == exit_code


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file to copy."""
    return build(tmp_path / "source", {b"file": 1000}) / "file"


# --- reaching the host ---------------------------------------------------------------------------------------------


def test_an_unknown_host(way: str, source: Path) -> None:
    """A name that resolves nowhere: exit 3, the name is said."""
    outcome = copy("--ssh", way, "-F", "/dev/null", source, "nosuchhost.invalid:x")
    assert_refused(outcome, 3, "nosuchhost.invalid", "Check the name")


def test_a_refused_port(way: str, source: Path, sshd: Sshd) -> None:
    """Nobody listens: exit 3, and -P is named."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        outcome = copy("--ssh", way, "-P", str(probe.getsockname()[1]), source, "t:x", config=sshd.client_config)
    assert_refused(outcome, 3, "refused", "-P")


def test_a_wrong_key(way: str, source: Path, sshd: Sshd, tmp_path: Path) -> None:
    """A key the server does not know: exit 3, and -i is named."""
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")]
    subprocess.run(make, check=True)
    config = sshd.write_client_config(tmp_path / "config", IdentityFile=tmp_path / "key")
    assert_refused(copy("--ssh", way, source, "t:x", config=config), 3, "refused the login", "-i")


def test_a_missing_key_file(way: str, source: Path, sshd: Sshd, tmp_path: Path) -> None:
    """A key file that is not there: exit 3, not a traceback."""
    config = sshd.write_client_config(tmp_path / "config", IdentityFile=tmp_path / "none")
    outcome = copy("--ssh", way, source, "t:x", config=config)
    assert (outcome.exit_code, "t" in outcome.said) == (3, True), outcome.stderr


def test_an_encrypted_key_without_a_terminal(way: str, source: Path, sshd: Sshd, tmp_path: Path) -> None:
    """D13: a key with a passphrase and nobody to ask: exit 3 at once, no prompt that waits."""
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "key")]
    subprocess.run(make, check=True)
    config = sshd.write_client_config(tmp_path / "config", IdentityFile=tmp_path / "key")
    outcome = copy("--ssh", way, source, "t:x", config=config, timeout_s=20)
    assert (outcome.exit_code, "refused the login" in outcome.said) == (3, True), outcome.stderr


# --- host keys (D12) -----------------------------------------------------------------------------------------------


def fingerprint(keys: Keys) -> str:
    listing = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(keys.host.with_suffix(".pub"))], capture_output=True, text=True, check=True
    )
    return listing.stdout.split()[1]


@pytest.mark.parametrize("known", ["empty", "missing", "other host", "other port"])
def test_an_unknown_host_key(known: str, way: str, source: Path, sshd: Sshd, keys: Keys, tmp_path: Path) -> None:
    """D12: a key nobody vouched for is never accepted silently: exit 6, its fingerprint is shown, nothing is noted."""
    hosts = tmp_path / "known_hosts"
    line = sshd.known_hosts.read_text()
    lines = {
        "empty": "",
        "other host": line.replace(sshd.host, "10.0.0.1"),
        "other port": line.replace(f":{sshd.port}", ":2"),
    }
    if known != "missing":
        hosts.write_text(lines[known])
    before = hosts.read_text() if hosts.exists() else None
    config = sshd.write_client_config(tmp_path / "config", UserKnownHostsFile=hosts)
    outcome = copy("--ssh", way, source, remote(tmp_path / "copy"), config=config)
    assert_refused(outcome, 6, "not known", re.escape(fingerprint(keys)))
    assert ((tmp_path / "copy").exists(), hosts.read_text() if hosts.exists() else None) == (False, before)


def test_a_key_known_without_its_port(way: str, source: Path, sshd: Sshd, tmp_path: Path) -> None:
    """D12: as ssh does, a key noted for the host alone counts on any port."""
    hosts = tmp_path / "known_hosts"
    hosts.write_text(sshd.known_hosts.read_text().replace(f"[{sshd.host}]:{sshd.port}", sshd.host))
    config = sshd.write_client_config(tmp_path / "config", UserKnownHostsFile=hosts)
    outcome = copy("--ssh", way, source, remote(tmp_path / "copy"), config=config)
    assert (outcome.exit_code, snapshot(tmp_path / "copy")) == (0, snapshot(source)), outcome.stderr


def test_a_changed_host_key(way: str, source: Path, sshd: Sshd, keys: Keys, tmp_path: Path) -> None:
    """D12: another key than the known one: exit 6, in capitals, with what to do."""
    kind, key = keys.client.with_suffix(".pub").read_text().split()[:2]
    (tmp_path / "known_hosts").write_text(f"[{sshd.host}]:{sshd.port} {kind} {key}\n")
    config = sshd.write_client_config(tmp_path / "config", UserKnownHostsFile=tmp_path / "known_hosts")
    outcome = copy("--ssh", way, source, remote(tmp_path / "copy"), config=config)
    assert_refused(outcome, 6, "HAS CHANGED", "ssh-keygen -R", re.escape(fingerprint(keys)))
    assert not (tmp_path / "copy").exists()


def test_a_revoked_host_key(way: str, source: Path, sshd: Sshd, tmp_path: Path) -> None:
    """D12: a key marked @revoked is refused though it is the right one: exit 6."""
    line = sshd.known_hosts.read_text()
    (tmp_path / "known_hosts").write_text(f"@revoked {line}{line}")
    config = sshd.write_client_config(tmp_path / "config", UserKnownHostsFile=tmp_path / "known_hosts")
    outcome = copy("--ssh", way, source, remote(tmp_path / "copy"), config=config)
    assert (outcome.exit_code, (tmp_path / "copy").exists()) == (6, False), outcome.stderr


def test_a_hashed_known_host(way: str, source: Path, sshd: Sshd, tmp_path: Path) -> None:
    """D12: hashed lines of known_hosts count."""
    (tmp_path / "known_hosts").write_text(sshd.known_hosts.read_text())
    subprocess.run(["ssh-keygen", "-H", "-f", str(tmp_path / "known_hosts")], check=True, capture_output=True)
    config = sshd.write_client_config(tmp_path / "config", UserKnownHostsFile=tmp_path / "known_hosts")
    outcome = copy("--ssh", way, source, remote(tmp_path / "copy"), config=config)
    assert (outcome.exit_code, snapshot(tmp_path / "copy")) == (0, snapshot(source)), outcome.stderr


def test_a_key_alias(way: str, source: Path, sshd: Sshd, tmp_path: Path) -> None:
    """D12: HostKeyAlias looks the key up under its own name."""
    line = sshd.known_hosts.read_text().replace(f"[{sshd.host}]:{sshd.port}", "srv002")
    (tmp_path / "known_hosts").write_text(line)
    config = sshd.write_client_config(
        tmp_path / "config", UserKnownHostsFile=tmp_path / "known_hosts", HostKeyAlias="srv002"
    )
    outcome = copy("--ssh", way, source, remote(tmp_path / "copy"), config=config)
    assert (outcome.exit_code, snapshot(tmp_path / "copy")) == (0, snapshot(source)), outcome.stderr


# --- ciphers (D14) -------------------------------------------------------------------------------------------------


def test_a_cipher_the_server_has_not(way: str, source: Path, sshd_with: SshdFactory, tmp_path: Path) -> None:
    """D14: a demand fails with exit 3, what was asked, and what the server offers."""
    sshd = sshd_with(Ciphers="aes256-ctr")
    arguments = ("--ssh", way, "-c", "aes128-gcm@openssh.com", source, remote(tmp_path / "copy"))
    assert_refused(copy(*arguments, config=sshd.client_config), 3, "aes128-gcm@openssh.com", "aes256-ctr", "-c")
    assert not (tmp_path / "copy").exists()


def test_our_preference_falls_back(way: str, source: Path, sshd_with: SshdFactory, tmp_path: Path) -> None:
    """D14: without -c a server that has no AES-GCM is served with what it has."""
    sshd = sshd_with(Ciphers="aes256-ctr")
    outcome = copy("--ssh", way, source, remote(tmp_path / "copy"), config=sshd.client_config)
    assert (outcome.exit_code, outcome.report["settings"]["cipher"]) == (0, "aes256-ctr"), outcome.stderr


def test_a_list_of_ciphers_takes_the_first_on_offer(
    way: str, source: Path, sshd_with: SshdFactory, tmp_path: Path
) -> None:
    """-c takes a list, as ssh does."""
    sshd = sshd_with(Ciphers="aes256-ctr")
    arguments = ("--ssh", way, "-c", "aes128-ctr,aes256-ctr", source, remote(tmp_path / "copy"))
    outcome = copy(*arguments, config=sshd.client_config)
    assert (outcome.exit_code, outcome.report["settings"]["cipher"]) == (0, "aes256-ctr"), outcome.stderr


@pytest.mark.parametrize("cipher", ["arcfour", "arcfour256"])
def test_arcfour_is_gone(cipher: str, way: str, source: Path, sshd: Sshd) -> None:
    """Old scripts ask for arcfour: it is told to be gone, with its replacement, before anything is connected."""
    outcome = copy("--ssh", way, "-c", cipher, source, "t:x", config=sshd.client_config)
    assert_refused(outcome, 2, "arcfour", "aes128-gcm@openssh.com")


def test_a_misspelt_cipher(way: str, source: Path, sshd: Sshd) -> None:
    """D14: a name no ssh knows fails, and the message shows it."""
    outcome = copy("--ssh", way, "-c", "aes128-gmc", source, "t:x", config=sshd.client_config)
    assert (outcome.exit_code in {2, 3}, "aes128-gmc" in outcome.said) == (True, True), outcome.stderr


# --- no SFTP (B06) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subsystem", [None, "sftp /no/such/sftp-server"])
def test_a_server_without_sftp(
    subsystem: str | None, way: str, source: Path, sshd_with: SshdFactory, tmp_path: Path
) -> None:
    """B06: no Subsystem line, or one that names a missing program: exit 3 within seconds, and what to ask for."""
    sshd = sshd_with(Subsystem=subsystem)
    arguments = ("--ssh", way, source, remote(tmp_path / "copy"))
    assert_refused(copy(*arguments, config=sshd.client_config, timeout_s=20), 3, "has no SFTP", "Subsystem sftp")


# --- sources -------------------------------------------------------------------------------------------------------


def test_nothing_matched(route: Route, tmp_path: Path) -> None:
    """C09: the only source is missing: exit 2 names it, and no destination is made."""
    outcome = route.copy(tmp_path / "none", to=tmp_path / "copy")
    assert_refused(outcome, 2, "none")
    assert not (tmp_path / "copy").exists()


def test_one_source_of_two_is_missing(route: Route, tmp_path: Path) -> None:
    """C09: the other one arrives, exit 4, the missing one is named and listed by kind."""
    source = build(tmp_path / "source", {b"file": 10})
    outcome = route.copy(tmp_path / "none", source / "file", to=tmp_path / "copy")
    assert [failure["kind"] for failure in outcome.report["failures"]] == ["SourceMissing"]
    assert (outcome.exit_code, sorted(snapshot(tmp_path / "copy"))) == (4, [b"file"]), outcome.stderr
    assert "none" in outcome.said


def test_one_of_many_files_cannot_be_read(sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """C01: 99 of 100 files arrive, exit 4, the unreadable one is named, -q or not."""
    source = build(tmp_path / "source", {b"f%02d" % number: 100 for number in range(100)})
    (source / "f42").chmod(0)
    bound = replace(route, sshd=sshd_with(obey_modes=True))
    for options in ((), ("-q",)):
        outcome = bound.copy(f"{source}/", to=tmp_path / f"copy{len(options)}", options=options, obey_modes=True)
        failures = [(Path(failure["path"]).name, failure["kind"]) for failure in outcome.report["failures"]]
        assert (outcome.exit_code, failures) == (4, [("f42", "PermissionRefused")]), outcome.stderr
        assert outcome.report["files"] == {"total": 100, "copied": 99, "skipped": 0, "failed": 1}
        assert "f42" in outcome.said
        (source / "f42").chmod(0o644)
        expected = {name: node for name, node in snapshot(source).items() if name != b"f42"}
        (source / "f42").chmod(0)
        assert snapshot(tmp_path / f"copy{len(options)}") == expected


def test_a_folder_that_cannot_be_read(sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """C01: a folder without read permission fails by name, the rest arrives."""
    source = build(tmp_path / "source", {b"fine": 10, b"locked/file": 10})
    (source / "locked").chmod(0)
    bound = replace(route, sshd=sshd_with(obey_modes=True))
    outcome = bound.copy(f"{source}/", to=tmp_path / "copy", obey_modes=True)
    (source / "locked").chmod(0o755)
    assert (outcome.exit_code, "locked" in outcome.said) == (4, True), outcome.stderr
    assert (tmp_path / "copy" / "fine").exists()


def test_a_failing_name_that_is_not_utf8(sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """D04, R33: such a name is escaped on the terminal and exact in the report."""
    import base64

    name = b"bad\xff\x1b[2J\n"
    source = build(tmp_path / "source", {name: 10, b"fine": 10})
    os.chmod(os.path.join(os.fsencode(source), name), 0)
    bound = replace(route, sshd=sshd_with(obey_modes=True))
    outcome = bound.copy(f"{source}/", to=tmp_path / "copy", obey_modes=True)
    exact = [base64.b64decode(failure["path_b64"]) for failure in outcome.report["failures"]]
    assert [os.path.basename(path) for path in exact] == [name]
    assert ("\x1b" in outcome.stderr, r"bad\xff\x1b[2J\x0a" in outcome.stderr) == (False, True)


# --- destinations --------------------------------------------------------------------------------------------------


def test_a_missing_destination_folder(route: Route, source: Path, tmp_path: Path) -> None:
    """D19: one file into a folder that is not there: exit 4 names the path, not only 'Failure'; nothing is made."""
    outcome = route.copy(source, to=tmp_path / "no" / "such" / "copy")
    assert_refused(outcome, 4, "no/such")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_a_destination_that_may_not_be_written(size: int, sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """A16: files of any size into a folder without write permission: exit 4, permission is said, nothing is made."""
    source = build(tmp_path / "source", {b"file": size})
    (tmp_path / "locked").mkdir(mode=0o555)
    bound = replace(route, sshd=sshd_with(obey_modes=True))
    outcome = bound.copy(source / "file", to=tmp_path / "locked" / "copy", obey_modes=True)
    kinds = [failure["kind"] for failure in outcome.report["failures"]]
    assert (outcome.exit_code, kinds) == (4, ["PermissionRefused"]), outcome.stderr
    assert list((tmp_path / "locked").iterdir()) == []


def test_a_locked_destination_keeps_its_file(sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """C03: what stands in a folder that may not be written stays as it is."""
    source = build(tmp_path / "source", {b"file": 10})
    target = build(tmp_path / "locked", {b"file": 20}, seed=2)
    before = snapshot(target)
    target.chmod(0o555)
    bound = replace(route, sshd=sshd_with(obey_modes=True))
    outcome = bound.copy(source / "file", to=target, obey_modes=True)
    assert (outcome.exit_code, snapshot(target)) == (4, before), outcome.stderr


# --- usage ---------------------------------------------------------------------------------------------------------

WRONG_USAGE = [
    pytest.param(("-n", "0"), ("parallel",), id="no channels"),
    pytest.param(("-n", "many"), ("parallel",), id="a word for a number"),
    pytest.param(("-n", "100000"), ("parallel",), id="too many channels"),
    pytest.param(("--connections", "-1"), ("connections",), id="negative"),
    pytest.param(("-B", "12Q"), ("request-size",), id="unknown unit"),
    pytest.param(("-B", "1"), ("request-size",), id="tiny request"),
    pytest.param(("-R", "0"), ("queue-depth",), id="no queue"),
    pytest.param(("-P", "70000"), ("port",), id="no port"),
    pytest.param(("--ssh", "telnet"), ("ssh",), id="unknown way"),
    pytest.param(("--no-such-option",), ("no-such-option",), id="unknown option"),
    pytest.param(("-o", "JustAWord"), ("JustAWord",), id="option without a value"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG_USAGE)
def test_wrong_usage(arguments: tuple[str, ...], words: tuple[str, ...], source: Path, tmp_path: Path) -> None:
    """A bad number or option: exit 2, the option is named, nothing is connected or made."""
    outcome = fastcopy("copy", *arguments, source, tmp_path / "copy")
    missing = [word for word in words if word not in outcome.said]
    assert (outcome.exit_code, missing, (tmp_path / "copy").exists()) == (2, [], False), outcome.stderr


@pytest.mark.parametrize("arguments", [("copy",), ("copy", "one"), ("one",)])
def test_too_few_names(arguments: tuple[str, ...]) -> None:
    """No source, or no destination: exit 2."""
    outcome = fastcopy(*arguments)
    assert (outcome.exit_code, outcome.stderr != "") == (2, True), outcome.stderr


def test_a_config_file_that_is_missing(way: str, source: Path, tmp_path: Path) -> None:
    """-F with a file that is not there: told, not ignored."""
    outcome = copy("--ssh", way, "-F", tmp_path / "none", source, "t:x")
    assert (outcome.exit_code in {2, 3}, "none" in outcome.said) == (True, True), outcome.stderr


def test_the_command_is_the_installed_one() -> None:
    """The tests run the same version that is installed beside this Python."""
    outcome = fastcopy("--version")
    module = [sys.executable, "-c", "import fastcopy; print(fastcopy.__version__)"]
    expected = subprocess.run(module, capture_output=True, text=True, check=True).stdout.strip()
    assert (outcome.exit_code, outcome.stdout.split()) == (0, ["fastcopy", expected])


def test_a_special_file_named_as_source(route: Route, tmp_path: Path) -> None:
    """B02: a FIFO named on the command line is a failure, exit 4 with its name; it is never opened."""
    os.mkfifo(tmp_path / "pipe")
    outcome = route.copy(tmp_path / "pipe", to=tmp_path / "copy")
    assert (outcome.exit_code, "pipe" in outcome.stderr, (tmp_path / "copy").exists()) == (4, True, False)


def test_an_old_report_outlives_a_report_that_cannot_be_made(source: Path, sshd: Sshd, tmp_path: Path) -> None:
    """The file of --json is replaced once there is a report, and a shorter report leaves nothing of a longer one."""
    old = tmp_path / "report.json"
    old.write_text("x" * 100_000)
    outcome = fastcopy("copy", "--json", old, "-F", sshd.client_config, source, f"t:{tmp_path / 'copy'}")
    assert (outcome.exit_code, json.loads(old.read_text())["exit_code"]) == (0, 0)
