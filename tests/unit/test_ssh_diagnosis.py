"""What ssh logs and how it ends, against the error a user gets. The logs are real, of OpenSSH 9.2p1, shortened."""

from __future__ import annotations

import pytest

from fastcopy.connection.ssh_diagnosis import diagnose, diagnose_channel, explain_end, last_words, usage_error
from fastcopy.errors import (
    ChannelLost,
    CipherRefused,
    ConnectError,
    ConnectionRefused,
    ConnectTimeout,
    FastcopyError,
    HostKeyChanged,
    HostKeyUnknown,
    HostUnknown,
    InvalidValue,
    LoginRefused,
    NoSftp,
    ServerPrintsText,
    TooManyLogins,
    TooManySessions,
    UnsafePeer,
)

CONNECTED = """\
debug1: Reading configuration data cfg
debug1: Connecting to 127.0.0.1 [127.0.0.1] port 2247.
debug1: Connection established.
debug1: identity file /tmp/w/id type 3
debug1: Local version string SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u10
"""
GREETED = (
    CONNECTED
    + """\
debug1: Remote protocol version 2.0, remote software version OpenSSH_9.2p1 Debian-2+deb12u10
debug1: Authenticating to 127.0.0.1:2247 as 'root'
debug1: SSH2_MSG_KEXINIT sent
debug1: SSH2_MSG_KEXINIT received
"""
)
KEY = "ssh-ed25519 SHA256:4wfeLqCL0W397n4LktEYlI5T6YH7lzNio+2bxua9yKE"
SHOWN = GREETED + f"debug1: SSH2_MSG_KEX_ECDH_REPLY received\ndebug1: Server host key: {KEY}\n"
ASKED = SHOWN + "debug1: SSH2_MSG_SERVICE_ACCEPT received\ndebug1: Next authentication method: publickey\n"
OFFER = "debug1: Offering public key: /tmp/w/id ED25519 SHA256:fn7jgN explicit\n"
ACCEPTS = "debug1: Server accepts key: /tmp/w/id ED25519 SHA256:fn7jgN explicit\n"
DENIED = (
    "debug1: No more authentication methods to try.\n"
    "root@127.0.0.1: Permission denied (publickey,password,keyboard-interactive).\n"
)
RULER = "@" * 59 + "\n"
CHANGED = (
    SHOWN
    + RULER
    + "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n"
    + RULER
    + """\
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Someone could be eavesdropping on you right now (man-in-the-middle attack)!
It is also possible that a host key has just been changed.
The fingerprint for the ED25519 key sent by the remote host is
SHA256:4wfeLqCL0W397n4LktEYlI5T6YH7lzNio+2bxua9yKE.
Please contact your system administrator.
Add correct host key in /tmp/w/kh2 to get rid of this message.
Offending ED25519 key in /tmp/w/kh2:1
  remove with:
  ssh-keygen -f "/tmp/w/kh2" -R "[127.0.0.1]:2247"
Host key for [127.0.0.1]:2247 has changed and you have requested strict checking.
Host key verification failed.
"""
)
REVOKED = (
    SHOWN
    + RULER
    + "@       WARNING: REVOKED HOST KEY DETECTED!               @\n"
    + RULER
    + """\
The ED25519 host key for [127.0.0.1]:2247 is marked as revoked.
This could mean that a stolen key is being used to
impersonate this host.
ED25519 host key for [127.0.0.1]:2247 was revoked and you have requested strict checking.
Host key verification failed.
"""
)
BY_PROXY = "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535\n"
CLOSED = "kex_exchange_identification: Connection closed by remote host\nConnection closed by 127.0.0.1 port 2253\n"
UNPROTECTED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Permissions 0644 for '/tmp/w/idopen' are too open.
It is required that your private key files are NOT accessible by others.
This private key will be ignored.
Load key "/tmp/w/idopen": bad permissions
"""


def told(error: FastcopyError) -> tuple[type[FastcopyError], int, str]:
    return type(error), error.exit_code, str(error)


LOGINS = {
    "a name nobody knows": (
        "ssh: Could not resolve hostname nope.invalid: Name or service not known\n",
        "",
        HostUnknown,
        3,
        "nope.invalid: Name or service not known",
    ),
    "a port nobody listens on": (
        "debug1: connect to address 127.0.0.1 port 1: Connection refused\n"
        "ssh: connect to host 127.0.0.1 port 1: Connection refused\n",
        "",
        ConnectionRefused,
        3,
        "127.0.0.1 port 1: Connection refused",
    ),
    "no answer to the SYN": (
        "ssh: connect to host 10.0.0.9 port 22: Connection timed out\n",
        "",
        ConnectTimeout,
        3,
        "10.0.0.9 port 22: Connection timed out",
    ),
    "no way there": (
        "ssh: connect to host 255.255.255.255 port 2247: Network is unreachable\n",
        "",
        ConnectTimeout,
        3,
        "Network is unreachable",
    ),
    "connecting forbidden here": (
        "ssh: connect to host 10.0.0.9 port 22: Permission denied\n",
        "",
        ConnectError,
        3,
        "10.0.0.9 port 22: Permission denied",
    ),
    "a peer that says nothing": (
        CONNECTED + "Connection timed out during banner exchange\nConnection to 10.255.255.1 port 2247 timed out\n",
        "",
        ConnectTimeout,
        3,
        "Connection timed out during banner exchange",
    ),
    "MaxStartups said": (
        CONNECTED + "debug1: kex_exchange_identification: banner line 0: Exceeded MaxStartups\n" + CLOSED,
        "",
        TooManyLogins,
        3,
        "(MaxStartups in its sshd_config)",
    ),
    "MaxStartups unsaid, by an older sshd": (
        CONNECTED + CLOSED,
        "",
        TooManyLogins,
        3,
        "closed the connection before SSH began",
    ),
    "a reset instead of a greeting": (
        CONNECTED
        + "kex_exchange_identification: read: Connection reset by peer\nConnection reset by 127.0.0.1 port 2256\n",
        "",
        TooManyLogins,
        3,
        "closed the connection before SSH began",
    ),
    "an address under penalty": (
        CONNECTED + "debug1: kex_exchange_identification: banner line 0: Not allowed at this time\n" + CLOSED,
        "",
        LoginRefused,
        3,
        "PerSourcePenalties",
    ),
    "a web server": (
        CONNECTED
        + "debug1: kex_exchange_identification: banner line 0: HTTP/1.1 400 Bad Request\n"
        + "debug1: kex_exchange_identification: banner line 1: Server: x\n"
        + CLOSED,
        "",
        ConnectionRefused,
        3,
        "does not speak SSH but says 'HTTP/1.1 400 Bad Request'",
    ),
    "garbage": (
        GREETED
        + "Bad packet length 1734439522.\n"
        + "ssh_dispatch_run_fatal: Connection to 127.0.0.1 port 2256: message authentication code incorrect\n",
        "",
        ConnectError,
        3,
        "message authentication code incorrect",
    ),
    "no common key exchange": (
        GREETED
        + "Unable to negotiate with 127.0.0.1 port 2247: no matching key exchange method found. "
        + "Their offer: curve25519-sha256,diffie-hellman-group14-sha256\n",
        "",
        ConnectError,
        3,
        "it offers: curve25519-sha256, diffie-hellman-group14-sha256; if you trust one of those, add it with "
        "-o KexAlgorithms=+NAME",
    ),
    "no common host key type": (
        GREETED
        + "Unable to negotiate with 127.0.0.1 port 2247: no matching host key type found. Their offer: ssh-rsa\n",
        "",
        ConnectError,
        3,
        "-o HostKeyAlgorithms=+NAME",
    ),
    "an unknown host key, nobody to ask": (SHOWN + "Host key verification failed.\n", "", HostKeyUnknown, 6, KEY),
    "an unknown host key, asked strictly": (
        SHOWN
        + "No ED25519 host key is known for [127.0.0.1]:2247 and you have requested strict checking.\n"
        + "Host key verification failed.\n",
        "",
        HostKeyUnknown,
        6,
        KEY,
    ),
    "a changed host key": (CHANGED, "", HostKeyChanged, 6, f"it is now {KEY}, /tmp/w/kh2:1 has another"),
    "a changed host key and how to forget it": (CHANGED, "", HostKeyChanged, 6, "ssh-keygen -R [127.0.0.1]:2247"),
    "a revoked host key": (REVOKED, "", UnsafePeer, 6, "is marked as revoked here"),
    "a key the server does not know": (
        ASKED + OFFER + DENIED,
        "",
        LoginRefused,
        3,
        "user root, it accepts publickey, password, keyboard-interactive. Check",
    ),
    "no key at all": (ASKED + DENIED, "", LoginRefused, 3, "ssh had no key to offer"),
    "a key under a passphrase": (
        ASKED + OFFER + ACCEPTS + DENIED,
        "",
        LoginRefused,
        3,
        "the server knows the key /tmp/w/id but ssh could not use it: if a passphrase locks it, ssh-add it first",
    ),
    "a key others can read": (
        ASKED + OFFER + ACCEPTS + UNPROTECTED + DENIED,
        "",
        LoginRefused,
        3,
        "others can read the key /tmp/w/idopen, so ssh ignored it: chmod 600 it",
    ),
    "too many keys": (
        ASKED
        + OFFER * 6
        + "Received disconnect from 127.0.0.1 port 2247:2: Too many authentication failures\n"
        + "Disconnected from 127.0.0.1 port 2247\n",
        "",
        LoginRefused,
        3,
        "gave up after 6 keys were offered; name the right one with -i and add -o IdentitiesOnly=yes",
    ),
    "hung up on during the login": (
        ASKED + OFFER + "Connection closed by 127.0.0.1 port 2247\n",
        "",
        LoginRefused,
        3,
        "it ended the connection during the login",
    ),
    "a jump host nobody knows": (
        BY_PROXY,
        "ssh: Could not resolve hostname nope.invalid: Name or service not known\n",
        HostUnknown,
        3,
        "t (on the way there, by jump host or proxy)",
    ),
    "a jump host that wants another key": (
        BY_PROXY,
        "Permission denied, please try again.\n"
        "root@127.0.0.1: Permission denied (publickey,password,keyboard-interactive).\n",
        LoginRefused,
        3,
        "t (on the way there, by jump host or proxy)",
    ),
    "a host the jump host cannot reach": (
        BY_PROXY,
        "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\n",
        ConnectionRefused,
        3,
        "from the jump host: connect failed: Connection refused",
    ),
    "a proxy command that is not there": (
        CONNECTED + BY_PROXY,
        "/bin/bash: line 1: /no/such/prog: No such file or directory\n",
        ConnectError,
        3,
        "/no/such/prog: No such file or directory",
    ),
}


@pytest.mark.parametrize("case", LOGINS.values(), ids=LOGINS)
def test_a_failed_login_is_told_by_its_cause(case: tuple[str, str, type[FastcopyError], int, str]) -> None:
    """Each way a login fails has its own error, exit code and advice."""
    log, stderr, kind, exit_code, sentence = case
    error = diagnose(log, 255, stderr, host="t")
    assert told(error)[:2] == (kind, exit_code)
    assert sentence in str(error)


def test_a_refused_cipher_tells_what_was_asked_and_what_is_offered() -> None:
    """The user can choose another cipher from the error alone."""
    log = GREETED + (
        "Unable to negotiate with 127.0.0.1 port 2247: no matching cipher found. "
        "Their offer: chacha20-poly1305@openssh.com,aes128-ctr\n"
    )
    assert told(diagnose(log, 255, "", host="t", asked_ciphers=("3des-cbc",))) == (
        CipherRefused,
        3,
        "t has none of the ciphers asked for (3des-cbc); it offers: chacha20-poly1305@openssh.com, aes128-ctr. "
        "Choose one of those with -c.",
    )


def test_an_unheard_of_end_is_told_in_the_last_words_of_ssh() -> None:
    """What no rule knows still reaches the user, escaped."""
    assert told(diagnose(ASKED + "something \x1b[31mnew\n", 255, "", host="t")) == (
        ConnectError,
        3,
        "Could not reach t: something \\x1b[31mnew",
    )


def test_silence_is_told_with_the_exit_status() -> None:
    """An ssh that says nothing at all is told by how it ended."""
    assert str(diagnose("", -9, "", host="t")) == "Could not reach t: ssh ended with status -9"


USAGE = {
    "command-line: line 0: Bad configuration option: foo\n": "-o",
    "command-line line 0: Bad port 'abc'.\n": "-o",
    "command-line line 0: invalid time value.\n": "-o",
    "command-line line 0: Bad SSH2 cipher spec 'foo'.\n": "-o",
    "Can't open user config file nope: No such file or directory\n": "--ssh-config",
    "Unknown cipher type 'foo'\n": "--cipher",
    "Bad port '70000'\n": "--port",
    "Invalid -J argument\n": "--jump",
    "hostname contains invalid characters\n": "host",
    "remote username contains invalid characters\n": "user",
    "cfg: line 2: Bad configuration option: foo\ncfg: terminating, 1 bad configuration options\n": "ssh_config",
}


@pytest.mark.parametrize(("complaint", "option"), USAGE.items())
def test_a_command_line_ssh_refuses_is_a_usage_error_that_names_the_option(complaint: str, option: str) -> None:
    """What ssh does not understand is the user's to mend: exit 2, with the option and ssh's words."""
    complaint = complaint.replace("\n", "\r\n")
    error = usage_error(complaint)
    assert told(error or FastcopyError()) == (InvalidValue, 2, f"{option}: {complaint.splitlines()[0]}")
    assert type(diagnose("", 255, complaint, host="t")) is InvalidValue


def test_other_complaints_are_no_usage_error() -> None:
    """A shell's complaint with a line number is not taken for ssh_config's once ssh has begun."""
    assert usage_error("root@h: Permission denied (publickey).\n") is None


MUX = "debug1: Reading configuration data /dev/null\n"


def test_a_refused_session_is_too_many_sessions() -> None:
    """MaxSessions reached is told by name."""
    log = MUX + "mux_client_request_session: session request failed: Session open refused by peer\n"
    assert told(diagnose_channel(log, 255, host="t"))[:2] == (TooManySessions, 3)


def test_an_owner_who_refuses_his_master_is_quoted() -> None:
    """A user's own master with ControlMaster=ask may say no."""
    log = MUX + "Master refused session request: Permission denied\n"
    assert told(diagnose_channel(log, 255, host="t")) == (
        ConnectError,
        3,
        "Could not reach t: the shared connection's owner refused: Permission denied",
    )


def test_no_master_is_a_lost_channel() -> None:
    """A mux client without its master means that the login is gone."""
    log = MUX + 'debug1: Control socket "/tmp/f/1.sock" does not exist\n'
    assert told(diagnose_channel(log, 255, host="t"))[:2] == (ChannelLost, 3)


ENDS: dict[str, tuple[bytes, int | None, str, str | None, type[FastcopyError], str]] = {
    "a refused subsystem": (b"", 255, "", None, NoSftp, "it refused the sftp subsystem"),
    "a subsystem whose program is missing": (
        b"",
        127,
        "bash: line 1: /no/such: No such file or directory\n",
        None,
        NoSftp,
        "its SFTP program cannot be run (bash: line 1: /no/such: No such file or directory)",
    ),
    "a program that may not be run": (b"", 126, "", None, NoSftp, "its SFTP program cannot be run (exit status 126)"),
    "a forced command that ends": (b"", 0, "", None, NoSftp, "its SFTP program ended at once with status 0"),
    "an account that may not log in": (
        b"This account is currently not available.\n",
        1,
        "",
        None,
        NoSftp,
        "it printed 'This account is currently not available.' and ended the session",
    ),
    "text before SFTP": (b"Welcome to db1!\n\0\0\0\5\2", None, "", None, ServerPrintsText, "'Welcome to db1!"),
    "a login that is over": (
        b"",
        255,
        "",
        ASKED + 'Authenticated to t ([127.0.0.1]:2247) using "publickey".\nTimeout, server t not responding.\n',
        ChannelLost,
        "Timeout, server t not responding.",
    ),
    "a login that ended without a word": (b"", 255, "", ASKED, ChannelLost, "the login ended"),
    "a channel ended from here": (b"", None, "", None, ChannelLost, "the channel ended"),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS)
def test_a_channel_that_ends_before_sftp_is_told_by_its_cause(
    case: tuple[bytes, int | None, str, str | None, type[FastcopyError], str],
) -> None:
    """Text, a missing subsystem, a missing program and a lost login are told apart."""
    received, status, stderr, master_log, kind, sentence = case
    error = explain_end(received, status, stderr, host="t", master_log=master_log)
    assert type(error) is kind
    assert sentence in str(error)


def test_a_long_text_of_the_server_is_cut_and_escaped() -> None:
    """What a server prints can neither flood nor command the terminal."""
    message = str(explain_end(b"\x1b[2J" + b"x" * 5000, None, "", host="t", master_log=None))
    assert "\x1b" not in message
    assert len(message) < 500


def test_last_words_leave_out_what_is_no_reason() -> None:
    """Debug lines and ssh's statistics are no reason for an end."""
    log = ASKED + "client_loop: send disconnect: Broken pipe\nTransferred: sent 1, received 2 bytes, in 0.1 seconds\n"
    assert last_words(log) == "client_loop: send disconnect: Broken pipe"
