"""ssh_config as we read it, beside what `ssh -G` makes of the same files: the same values for every host."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from fastcopy.config import AddressFamily, SshOptions
from fastcopy.connection import config_file
from fastcopy.connection.login_settings import LoginSettings, jump_options, login_settings, split_jumps
from fastcopy.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from pathlib import Path

#: `ssh` is part of what the tests need; a machine without it has nothing to compare with.
SSH = shutil.which("ssh")

CONFIG = r"""
# a comment
User first
Include INCLUDED
Host a b* !bad
    HostName %h.example.com
    Port=2201
    IdentityFile "~/key one"  # words after it
    IdentityFile ~/two
    StrictHostKeyChecking accept-new
    HashKnownHosts yes
Host bad
    Port 2202
    ProxyJump u@j1:22,[::1]:2222
Host alias?
    HostKeyAlias the-alias
    UserKnownHostsFile ~/k1 /k2
    GlobalKnownHostsFile none
    Compression yes
    ConnectTimeout 1m
    ServerAliveInterval 7
    ServerAliveCountMax 9
    PreferredAuthentications publickey
    PubkeyAuthentication no
    RekeyLimit 1G 1h
    Ciphers aes128-ctr,aes256-ctr
    ProxyCommand nc -X connect "%h" %p  # all of it
Host quoted
    User "some body"
    IdentitiesOnly yes
    BatchMode = yes
    AddressFamily inet6
Match host *.example.com user first
    MACs hmac-sha2-256
Match originalhost m* !user nobody
    PasswordAuthentication no
    BindAddress 127.0.0.2
Match final host last
    Port 2209
Host *
    KbdInteractiveAuthentication no
    Port 2200
    TCPKeepAlive no
"""
INCLUDED = """
Host inc*
    User included
    Port 2299
    ForwardAgent yes
"""
HOSTS = ["a", "b1", "bad", "alias1", "quoted", "m1", "include", "last", "other", "A"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it, and no system-wide file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    monkeypatch.setattr(config_file, "SYSTEM_CONFIG", str(tmp_path / "system"))
    return tmp_path


@pytest.fixture
def config(home: Path) -> Path:
    """CONFIG and what it includes."""
    (home / "included").write_text(INCLUDED)
    file = home / "config"
    file.write_text(CONFIG.replace("INCLUDED", str(home / "included")))
    return file


def as_ssh_says(host: str, *words: str) -> dict[str, list[str]]:
    """Return what `ssh -G` prints, by keyword."""
    assert SSH is not None
    run = subprocess.run(
        [SSH, "-G", *words, host], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    found: dict[str, list[str]] = {}
    for line in run.stdout.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword, []).append(value)
    return found


def comparable(settings: LoginSettings) -> dict[str, list[str]]:
    """Return our values in the words of `ssh -G`, for the keywords that both have."""

    def flag(value: bool) -> list[str]:
        return ["yes" if value else "no"]

    strict = {"yes": "true", "no": "false"}.get(settings.strict_host_keys, settings.strict_host_keys)
    said = {
        "hostname": [settings.hostname],
        "port": [str(settings.port)],
        "user": [settings.user],
        "addressfamily": [settings.family.value],
        "batchmode": flag(settings.batch_mode),
        "compression": flag(settings.compress),
        "hashknownhosts": flag(settings.hash_known_hosts),
        "identitiesonly": flag(settings.identities_only),
        "kbdinteractiveauthentication": flag(settings.kbdint_auth),
        "passwordauthentication": flag(settings.password_auth),
        "tcpkeepalive": flag(settings.tcp_keepalive),
        "pubkeyauthentication": ["true" if settings.pubkey_auth else "false"],
        "serveralivecountmax": [str(settings.alive_count)],
        "stricthostkeychecking": [strict],
    }
    optional = {
        "bindaddress": settings.bind_address,
        "ciphers": settings.ciphers,
        "macs": settings.macs,
        "hostkeyalias": settings.host_key_alias,
        "proxyjump": settings.proxy_jump,
        "proxycommand": settings.proxy_command,
        "preferredauthentications": ",".join(settings.preferred_auth) or None,
    }
    return said | {keyword: [value] for keyword, value in optional.items() if value is not None}


@pytest.mark.skipif(SSH is None, reason="no OpenSSH sshd is installed here; as root on Debian `make test` installs it")
@pytest.mark.parametrize("host", HOSTS)
def test_the_same_as_ssh(config: Path, host: str) -> None:
    """Host, Match, Include, patterns, quotes, tokens and defaults come out as with ssh -G."""
    ours = comparable(login_settings(host, None, SshOptions(config_file=str(config))))
    theirs = as_ssh_says(host, "-F", str(config))
    expected = {keyword: theirs.get(keyword, ["none"]) for keyword in ours}
    expected |= {"proxycommand": ours["proxycommand"]} if "proxycommand" in ours else {}  # ssh -G leaves the tokens
    assert ours == expected


def test_a_proxy_command_is_the_rest_of_its_line(config: Path) -> None:
    """Quotes and a `#` belong to the command; the tokens are put in."""
    settings = login_settings("alias1", None, SshOptions(config_file=str(config)))
    assert settings.proxy_command == 'nc -X connect "alias1" 2200  # all of it'


@pytest.mark.parametrize("host", ["a", "quoted", "other"])
def test_paths(config: Path, home: Path, host: str) -> None:
    """Tildes are expanded; identities add up in order; without any the usual names are tried."""
    settings = login_settings(host, None, SshOptions(config_file=str(config), identities=("/flag",)))
    named = [str(home / "key one"), str(home / "two")] if host == "a" else []
    assert list(settings.identities) == ["/flag", *named]
    default = login_settings("other", None, SshOptions(config_file=str(config)))
    assert (default.identities[0], default.identities_named) == (str(home / ".ssh" / "id_rsa"), False)


def test_known_hosts_files(config: Path, home: Path) -> None:
    """Lists of files are split, `none` is none, and the defaults are ssh's."""
    settings = login_settings("alias1", None, SshOptions(config_file=str(config)))
    assert (settings.user_known_hosts, settings.global_known_hosts) == ((str(home / "k1"), "/k2"), ())
    default = login_settings("other", None, SshOptions(config_file=str(config)))
    assert default.user_known_hosts == (str(home / ".ssh/known_hosts"), str(home / ".ssh/known_hosts2"))


def test_times_and_sizes(config: Path) -> None:
    """Seconds and bytes are read with their units."""
    settings = login_settings("alias1", None, SshOptions(config_file=str(config)))
    seen = (settings.connect_timeout_s, settings.alive_interval_s, settings.rekey_bytes, settings.rekey_s)
    assert seen == (60.0, 7, 1 << 30, 3600)
    default = login_settings("other", None, SshOptions(config_file=str(config), connect_timeout_s=5.0))
    seen = (default.connect_timeout_s, default.alive_interval_s, default.rekey_bytes, default.rekey_s)
    assert seen == (5.0, 15, None, None)


def test_what_is_said_first_wins(config: Path) -> None:
    """Flags come before -o, and -o before the files."""
    options = SshOptions(config_file=str(config), port=1, options=("Port=2", "User=opt", "HostName 10.0.0.1"))
    settings = login_settings("a", None, options)
    assert (settings.port, settings.user, settings.hostname) == (1, "opt", "10.0.0.1")
    assert login_settings("a", "flag", options).user == "flag"


def test_own_file_before_the_systems(home: Path) -> None:
    """Without -F the user's file is read first and then the system's; `none` reads neither."""
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Host x\n  User mine\n")
    (home / "system").write_text("Host *\n  User theirs\n  Port 77\n  ControlMaster yes\n")
    both = login_settings("x", None, SshOptions())
    assert (both.user, both.port, both.warnings) == ("mine", 77, ())
    assert login_settings("x", None, SshOptions(config_file="none")).port == 22


def test_no_files_at_all(home: Path) -> None:
    """A home without .ssh and a system without a file are no error."""
    settings = login_settings("srv002", None, SshOptions())
    assert (settings.hostname, settings.port, settings.strict_host_keys) == ("srv002", 22, "ask")


@pytest.mark.parametrize(
    ("lines", "agent"),
    [
        ("", "/agent"),
        ("IdentityAgent none", None),
        ("IdentityAgent SSH_AUTH_SOCK", "/agent"),
        ("IdentityAgent /other", "/other"),
        ("IdentityAgent $SSH_AUTH_SOCK", "/agent"),
    ],
)
def test_agent(home: Path, lines: str, agent: str | None) -> None:
    """The agent is the environment's, a named one, or none."""
    file = home / "config"
    file.write_text(f"{lines}\n")
    assert login_settings("x", None, SshOptions(config_file=str(file))).agent == agent


def test_tokens(home: Path) -> None:
    """Tokens of ssh_config stand for what they name; an unknown one is an error."""
    file = home / "config"
    file.write_text("Host x\n  HostName real\n  Port 22\n  User u\n  IdentityFile %d/%h-%n-%p-%r-%%-${SSH_AUTH_SOCK}\n")
    settings = login_settings("x", None, SshOptions(config_file=str(file)))
    assert settings.identities == (f"{home}/real-x-22-u-%-/agent",)
    file.write_text("IdentityFile %Z\n")
    with pytest.raises(UsageError, match="%Z"):
        login_settings("x", None, SshOptions(config_file=str(file)))


@pytest.mark.parametrize(
    "line",
    [
        "ControlMaster auto",
        "GSSAPIAuthentication yes",
        "PKCS11Provider /lib/p11.so",
        "RevokedHostKeys /etc/revoked",
        "CanonicalizeHostname yes",
        'Match exec "true"\n  Port 5',
    ],
)
def test_what_is_not_honoured_is_warned_of(home: Path, line: str) -> None:
    """Options that ssh would have honoured and this way does not are named; Match exec does not match."""
    file = home / "config"
    file.write_text(f"{line}\n")
    settings = login_settings("x", None, SshOptions(config_file=str(file)))
    assert (len(settings.warnings), settings.port) == (1, 22)
    assert line.split()[0].lower() in settings.warnings[0].lower()


@pytest.mark.parametrize("line", ["ControlMaster no", "GSSAPIAuthentication no", "SendEnv LANG", "Unknown thing"])
def test_what_changes_nothing_is_not_warned_of(home: Path, line: str) -> None:
    """Options at the value that we have anyway, and harmless ones, are no news."""
    file = home / "config"
    file.write_text(f"{line}\n")
    assert login_settings("x", None, SshOptions(config_file=str(file))).warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "Port many",
        "Port 0",
        "Port",
        "StrictHostKeyChecking maybe",
        "BatchMode maybe",
        "ConnectTimeout soon",
        "RekeyLimit much",
        "AddressFamily inet5",
        'IdentityFile "open',
        "Match host",
        "Match nonsense x",
        "=",
    ],
)
def test_lines_that_make_no_sense(home: Path, text: str) -> None:
    """A wrong value or line is a usage error that names it, never a traceback."""
    file = home / "config"
    file.write_text(f"{text}\n")
    with pytest.raises(UsageError):
        login_settings("x", None, SshOptions(config_file=str(file)))


def test_wrong_line_is_told_with_its_place(home: Path) -> None:
    """The file and the line are in the message; a wrong -o names that option."""
    file = home / "config"
    file.write_text('\nUser "x\n')
    with pytest.raises(UsageError, match=f"{file} line 2"):
        login_settings("x", None, SshOptions(config_file=str(file)))
    with pytest.raises(InvalidValue, match="-o"):
        login_settings("x", None, SshOptions(config_file="none", options=('User="x',)))


def test_a_file_that_was_named_must_be_there(home: Path) -> None:
    """-F with a missing file is an error."""
    with pytest.raises(InvalidValue, match="ssh-config"):
        login_settings("x", None, SshOptions(config_file=str(home / "missing")))


def test_files_that_include_each_other_end(home: Path) -> None:
    """A circle of Include lines is an error, not a recursion without end."""
    file = home / "config"
    file.write_text(f"Include {file}\n")
    with pytest.raises(UsageError, match="too many levels"):
        login_settings("x", None, SshOptions(config_file=str(file)))


def test_flags() -> None:
    """-4, -C and -J are ssh_config words like any other."""
    options = SshOptions(config_file="none", family=AddressFamily.IPV4, compress=True, jump="j")
    settings = login_settings("x", None, options)
    assert (settings.family, settings.compress, settings.proxy_jump) == (AddressFamily.IPV4, True, "j")
    assert jump_options(options) == SshOptions(config_file="none", family=AddressFamily.IPV4)


@pytest.mark.parametrize(
    ("jumps", "expected"),
    [
        ("j", ((None, "j", None),)),
        ("u@j:22,k", (("u", "j", 22), (None, "k", None))),
        ("ssh://u@j:22/", (("u", "j", 22),)),
        ("u@[2001:db8::1]:2222", (("u", "2001:db8::1", 2222),)),
        ("a@b@j", (("a@b", "j", None),)),
    ],
)
def test_jump_hosts(jumps: str, expected: object) -> None:
    """Jump hosts are split into user, host and port."""
    assert split_jumps(jumps) == expected


@pytest.mark.parametrize("jumps", ["", "j:port", "u@", "j,,k", "2001:db8::1"])
def test_jump_hosts_that_are_none(jumps: str) -> None:
    """What is no jump host is refused."""
    with pytest.raises(InvalidValue):
        split_jumps(jumps)
