"""Why ssh failed: from its own words (`-E FILE` at LogLevel DEBUG1, stderr, exit status) to an error with advice.

PURE: text in, error out. ssh says 255 for nearly everything, so its English log (whatever the locale) is read. Must not
run anything. Invariant: whatever the text, one of errors.py comes out and it carries ssh's own last words.
Source of the phrases: real runs of OpenSSH 9.2, kept in tests/unit/test_ssh_diagnosis.py, and sshconnect.c,
sshconnect2.c, kex.c, packet.c, mux.c, clientloop.c, sshd.c of OpenSSH 7.4 to 9.9.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
    UsageError,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: In the log of a mux client once the server has opened the session. Source: mux.c, mux_client_request_session.
SESSION_OPEN = "master session id:"
#: In the log of a login once the user is in. Source: sshconnect2.c.
AUTHENTICATED = "Authenticated to "
#: In the log of a login once the far side has shown who it is: from now on a person may be asked. Source: sshconnect.c.
HOST_ANSWERED = "debug1: Server host key:"
#: In the same log at DEBUG2 when the remote command ended with a status of its own, be it 255. Source: mux.c.
EXIT_STATUS_CAME = "Received exit status from master"
#: Characters of a peer's text that a message quotes.
_QUOTED_CHARS = 200

#: Lines that say nothing about a failure.
_NOISE = re.compile(
    r"^(debug\d: |Authenticated to |Transferred: |Bytes per second: |OpenSSH_|@@|$"
    r"|Warning: Permanently added|Warning: Identity file .* not accessible|\*\* )"
)
_FINGERPRINT = re.compile(r"^debug1: Server host key: (.+?)\r?$", re.MULTILINE)


def diagnose(
    log: str, exit_status: int | None, stderr: str, *, host: str, asked_ciphers: Sequence[str] = ()
) -> FastcopyError:
    """Say why a login failed.

    Args:
        log: what ssh wrote to `-E FILE`.
        exit_status: negative when a signal ended ssh; None when it did not end.
        stderr: what came there: complaints about the command line, and all that a jump host's ssh says.
        host: the name the user knows, for the sentence.
        asked_ciphers: the ciphers offered, for CipherRefused.
    """
    said = [line.strip() for line in (stderr + "\n" + log).splitlines() if not _NOISE.match(line.strip())]
    text = "\n".join(said)
    usage = usage_error(text) if "debug1: " not in log else None  # ssh reads all of it before it logs anything
    if usage is not None:
        return usage
    if "UNKNOWN port 65535" in text:  # the way there is a ProxyJump or ProxyCommand, and that one failed
        said = [
            line for line in said if not re.search(r"UNKNOWN port 65535|^kex_exchange_identification|^banner ", line)
        ]
        text = "\n".join(said)
        host = f"{host} (on the way there, by jump host or proxy)"
    for rule in _RULES:
        error = rule(text, log, host)
        if error is not None:
            if isinstance(error, CipherRefused):
                error.details["asked"] = ", ".join(asked_ciphers)
            return error
    last = printable(said[-1]) if said else f"ssh ended with status {exit_status}"
    return ConnectError(last, host=host)


def usage_error(complaint: str) -> UsageError | None:
    """Turn what ssh says of its command line or ssh_config into an error; None when it complains of neither."""
    complaint = "\n".join(complaint.splitlines())  # ssh ends its lines with CR LF
    for pattern, option in _USAGE:
        found = re.search(pattern, complaint, re.MULTILINE)
        if found is not None:
            return InvalidValue(printable(found[0]), option=option)
    return None


#: What ssh says, and the option of ours it comes from. Source: ssh.c and readconf.c.
_USAGE = (
    (r"^Can't open user config file .*$", "--ssh-config"),
    (r"^command-line:? line \d+: .*$", "-o"),
    (r"^command-line: .*$", "-o"),
    (r"^(?:Unknown cipher type|.*Bad SSH2 cipher spec).*$", "--cipher"),
    (r"^Bad port .*$", "--port"),
    (r"^Invalid -J argument.*$", "--jump"),
    (r"^hostname contains invalid characters$", "host"),
    (r"^remote username contains invalid characters$", "user"),
    (r"^\S+: (?:line \d+: .*|terminating, \d+ bad configuration options)$", "ssh_config"),
    (r"^\S+ line \d+: .*$", "ssh_config"),
    (r"^Bad owner or permissions on .*$", "ssh_config"),
)


# --- the rules of a login, tried in this order ------------------------------------------------------------------
# Each takes what ssh said, its whole log, and the host; it returns None when the failure is not its own.


def _host_key(text: str, log: str, host: str) -> FastcopyError | None:
    shown = _FINGERPRINT.search(log)
    fingerprint = printable(shown[1]) if shown else "its fingerprint is not known"
    if "REVOKED HOST KEY DETECTED" in text:
        return UnsafePeer(f"its host key is marked as revoked here ({fingerprint}). Nothing was sent.", host=host)
    if "HAS CHANGED" in text:
        entry = re.search(r"^Host key for (\S+) has changed|^\S+ host key for (\S+) has changed", text, re.MULTILINE)
        known_as = entry and (entry[1] or entry[2])
        offending = re.search(r"^Offending .*?key in (.+)$", text, re.MULTILINE)
        was = f", {printable(offending[1])} has another" if offending else ""
        return HostKeyChanged(f"it is now {fingerprint}{was}", host=known_as or host)
    if "Host key verification failed" in text:
        return HostKeyUnknown(fingerprint, host=host)
    return None


def _address(text: str, log: str, host: str) -> FastcopyError | None:
    unresolved = re.search(r"Could not resolve hostname (\S+?): (.+)$", text, re.MULTILINE)
    if unresolved:
        return HostUnknown(f"{printable(unresolved[1])}: {printable(unresolved[2])}", host=host)
    tried = re.search(r"connect to (?:host|address) (\S+) port (\d+): (.+)$", text, re.MULTILINE)
    if not tried:
        return None
    message = f"{printable(tried[1])} port {tried[2]}: {printable(tried[3])}"
    if "refused" in tried[3]:
        return ConnectionRefused(message, host=host)
    if re.search(r"timed out|No route|unreachable|is down", tried[3]):
        return ConnectTimeout(message, host=host)
    return ConnectError(message, host=host)


def _before_ssh_began(text: str, log: str, host: str) -> FastcopyError | None:
    if "Exceeded MaxStartups" in log:
        return TooManyLogins("too many logins are under way there", host=host)
    if "Not allowed at this time" in log:
        return LoginRefused(
            "it takes no login from this address for now, after failed ones (PerSourcePenalties in its sshd_config);"
            " wait some minutes",
            host=host,
        )
    if re.search(r"banner exchange: .*invalid format|Bad remote protocol version|Protocol major versions differ", text):
        return ConnectionRefused("what answers there does not speak SSH", host=host)
    if "stdio forwarding failed" in text:
        failed = re.search(r"open failed: (.+)$", text, re.MULTILINE)
        return ConnectionRefused(f"from the jump host: {printable(failed[1]) if failed else 'no way'}", host=host)
    greeting = re.search(r"^debug1: kex_exchange_identification: banner line \d+: (.*)$", log, re.MULTILINE)
    if greeting and "remote software version" not in log:
        return ConnectionRefused(f"what answers there does not speak SSH but says {quoted(greeting[1])!r}", host=host)
    if re.search(r"kex_exchange_identification: .*(?:Connection closed|Connection reset|Broken pipe)", text):
        return TooManyLogins("it closed the connection before SSH began: too many logins at once", host=host)
    return None


def _algorithms(text: str, log: str, host: str) -> FastcopyError | None:
    unmet = re.search(r"no matching (.+?) found\. Their offer: ?(.*)$", text, re.MULTILINE)
    if not unmet:
        return None
    offer = printable(unmet[2].strip().replace(",", ", "))
    if unmet[1] == "cipher":
        return CipherRefused(host=host, offered=offer)
    option = _ALGORITHM_OPTIONS.get(unmet[1])
    advice = f"; if you trust one of those, add it with -o {option}=+NAME" if option else ""
    return ConnectError(f"no {unmet[1]} is common to both sides; it offers: {offer}{advice}", host=host)


_ALGORITHM_OPTIONS = {
    "host key type": "HostKeyAlgorithms",
    "key exchange method": "KexAlgorithms",
    "MAC": "MACs",
}


def _login(text: str, log: str, host: str) -> FastcopyError | None:
    if "Too many authentication failures" in text:
        offered = len(re.findall(r"^debug1: Offering public key", log, re.MULTILINE))
        return LoginRefused(
            f"it gave up after {offered} keys were offered; name the right one with -i and add -o IdentitiesOnly=yes",
            host=host,
        )
    denied = re.search(r"(?:^(\S+)@\S+: )?Permission denied \((.*)\)", text, re.MULTILINE)
    if not denied:
        return None
    user = f"user {printable(denied[1])}, " if denied[1] else ""
    reasons = [f"{user}it accepts {printable(denied[2].replace(',', ', '))}", *_key_troubles(text, log)]
    return LoginRefused("; ".join(reasons), host=host)


def _key_troubles(text: str, log: str) -> Iterator[str]:
    """Say what ails the user's own keys."""
    unprotected = re.findall(r"^Permissions \d+ for '(.+)' are too open", text, re.MULTILINE)
    for path in unprotected:
        yield f"others can read the key {printable(path)}, so ssh ignored it: chmod 600 it"
    if unprotected:
        return
    accepted = re.search(r"^debug1: Server accepts key: (?:pkalg \S+ blen \d+|(\S+) .*)$", log, re.MULTILINE)
    if accepted:
        key = printable(accepted[1] or "that ssh offered")
        yield f"the server knows the key {key} but ssh could not use it: if a passphrase locks it, ssh-add it first"
    elif not re.search(r"^debug1: Offering public key", log, re.MULTILINE):
        yield "ssh had no key to offer"


def _silence(text: str, log: str, host: str) -> FastcopyError | None:
    silent = re.search(r"^.*(?:[Tt]imed out|Timeout, server .* not responding).*$", text, re.MULTILINE)
    return ConnectTimeout(printable(silent[0].strip()), host=host) if silent else None


def _ended_by_server(text: str, log: str, host: str) -> FastcopyError | None:
    ended = re.search(
        r"^(?:Received disconnect from|Connection closed by|Connection reset by|Disconnected from).*$",
        text,
        re.MULTILINE,
    )
    if not ended:
        return None
    message = f"it ended the connection during the login ({printable(ended[0])})"
    if re.search(r"^debug1: SSH2_MSG_SERVICE_ACCEPT", log, re.MULTILINE):
        return LoginRefused(message, host=host)
    return ConnectError(message, host=host)


_RULES: tuple[Callable[[str, str, str], FastcopyError | None], ...] = (
    _host_key,
    _address,
    _before_ssh_began,
    _algorithms,
    _login,
    _silence,
    _ended_by_server,
)


# --- a channel of a login that stands ---------------------------------------------------------------------------


def diagnose_channel(log: str, exit_status: int | None, *, host: str) -> FastcopyError:
    """Say why a mux client got no session.

    Args:
        log: what the mux client wrote to `-E FILE`.
        exit_status: how the mux client ended.
    """
    if "Session open refused by peer" in log:
        return TooManySessions("it refused to open one more", host=host)
    refused = re.search(r"Master refused session request: (.+)$", log, re.MULTILINE)
    if refused:
        return ConnectError(f"the shared connection's owner refused: {printable(refused[1])}", host=host)
    return ChannelLost(f"the ssh that holds the login does not answer (status {exit_status})", host=host)


def explain_end(
    received: bytes, exit_status: int | None, stderr: str, *, host: str, master_log: str | None
) -> FastcopyError:
    """Say why an SFTP channel ended, or did not speak SFTP, before its first packet.

    Args:
        received: what came instead of SFTP; b"" when the channel just ended.
        exit_status: how the mux client ended by itself: the remote program's status, 255 when there is none.
        stderr: what the far side printed there.
        master_log: the login's log, when the login itself is over; else None.
    """
    if master_log is not None:
        return ChannelLost(last_words(master_log) or "the login ended", host=host)
    printed = quoted(stderr) or quoted(received.decode("utf-8", "replace"))
    if exit_status in (126, 127):
        return NoSftp(f"its SFTP program cannot be run ({printed or f'exit status {exit_status}'})", host=host)
    if received:
        if exit_status is not None:
            return NoSftp(f"it printed {printed!r} and ended the session", host=host)
        return ServerPrintsText(repr(printed), host=host)
    if exit_status == 255:
        # A refused subsystem leaves no other trace: the master throws the words away with the channel (9.2).
        return NoSftp(printed or "it refused the sftp subsystem", host=host)
    if exit_status is not None:
        ended = f"its SFTP program ended at once with status {exit_status}"
        return NoSftp(f"{ended} ({printed})" if printed else ended, host=host)
    return ChannelLost("the channel ended", host=host)


def last_words(log: str) -> str:
    """Return the last thing that ssh's log says of a failure; "" when it says nothing."""
    said = [line.strip() for line in log.splitlines() if not _NOISE.match(line.strip())]
    return printable(said[-1]) if said else ""


def quoted(text: str) -> str:
    """Return the beginning of a peer's text on one line, safe for a terminal."""
    line = " ".join(text.split())
    return printable(line if len(line) <= _QUOTED_CHARS else line[:_QUOTED_CHARS] + "...")
