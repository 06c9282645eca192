"""The command lines given to the system's ssh. PURE: options in, argv out.

A login's flags come in this order, since ssh keeps the first value it meets: what must hold, what the user asked for,
and last what only stands in for values nobody set. Must not run anything.
Invariant: no forwarding, no terminal, no local command, and never the user's own ControlMaster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastcopy.config import AddressFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastcopy.config import SshOptions
    from fastcopy.connection.ssh_config import SshSettings

#: Seconds. A dead peer is noticed after three times this; ssh's own default is never. Source: law 9.
SERVER_ALIVE_S = 15

#: LogLevel and not -v: with -v, ssh starts the ssh of a jump host with -v as well.
_MUST_HOLD = (
    "LogLevel=DEBUG1",
    "ControlPersist=no",
    "ClearAllForwardings=yes",
    "ExitOnForwardFailure=no",
    "Tunnel=no",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "EscapeChar=none",
)
#: Keywords of newer versions: given only where `ssh -G` lists them, since an unknown one ends ssh.
_MUST_HOLD_WHERE_KNOWN = {
    "remotecommand": "RemoteCommand=none",
    "forkafterauthentication": "ForkAfterAuthentication=no",
}


def login_flags(options: SshOptions, user: str | None) -> list[str]:
    """Return what the user asked for, as ssh's own flags; the same for `ssh -G` and for a login."""
    flags: list[str] = []
    if options.config_file is not None:
        flags += ["-F", options.config_file]
    if options.family is not AddressFamily.ANY:
        flags.append("-4" if options.family is AddressFamily.IPV4 else "-6")
    if options.port is not None:
        flags += ["-p", str(options.port)]
    if user is not None:
        flags += ["-l", user]
    for identity in options.identities:
        flags += ["-i", identity]
    if options.jump is not None:
        flags += ["-J", options.jump]
    for option in options.options:
        flags += ["-o", option]
    return flags


def master_command(
    ssh: str,
    host: str,
    *,
    options: SshOptions,
    user: str | None,
    settings: SshSettings,
    ciphers: Sequence[str],
    socket: str,
    log: str,
    batch: bool,
) -> list[str]:
    """Return the command of a master: it logs in, opens `socket`, and waits for mux clients."""
    asked = {option.replace("=", " ", 1).split()[0].lower() for option in options.options}
    must_hold = [*_MUST_HOLD, *(line for word, line in _MUST_HOLD_WHERE_KNOWN.items() if word in settings.all)]
    if batch:
        must_hold.append("BatchMode=yes")
    stand_in = []
    if options.compress:
        must_hold.append("Compression=yes")
    elif "compression" not in asked:
        must_hold.append("Compression=no")
    if not settings.server_alive_s:
        stand_in.append(f"ServerAliveInterval={SERVER_ALIVE_S}")
    if settings.connect_timeout_s is None:
        stand_in.append(f"ConnectTimeout={max(1, round(options.connect_timeout_s))}")
    command = [ssh, "-M", "-S", socket, "-N", "-T", "-x", "-a", "-E", log]
    command += _as_flags(must_hold) + login_flags(options, user)
    if ciphers and "ciphers" not in asked:
        command += ["-c", ",".join(ciphers)]
    return [*command, *_as_flags(stand_in), "--", host]


def mux_command(ssh: str, host: str, *, socket: str, log: str, is_subsystem: bool, command: str) -> list[str]:
    """Return the command of a mux client: one session over the master behind `socket`, for `command`.

    ProxyCommand=false: a client that gets no session would otherwise log in anew, in silence.
    """
    flags = ["-F", "/dev/null", "-S", socket, "-T", "-x", "-a", "-E", log]
    flags += _as_flags(["LogLevel=DEBUG2", "ControlMaster=no", "ProxyCommand=false", "EscapeChar=none"])
    return [ssh, *flags, *(["-s"] if is_subsystem else []), "--", host, command]


def check_command(ssh: str, host: str, socket: str) -> list[str]:
    """Return the command that tells, by its exit status, whether a master lives behind `socket`."""
    return [ssh, "-F", "/dev/null", "-S", socket, "-O", "check", "--", host]


def _as_flags(lines: Sequence[str]) -> list[str]:
    return [word for line in lines for word in ("-o", line)]
