"""Reading `ssh -G`, choosing ciphers, and the command lines given to ssh."""

from __future__ import annotations

import pytest

from fastcopy.config import AddressFamily, SshOptions
from fastcopy.connection.ssh_command import login_flags, master_command, mux_command
from fastcopy.connection.ssh_config import (
    SshSettings,
    asked_ciphers,
    cpuinfo_has_aes,
    parse_settings,
    preferred_ciphers,
)
from fastcopy.errors import InvalidValue

#: Of OpenSSH 9.2, shortened.
PRINTED = """\
host t
user root
hostname 127.0.0.1
port 2247
controlmaster auto
forkafterauthentication no
serveraliveinterval 30
ciphers chacha20-poly1305@openssh.com,aes128-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com
identityfile ~/.ssh/id_rsa
identityfile ~/.ssh/my key
canonicaldomains none
connecttimeout none
controlpath /root/x/127.0.0.1-2247-root
"""
LISTED = ("chacha20-poly1305@openssh.com", "aes128-ctr", "aes256-gcm@openssh.com", "aes128-gcm@openssh.com")
KNOWN = ("3des-cbc", "aes128-ctr", "aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com")
SETTINGS = SshSettings(hostname="t", port=22, user="root")


def test_settings_are_read_as_ssh_prints_them() -> None:
    """Numbers, lists, `none` and names with blanks come out as values."""
    settings = parse_settings(PRINTED)
    assert (settings.hostname, settings.port, settings.user) == ("127.0.0.1", 2247, "root")
    assert settings.ciphers == (
        "chacha20-poly1305@openssh.com",
        "aes128-ctr",
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
    )
    assert settings.identity_files == ("~/.ssh/id_rsa", "~/.ssh/my key")
    assert settings.control_path == "/root/x/127.0.0.1-2247-root"
    assert (settings.server_alive_s, settings.connect_timeout_s) == (30, None)


@pytest.mark.parametrize("text", ["", "garbage", "port x\nciphers\n", "controlpath none\n"])
def test_settings_that_are_not_there_count_as_not_set(text: str) -> None:
    """Another version's output breaks nothing."""
    settings = parse_settings(text)
    assert (settings.port, settings.ciphers, settings.control_path, settings.server_alive_s) == (22, (), None, 0)


def test_gcm_comes_first_where_aes_is_in_hardware() -> None:
    """AES-128 before AES-256, the rest in the site's order."""
    assert preferred_ciphers(LISTED, True) == (
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
        "aes128-ctr",
    )


def test_the_order_stays_without_aes_in_hardware() -> None:
    """chacha20 is the faster one there."""
    assert preferred_ciphers(LISTED, False) == LISTED


def test_no_cipher_is_added_to_the_site_policy() -> None:
    """A site that allows no GCM gets none."""
    assert preferred_ciphers(("aes256-ctr",), True) == ("aes256-ctr",)


def test_a_short_cipher_name_is_completed() -> None:
    """`-c aes128-gcm` means OpenSSH's name; whole names stay."""
    assert asked_ciphers(("aes128-gcm", "aes128-ctr", "3des-cbc"), KNOWN) == (
        "aes128-gcm@openssh.com",
        "aes128-ctr",
        "3des-cbc",
    )


@pytest.mark.parametrize("name", ["arcfour", "arcfour128", "arcfour256", "blowfish-cbc", "cast128-cbc", "Arcfour"])
def test_a_cipher_that_is_gone_is_told_to_be_gone_with_its_replacement(name: str) -> None:
    """Old scripts name arcfour; the error says what to write instead."""
    with pytest.raises(InvalidValue) as caught:
        asked_ciphers((name,), KNOWN)
    assert str(caught.value) == (
        f"--cipher: {name} is gone from every supported OpenSSH; use aes128-gcm@openssh.com instead, "
        "which is faster and safe"
    )


def test_an_unknown_cipher_lists_the_known_ones() -> None:
    """A typing error shows what there is."""
    with pytest.raises(
        InvalidValue, match=r"^--cipher: this ssh knows no cipher 'aes'; it knows: 3des-cbc, aes128-ctr"
    ):
        asked_ciphers(("aes",), KNOWN)


def test_a_cipher_is_taken_as_it_is_where_ssh_cannot_list_them() -> None:
    """ssh itself will judge the name, unless it could not be a name."""
    assert asked_ciphers(("aes128-ctr",), ()) == ("aes128-ctr",)
    with pytest.raises(InvalidValue):
        asked_ciphers(("a b",), ())


@pytest.mark.parametrize(
    ("cpuinfo", "machine", "has_aes"),
    [
        ("processor\t: 0\nflags\t\t: fpu vme aes avx\n", "x86_64", True),
        ("processor\t: 0\nflags\t\t: fpu vme vaes avx\n", "x86_64", False),
        ("processor\t: 0\nFeatures\t: fp asimd evtstrm aes pmull\n", "aarch64", True),
        ("processor\t: 0\nFeatures\t: fp asimd evtstrm crc32\n", "aarch64", False),
        ("processor\t: 0\ncpu\t\t: POWER9\n", "ppc64le", True),
    ],
)
def test_aes_in_hardware_is_read_from_cpuinfo(cpuinfo: str, machine: str, has_aes: bool) -> None:
    """x86, Arm and POWER say it in their own ways."""
    assert cpuinfo_has_aes(cpuinfo, machine) == has_aes


def test_the_flags_of_a_user_reach_ssh_one_by_one() -> None:
    """Every option is a word of its own, so that no value can become another option."""
    options = SshOptions(
        port=2222,
        identities=("a", "b"),
        config_file="f",
        jump="j",
        options=("Foo=bar baz",),
        family=AddressFamily.IPV6,
    )
    assert login_flags(options, "me") == [
        *("-F", "f", "-6", "-p", "2222", "-l", "me", "-i", "a", "-i", "b", "-J", "j"),
        *("-o", "Foo=bar baz"),
    ]


def _master(options: SshOptions, settings: SshSettings = SETTINGS, *, batch: bool = True) -> list[str]:
    return master_command(
        "ssh",
        "t",
        options=options,
        user=None,
        settings=settings,
        ciphers=("a", "b"),
        socket="/s",
        log="/l",
        batch=batch,
    )


def test_a_master_never_forwards_and_never_becomes_the_users_own() -> None:
    """What must hold stands before the user's own options: ssh keeps the first value."""
    command = _master(SshOptions(options=("ControlPath=/x", "ForwardAgent=yes")))
    first_of_user = command.index("ControlPath=/x")
    assert command[:10] == ["ssh", "-M", "-S", "/s", "-N", "-T", "-x", "-a", "-E", "/l"]
    assert command.index("ClearAllForwardings=yes") < first_of_user
    assert command.index("BatchMode=yes") < first_of_user
    assert command[-2:] == ["--", "t"]


def test_only_a_login_on_the_terminal_may_ask() -> None:
    """BatchMode is left out there alone."""
    assert "BatchMode=yes" in _master(SshOptions())
    assert "BatchMode=yes" not in _master(SshOptions(), batch=False)


def test_newer_keywords_are_given_only_to_an_ssh_that_lists_them() -> None:
    """An unknown keyword would end an old ssh."""
    newer = SshSettings(hostname="t", port=22, user="root", all={"remotecommand": "x", "forkafterauthentication": "no"})
    assert "RemoteCommand=none" not in _master(SshOptions())
    assert {"RemoteCommand=none", "ForkAfterAuthentication=no"} <= set(_master(SshOptions(), newer))


def test_values_the_user_set_are_kept() -> None:
    """Keepalive, timeout, ciphers and compression stand in only where nobody chose."""
    chosen = SshSettings(hostname="t", port=22, user="root", server_alive_s=30, connect_timeout_s=5)
    options = SshOptions(options=("Ciphers=x", "compression yes"))
    assert not {"ServerAliveInterval=15", "ConnectTimeout=30", "Compression=no", "-c"} & set(_master(options, chosen))
    assert {"ServerAliveInterval=15", "ConnectTimeout=30", "Compression=no", "-c", "a,b"} <= set(_master(SshOptions()))


def test_compression_is_switched_on_by_its_option() -> None:
    """-C as in scp."""
    assert "Compression=yes" in _master(SshOptions(compress=True))


def test_a_mux_client_can_never_log_in_and_takes_its_command_as_one_word() -> None:
    """ProxyCommand=false ends it where it would log in anew."""
    command = mux_command("ssh", "t", socket="/s", log="/l", is_subsystem=False, command="cat -v; exit")
    assert command[:5] == ["ssh", "-F", "/dev/null", "-S", "/s"]
    assert {"ProxyCommand=false", "ControlMaster=no"} <= set(command)
    assert command[-3:] == ["--", "t", "cat -v; exit"]
    assert "-s" in mux_command("ssh", "t", socket="/s", log="/l", is_subsystem=True, command="sftp")
