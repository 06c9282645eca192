"""What happens while a copy runs, told as values to one listener.

A listener is called on the event loop's thread, must not block and must not raise; the engine never asks it
anything. Imports only the other value modules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastcopy.errors import FastcopyError


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBegan:
    """The job entered `phase`: connect, scan, copy, verify, commit."""

    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The scan found `files` more files of `size_bytes` in all to be copied; `complete` once nothing more can come."""

    files: int
    size_bytes: int
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesMoved:
    """`count` further bytes have been acknowledged (sampled a few times a second; negative when work is undone)."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDone:
    """One file ended: copied, skipped because it was there already, or failed with `error`."""

    path: bytes
    size_bytes: int
    outcome: str  # "copied" | "skipped" | "failed"
    error: FastcopyError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelsChanged:
    """`channels` SFTP channels over `connections` logins are moving bytes now."""

    channels: int
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something the user should know that stops nothing."""

    message: str


Event = PhaseBegan | Found | BytesMoved | FileDone | ChannelsChanged | Warned
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""
