"""What asyncssh and the socket raise, and the error with advice that comes out for it."""

from __future__ import annotations

import errno
import os
import socket

import asyncssh
import pytest

from fastcopy.connection.asyncssh_errors import channel_error, end_error, login_error
from fastcopy.errors import (
    ChannelLost,
    CipherRefused,
    ConnectError,
    ConnectionRefused,
    ConnectTimeout,
    FastcopyError,
    HostUnknown,
    InvalidValue,
    LoginRefused,
    NoSftp,
    ServerPrintsText,
    TooManyLogins,
    TooManySessions,
    UnsafePeer,
)

GREETING = b"SSH-2.0-OpenSSH_9.2p1\r\n"


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


LOGINS: list[tuple[str, BaseException, bytes, type[FastcopyError], str]] = [
    ("name", socket.gaierror(socket.EAI_NONAME, "Name or service not known"), b"", HostUnknown, "Name or service"),
    ("refused", os_error(errno.ECONNREFUSED), b"", ConnectionRefused, "nothing listens"),
    (
        "several addresses",
        OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1'), [Errno 111] Connect call failed"),
        b"",
        ConnectionRefused,
        "nothing listens",
    ),
    ("no route", os_error(errno.EHOSTUNREACH), b"", ConnectTimeout, "No route to host"),
    ("kernel timeout", os_error(errno.ETIMEDOUT), b"", ConnectTimeout, "timed out"),
    ("our deadline", TimeoutError("no login within 3 s"), b"", ConnectTimeout, "no login within 3 s"),
    ("denied", asyncssh.PermissionDenied("Permission denied"), GREETING, LoginRefused, "no key or password"),
    ("revoked", asyncssh.HostKeyNotVerifiable("Host key is revoked"), GREETING, UnsafePeer, "revoked"),
    (
        "no cipher",
        asyncssh.KeyExchangeFailed(
            "No matching encryption algorithm found, sent aes128-gcm@openssh.com and received 3des-cbc,aes128-ctr"
        ),
        GREETING,
        CipherRefused,
        "offers: 3des-cbc, aes128-ctr. Choose",
    ),
    (
        "no MAC",
        asyncssh.KeyExchangeFailed("No matching MAC algorithm found, sent a and received hmac-md5"),
        GREETING,
        ConnectError,
        "-o MACs=+NAME",
    ),
    ("key exchange", asyncssh.KeyExchangeFailed("Key exchange failed"), GREETING, ConnectError, "Key exchange failed"),
    ("dropped by number", asyncssh.DisconnectError(12, "Too many connections"), GREETING, TooManyLogins, "Too many"),
    (
        "too many keys",
        asyncssh.DisconnectError(2, "Too many authentication failures"),
        GREETING,
        LoginRefused,
        "IdentitiesOnly",
    ),
    ("MaxStartups", asyncssh.ConnectionLost("lost"), b"Exceeded MaxStartups\r\n", TooManyLogins, "MaxStartups"),
    ("penalty", asyncssh.ConnectionLost("lost"), b"Not allowed at this time\r\n", LoginRefused, "PerSourcePenalties"),
    ("closed in silence", asyncssh.ConnectionLost("lost"), b"", TooManyLogins, "before SSH began"),
    ("reset in silence", os_error(errno.ECONNRESET), b"", TooManyLogins, "before SSH began"),
    ("a web server", asyncssh.ConnectionLost("lost"), b"HTTP/1.1 400\x1b[2J\r\n", ConnectionRefused, r"400\x1b[2J"),
    ("lost half way", asyncssh.ConnectionLost("lost"), GREETING, ConnectError, "during the login"),
    ("jump host", asyncssh.ChannelOpenError(2, "Connection refused"), b"", ConnectionRefused, "from the jump host"),
    ("unknown algorithm", ValueError("foo is not a valid MAC algorithm"), b"", InvalidValue, "foo is not a valid"),
    ("anything else", RuntimeError("surprise"), b"", ConnectError, "RuntimeError: surprise"),
    ("one of ours", LoginRefused("before", host="h"), b"", LoginRefused, "before"),
]


@pytest.mark.parametrize(
    ("exc", "greeting", "kind", "words"), [case[1:] for case in LOGINS], ids=[c[0] for c in LOGINS]
)
def test_login(exc: BaseException, greeting: bytes, kind: type[FastcopyError], words: str) -> None:
    """Each way a login fails becomes its own class, whose sentence keeps what matters of the cause."""
    error = login_error(exc, host="h", greeting=greeting)
    assert (type(error), words in str(error)) == (kind, True), str(error)


def test_a_refused_login_tells_what_the_server_accepts() -> None:
    """The methods the server would take, and what is wrong with our keys, stand in the message."""
    error = login_error(asyncssh.PermissionDenied("no"), host="h", offers="it accepts publickey")
    assert "it accepts publickey" in str(error)


OPENINGS: list[tuple[str, BaseException, bool, str | None, type[FastcopyError]]] = [
    (
        "MaxSessions",
        asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "open failed"),
        True,
        None,
        TooManySessions,
    ),
    ("shortage", asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "no"), True, None, TooManySessions),
    ("no subsystem", asyncssh.ChannelOpenError(asyncssh.OPEN_REQUEST_SESSION_FAILED, "no"), True, None, NoSftp),
    ("no command", asyncssh.ChannelOpenError(asyncssh.OPEN_REQUEST_SESSION_FAILED, "no"), False, None, ConnectError),
    ("login over", asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "closed"), True, "reset", ChannelLost),
    ("silence", TimeoutError(), True, None, ChannelLost),
    ("anything else", RuntimeError("surprise"), True, None, ChannelLost),
]


@pytest.mark.parametrize(("exc", "subsystem", "lost", "kind"), [c[1:] for c in OPENINGS], ids=[c[0] for c in OPENINGS])
def test_opening_a_channel(exc: BaseException, subsystem: bool, lost: str | None, kind: type[FastcopyError]) -> None:
    """A channel that cannot be opened says why: too many, no such subsystem, or the login is over."""
    assert type(channel_error(exc, host="h", subsystem=subsystem, lost=lost)) is kind


ENDS: list[tuple[str, bytes, int | None, str, str | None, type[FastcopyError]]] = [
    ("program missing", b"", 127, "sh: sftp-server: not found", None, NoSftp),
    ("program not to be run", b"", 126, "", None, NoSftp),
    ("ended at once", b"", 1, "the account has expired", None, NoSftp),
    ("text and on it goes", b"Welcome to srv002!\n", None, "", None, ServerPrintsText),
    ("text and the end", b"This account is not available.\n", 1, "", None, NoSftp),
    ("login over", b"", None, "", "Connection lost", ChannelLost),
    ("nothing known", b"", None, "", None, ChannelLost),
]


@pytest.mark.parametrize(
    ("received", "status", "said", "lost", "kind"), [c[1:] for c in ENDS], ids=[c[0] for c in ENDS]
)
def test_the_end_of_a_channel(
    received: bytes, status: int | None, said: str, lost: str | None, kind: type[FastcopyError]
) -> None:
    """A channel that ended before SFTP began is explained by what came, how the program ended, and the login."""
    error = end_error(received, exit_status=status, said=said, lost=lost, host="h")
    assert (type(error), said in str(error)) == (kind, True), str(error)
