"""Sizes, rates and times as people type and read them.

Pure text. Multiples are binary always: K is 1024, whether written K, KB or KiB. Bytes and seconds inside.
"""

from __future__ import annotations

import re
from fractions import Fraction

from fastcopy.errors import InvalidValue, printable

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PREFIXES = "kmgtpe"
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?(?:([kmgtpe])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)


def parse_size(text: str, option: str = "size") -> int:
    """Return the bytes that `text` means: "261120", "255K", "1.5M", "2GiB"; a fraction of a byte is dropped.

    Raises: InvalidValue, naming `option`, when it is no such number, or a fraction without a unit.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[2] is None and "." in match[1]):
        message = f"'{printable(text)}' is not a size; write it like 261120, 255K, 1.5M or 2GiB"
        raise InvalidValue(message, option=option)
    power = _PREFIXES.index(match[2].lower()) + 1 if match[2] else 0
    return int(Fraction(match[1]) * 1024**power)


def parse_rate(text: str, option: str = "rate") -> int:
    """Return the bytes per second that `text` means: "50M", "50M/s", "1.5GiB/s".

    Raises: InvalidValue, naming `option`, when it is no such number, or under one byte per second.
    """
    try:
        rate = parse_size(text.strip().removesuffix("/s"), option)
    except InvalidValue as exc:
        message = f"'{printable(text)}' is not a rate in bytes per second; write it like 500K, 50M or 1.5G"
        raise InvalidValue(message, option=option) from exc
    if rate < 1:
        raise InvalidValue("a rate must be at least one byte per second", option=option)
    return rate


def format_bytes(count: float) -> str:
    """Return `count` bytes as people read them: "512 B", "12.3 MiB", "512 MiB"; three or four digits."""
    sign, value, power = ("-" if count < 0 else ""), float(abs(count)), 0
    while round(value) >= 1024 and power < len(_UNITS) - 1:
        value /= 1024
        power += 1
    decimals = 1 if power and value < 99.95 else 0
    return f"{sign}{value:.{decimals}f} {_UNITS[power]}"


def format_rate(bytes_per_s: float) -> str:
    """Return a rate as people read it: "512 MiB/s"."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_seconds(seconds: float) -> str:
    """Return a time span as people read it: "0.42 s", "12.3 s", "3 min 07 s", "2 h 03 min"."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"
