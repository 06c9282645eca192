"""What the system's ssh would do for a host (`ssh -G`), and which cipher to ask it for.

`ssh -G` reads the whole ssh_config as a login would and reaches nobody; it costs about 10 ms and is run once a job.
The parser and the cipher rules are pure. Must not log in. Invariant: a cipher list is only put in another order,
never widened beyond what the site's configuration allows; a cipher the user named is taken as named.
"""

from __future__ import annotations

import asyncio
import functools
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fastcopy.connection.pipes import Collector, PipeEnds
from fastcopy.connection.process import ChildProcess
from fastcopy.connection.ssh_diagnosis import usage_error
from fastcopy.errors import ConnectTimeout, InvalidValue, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Best first where the processor has AES: one pass encrypts and authenticates. Source: our measurement, issue 2.
AES_GCM = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
#: Gone from OpenSSH, still in old scripts. Source: release notes of OpenSSH 7.6 (arcfour, blowfish, CAST).
GONE_CIPHERS = frozenset({"arcfour", "arcfour128", "arcfour256", "blowfish", "blowfish-cbc", "cast128-cbc"})
#: Bytes. `ssh -G` prints about 4 KiB.
_OUTPUT_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """The part of `ssh -G` that matters here; `all` has every keyword in small letters with its last value."""

    hostname: str
    port: int
    user: str
    ciphers: tuple[str, ...] = ()
    identity_files: tuple[str, ...] = ()
    control_path: str | None = None
    server_alive_s: int = 0
    connect_timeout_s: int | None = None
    all: Mapping[str, str] = field(default_factory=dict)


def parse_settings(text: str) -> SshSettings:
    """Read what `ssh -G` printed; keywords that it does not have (another version's) count as not set."""
    pairs = [line.split(" ", 1) for line in text.splitlines() if " " in line]
    words = {keyword.lower(): value.strip() for keyword, value in pairs}

    def number(keyword: str) -> int | None:
        value = words.get(keyword, "")
        return int(value) if value.isdecimal() else None

    control_path = words.get("controlpath")
    return SshSettings(
        hostname=words.get("hostname", ""),
        port=number("port") or 22,
        user=words.get("user", ""),
        ciphers=tuple(name for name in words.get("ciphers", "").split(",") if name),
        identity_files=tuple(value.strip() for keyword, value in pairs if keyword.lower() == "identityfile"),
        control_path=None if control_path in (None, "none") else control_path,
        server_alive_s=number("serveraliveinterval") or 0,
        connect_timeout_s=number("connecttimeout"),
        all=words,
    )


async def read_settings(ssh: str, arguments: Sequence[str], *, timeout_s: float) -> SshSettings:
    """Run `ssh -G` with the login's own `arguments` (flags, `--`, host).

    Raises: UsageError when ssh does not understand its arguments or the configuration; ConnectTimeout when it takes
        longer than `timeout_s` (a name that is looked up, a `Match exec` that hangs).
    """
    status, output, complaint = await _ask([ssh, "-G", "-T", *arguments], timeout_s=timeout_s)
    if status != 0:
        raise usage_error(complaint) or UsageError(complaint.strip() or f"ssh -G ended with status {status}")
    return parse_settings(output)


async def known_ciphers(ssh: str) -> tuple[str, ...]:
    """Return the names `ssh -Q cipher` prints; () where this ssh cannot tell."""
    status, output, _ = await _ask([ssh, "-Q", "cipher"], timeout_s=10.0)
    return tuple(output.split()) if status == 0 else ()


async def _ask(argv: Sequence[str], *, timeout_s: float) -> tuple[int, str, str]:
    with PipeEnds() as out, PipeEnds() as err:
        child = ChildProcess(argv, stdout=out.write_fd, stderr=err.write_fd)
        output = Collector(out.take_read(), limit_bytes=_OUTPUT_BYTES)
        complaint = Collector(err.take_read(), limit_bytes=_OUTPUT_BYTES)
    try:
        status = await _within(child, timeout_s)
        return status, output.drain().decode("utf-8", "replace"), complaint.drain().decode("utf-8", "replace")
    finally:
        output.close()
        complaint.close()
        await child.end()


async def _within(child: ChildProcess, timeout_s: float) -> int:
    try:
        async with asyncio.timeout(timeout_s):
            return await child.wait()
    except TimeoutError:
        raise ConnectTimeout(f"reading the ssh configuration took more than {timeout_s:g} s", host="ssh") from None


def preferred_ciphers(listed: Sequence[str], aes_in_hardware: bool) -> tuple[str, ...]:
    """Put AES-GCM first where the processor has AES; the order of the others stays.

    Args:
        listed: the ciphers `ssh -G` would offer, best first.
    Returns: the same names; unchanged where AES is not in hardware or GCM is not among them.
    """
    if not aes_in_hardware:
        return tuple(listed)
    first = [name for name in AES_GCM if name in listed]
    return (*first, *(name for name in listed if name not in first))


def asked_ciphers(asked: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Check and complete the names the user gave with `--cipher`.

    Args:
        asked: as typed; `aes128-gcm` stands for `aes128-gcm@openssh.com`.
        known: what this ssh knows; () when it cannot tell, then names are taken as they are.
    Raises: InvalidValue for a name that no longer exists, naming its replacement, or that this ssh never knew.
    """
    return tuple(_complete(name, known) for name in asked)


def _complete(name: str, known: Sequence[str]) -> str:
    if name in known:
        return name
    if name.lower() in GONE_CIPHERS:
        raise InvalidValue(
            f"{name} is gone from every supported OpenSSH; use {AES_GCM[0]} instead, which is faster and safe",
            option="--cipher",
        )
    full = f"{name}@openssh.com"
    if full in known:
        return full
    if not known and re.fullmatch(r"[A-Za-z0-9@.-]+", name):
        return name
    raise InvalidValue(f"this ssh knows no cipher {name!r}; it knows: {', '.join(known)}", option="--cipher")


@functools.cache
def aes_in_hardware() -> bool:
    """Tell whether this machine's processor has AES instructions."""
    try:
        return cpuinfo_has_aes(Path("/proc/cpuinfo").read_text(errors="replace"), platform.machine())
    except OSError:
        return platform.machine() in {"arm64", "aarch64", "x86_64"}  # macOS: every such Mac has them


def cpuinfo_has_aes(cpuinfo: str, machine: str) -> bool:
    """Read Linux's /proc/cpuinfo: `flags` (x86) or `Features` (Arm); ppc64le and s390x have AES without saying so."""
    if machine in {"ppc64le", "s390x"}:
        return True
    return re.search(r"^(?:flags|Features)\s*:.*\baes\b", cpuinfo, re.MULTILINE) is not None
