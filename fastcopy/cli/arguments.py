"""What was typed, as text, turned into the values every other layer takes. Pure: no file system, no terminal.

Imports the values and plan/. Every number and name is checked here or in config.py, so that a wrong one is one
sentence naming its option (exit 2) before anything is connected or opened.
"""

from __future__ import annotations

import enum
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from fastcopy.config import (
    DEFAULT_QUEUE_DEPTH,
    DEFAULT_TIMEOUT_S,
    AddressFamily,
    CopyOptions,
    SshOptions,
    SshWay,
    SymlinkPolicy,
    TransferOptions,
)
from fastcopy.errors import InvalidValue, UsageError, printable
from fastcopy.plan.locations import Location, parse_location
from fastcopy.plan.sizes import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The words that are commands. A file of such a name is written ./copy.
COMMANDS = ("copy", "demo")
MAX_DEMO_FILES = 10_000
_ABOUT_THE_PROGRAM = ("--help", "-h", "--version")

Choice = TypeVar("Choice", bound=enum.Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """One `fastcopy copy`, understood. `json_to` is a file, "-" for stdout, None for no JSON."""

    sources: tuple[Location, ...]
    destination: Location
    options: CopyOptions
    typed: tuple[bytes, ...] = ()
    json_to: str | None = None
    quiet: bool = False
    verbose: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRequest:
    """One `fastcopy demo`, understood."""

    files: int
    file_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.files * self.file_bytes


def with_command(words: Sequence[str]) -> list[str]:
    """Return `words` with their command in front: `fastcopy SRC... DST` is `fastcopy copy SRC... DST`."""
    if not words or words[0] in COMMANDS or words[0] in _ABOUT_THE_PROGRAM:
        return list(words)
    return ["copy", *words]


def copy_request(
    paths: Sequence[str],
    options: CopyOptions,
    *,
    json_to: str | None = None,
    quiet: bool = False,
    verbose: bool = False,
) -> CopyRequest:
    """Return what `SRC... DST` ask for.

    Raises: UsageError for fewer than two of them, for a name that is neither path nor host:path, or -q with -v.
    """
    if len(paths) < 2:
        missing = "no source and no destination were" if not paths else "the source or the destination was not"
        raise UsageError(f"{missing} given; write: fastcopy copy SRC... DST")
    if quiet and verbose:
        raise UsageError("-q and -v contradict each other; leave one out")
    typed = tuple(os.fsencode(path) for path in paths)
    *sources, destination = (parse_location(path) for path in typed)
    return CopyRequest(
        sources=tuple(sources),
        destination=destination,
        options=options,
        typed=typed,
        json_to=json_to,
        quiet=quiet,
        verbose=verbose,
    )


def copy_options(
    *,
    parallel: str | None = None,
    connections: str | None = None,
    reuse_master: bool = False,
    request_size: str | None = None,
    queue_depth: str | None = None,
    cipher: str | None = None,
    compress: bool = False,
    ssh: str = "auto",
    port: str | None = None,
    identity: Sequence[str] = (),
    ssh_config: str | None = None,
    jump: str | None = None,
    ssh_option: Sequence[str] = (),
    ipv4: bool = False,
    ipv6: bool = False,
    preserve: bool = False,
    force: bool = False,
    symlinks: str = "copy",
    timeout: str | None = None,
) -> CopyOptions:
    """Return the options as values; each argument is one option's text, None where it was not given.

    --timeout bounds a login as well as a silent channel.
    Raises: UsageError naming the option that is wrong.
    """
    if ipv4 and ipv6:
        raise UsageError("-4 and -6 contradict each other; leave one out")
    timeout_s = _seconds("--timeout", timeout) if timeout is not None else None
    ways = SshOptions(
        way=_choice("--ssh", ssh, SshWay),
        port=_number("--port", port),
        identities=tuple(identity),
        config_file=ssh_config,
        jump=jump,
        options=tuple(ssh_option),
        ciphers=_ciphers(cipher),
        compress=compress,
        family=AddressFamily.IPV4 if ipv4 else AddressFamily.IPV6 if ipv6 else AddressFamily.ANY,
        reuse_master=reuse_master,
        **({} if timeout_s is None else {"connect_timeout_s": timeout_s}),
    )
    depth = _number("--queue-depth", queue_depth)
    transfer = TransferOptions(
        parallel=_number_or_auto("--parallel", parallel),
        connections=_number_or_auto("--connections", connections),
        request_bytes=None if request_size is None else parse_size(request_size, "--request-size"),
        queue_depth=DEFAULT_QUEUE_DEPTH if depth is None else depth,
        preserve=preserve,
        force=force,
        symlinks=_choice("--symlinks", symlinks, SymlinkPolicy),
        timeout_s=DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s,
    )
    return CopyOptions(ssh=ways, transfer=transfer)


def demo_request(size: str, files: str) -> DemoRequest:
    """Return what `demo --size SIZE --files N` ask for. Raises: InvalidValue."""
    count = _number("--files", files) or 0
    if not 1 <= count <= MAX_DEMO_FILES:
        raise InvalidValue(f"{count} is outside 1 to {MAX_DEMO_FILES}", option="--files")
    return DemoRequest(files=count, file_bytes=parse_size(size, "--size"))


def _number(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise InvalidValue(f"'{printable(text)}' is not a whole number", option=option)
    return int(digits)


def _number_or_auto(option: str, text: str | None) -> int | None:
    if text is None or text.strip().lower() == "auto":
        return None
    try:
        return _number(option, text)
    except InvalidValue as exc:
        raise InvalidValue(f"'{printable(text)}' is neither a whole number nor auto", option=option) from exc


def _seconds(option: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise InvalidValue(f"'{printable(text)}' is not a number of seconds", option=option)
    return seconds


def _choice(option: str, text: str, kind: type[Choice]) -> Choice:
    try:
        return kind(text.strip().lower())
    except ValueError as exc:
        allowed = ", ".join(str(member.value) for member in kind)
        raise InvalidValue(f"'{printable(text)}' is none of {allowed}", option=option) from exc


def _ciphers(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InvalidValue("an empty name; write NAME or NAME,NAME", option="--cipher")
    return names
