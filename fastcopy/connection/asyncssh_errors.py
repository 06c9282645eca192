"""From what asyncssh and the socket raise to fastcopy's errors, each with what to do about it. The only such place.

PURE: exceptions and what the peer said in, one error out. Must not reach anybody.
Invariant: whatever is raised, a FastcopyError comes out, and what a peer said in it is safe to print.
Source of the phrases: sshd.c, kex.c, auth.c of OpenSSH 7.4 to 9.9; asyncssh 2.24.1 connection.py, channel.py.
"""

from __future__ import annotations

import errno
import re
import socket

import asyncssh

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
    printable,
)

#: Characters of a peer's text that a message quotes.
_QUOTED_CHARS = 200
_UNREACHABLE = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_RESET = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})
#: What a shell says of a program that is not there, or not to be run. Source: POSIX, Shell Command Language, 2.8.2.
_NO_PROGRAM = ("126", "127")
_NO_COMMON = re.compile(r"No matching (.+) algorithm found, sent (\S+) and received (\S*)")
#: -o option that widens what is acceptable, by asyncssh's name of the kind.
_ALGORITHM_OPTIONS = {"key exchange": "KexAlgorithms", "MAC": "MACs", "host key": "HostKeyAlgorithms"}


def login_error(exc: BaseException, *, host: str, greeting: bytes = b"", offers: str = "") -> FastcopyError:
    """Say why a login failed.

    Args:
        exc: what asyncssh, the socket or the deadline raised.
        host: the name the user knows, for the sentence.
        greeting: the first bytes the peer sent; sshd speaks plainly there when it drops a login.
        offers: what the server would have let us log in with, where that is known.
    """
    if isinstance(exc, FastcopyError):
        return exc
    if isinstance(exc, TimeoutError) and not getattr(exc, "errno", None):
        return ConnectTimeout(str(exc) or "the login took too long", host=host)
    if isinstance(exc, asyncssh.DisconnectError):
        return _disconnected(exc, host, greeting, offers)
    if isinstance(exc, asyncssh.ChannelOpenError):  # of the jump host, which could not reach the host
        return ConnectionRefused(f"from the jump host: {_said(exc)}", host=host)
    if isinstance(exc, OSError):
        return _unreached(exc, host, greeting)
    if isinstance(exc, ValueError):  # a name in ssh_config that asyncssh does not know
        return InvalidValue(f"{_said(exc)} (asyncssh)", option="ssh_config")
    return ConnectError(f"{type(exc).__name__}: {_said(exc)}", host=host)


def _unreached(exc: OSError, host: str, greeting: bytes) -> FastcopyError:
    if isinstance(exc, socket.gaierror):
        return HostUnknown(printable(exc.strerror or str(exc)), host=host)
    # Several addresses were tried: asyncio then joins the texts and drops the numbers.
    number = exc.errno or next((code for code in _numbers(str(exc))), None)
    message = printable(exc.strerror or str(exc))
    if number == errno.ECONNREFUSED:
        return ConnectionRefused("nothing listens on that port", host=host)
    if number in _UNREACHABLE:
        return ConnectTimeout(message, host=host)
    if number in _RESET:
        return _dropped(host, greeting)
    return ConnectError(message, host=host)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\[Errno (\d+)\]", text)]


def _disconnected(exc: asyncssh.DisconnectError, host: str, greeting: bytes, offers: str) -> FastcopyError:
    said = _said(exc)
    if isinstance(exc, asyncssh.PermissionDenied):
        return LoginRefused("; ".join(part for part in ("no key or password was accepted", offers) if part), host=host)
    if isinstance(exc, asyncssh.HostKeyNotVerifiable):
        return UnsafePeer(f"its host key was not accepted: {said}. Nothing was sent.", host=host)
    if isinstance(exc, asyncssh.KeyExchangeFailed):
        return _nothing_in_common(said, host)
    if exc.code == asyncssh.DISC_TOO_MANY_CONNECTIONS:
        return TooManyLogins(said, host=host)
    if "Too many authentication failures" in said:
        return LoginRefused(
            "it gave up after too many keys; name the right one with -i and add -o IdentitiesOnly=yes", host=host
        )
    if isinstance(exc, asyncssh.ConnectionLost):
        return _dropped(host, greeting)
    return ConnectError(f"it ended the login: {said}", host=host)


def _dropped(host: str, greeting: bytes) -> FastcopyError:
    """Tell apart what it means when the peer ends the connection during the login."""
    if greeting.startswith(b"SSH-"):
        return ConnectError("it ended the connection during the login", host=host)
    if b"Exceeded MaxStartups" in greeting:
        return TooManyLogins("too many logins are under way there", host=host)
    if b"Not allowed at this time" in greeting:
        return LoginRefused(
            "it takes no login from this address for now, after failed ones (PerSourcePenalties in its sshd_config);"
            " wait some minutes",
            host=host,
        )
    if greeting:
        return ConnectionRefused(f"what answers there does not speak SSH ({quoted(greeting)})", host=host)
    return TooManyLogins("it closed the connection before SSH began: too many logins at once", host=host)


def _nothing_in_common(said: str, host: str) -> FastcopyError:
    found = _NO_COMMON.search(said)
    if found is None:
        return ConnectError(said, host=host)
    kind, sent, received = found[1], found[2].replace(",", ", "), found[3].replace(",", ", ")
    if kind == "encryption":
        return CipherRefused(host=host, asked=sent, offered=received)
    option = _ALGORITHM_OPTIONS.get(kind)
    advice = f"; if you trust one of those, add it with -o {option}=+NAME" if option else ""
    return ConnectError(f"no {kind} algorithm is common to both sides; it offers: {received}{advice}", host=host)


def channel_error(exc: BaseException, *, host: str, subsystem: bool, lost: str | None) -> FastcopyError:
    """Say why a channel of a login that stood could not be opened.

    Args:
        exc: what asyncssh raised.
        subsystem: whether it was to speak SFTP.
        lost: why the login is over; None while it stands.
    """
    if isinstance(exc, FastcopyError):
        return exc
    if lost is not None:
        return ChannelLost(lost, host=host)
    if isinstance(exc, TimeoutError):
        return ChannelLost("it did not answer the request for a session", host=host)
    if isinstance(exc, asyncssh.ChannelOpenError):
        if exc.code != asyncssh.OPEN_REQUEST_SESSION_FAILED:
            return TooManySessions(f"it refused to open one more ({_said(exc)})", host=host)
        if subsystem:
            return NoSftp("it refused the sftp subsystem", host=host)
        return ConnectError("it refused to run a command", host=host)
    return ChannelLost(_said(exc), host=host)


def end_error(received: bytes, *, exit_status: int | None, said: str, lost: str | None, host: str) -> FastcopyError:
    """Say why an SFTP channel ended, or did not speak SFTP, before its first packet.

    Args:
        received: what came instead of SFTP; b"" when the channel just ended.
        exit_status: how the program at the far end ended; None while it runs, or where nobody knows.
        said: what it printed on stderr.
        lost: why the login itself is over; None while it stands.
    """
    if lost is not None:
        return ChannelLost(lost, host=host)
    printed = quoted(said.encode()) or quoted(received)
    if str(exit_status) in _NO_PROGRAM:
        return NoSftp(f"its SFTP program cannot be run ({printed or f'exit status {exit_status}'})", host=host)
    if received:
        if exit_status is not None:
            return NoSftp(f"it printed {printed!r} and ended the session", host=host)
        return ServerPrintsText(repr(printed), host=host)
    if exit_status is not None:
        ended = f"its SFTP program ended at once with status {exit_status}"
        return NoSftp(f"{ended} ({printed})" if printed else ended, host=host)
    return ChannelLost(printed or "the channel ended", host=host)


def quoted(text: bytes) -> str:
    """Return the beginning of a peer's text on one line, safe for a terminal."""
    line = " ".join(text.decode("utf-8", "replace").split())
    return printable(line if len(line) <= _QUOTED_CHARS else line[:_QUOTED_CHARS] + "...")


def _said(exc: BaseException) -> str:
    return printable(getattr(exc, "reason", None) or str(exc) or type(exc).__name__)
