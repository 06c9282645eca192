"""What a contestant is asked to do: which way, from where, to where, and how the server is reached.

Values only. Both sides are this machine, so source and destination are both paths here; which of them is called
remote is the direction's. Invariant: every source lands in `into` under its own name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How to reach the sshd: by an ssh_config that knows it as `t`, or by its parts."""

    config: Path
    host: str
    port: int
    user: str
    identity: Path
    known_hosts: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """One copy of `sources` into the empty directory `into`."""

    direction: str  # "put" or "get"
    sources: tuple[Path, ...]
    into: Path
    server: Server

    @property
    def source(self) -> Path:
        """The source, where there is one."""
        (source,) = self.sources
        return source

    @property
    def target(self) -> Path:
        """What `source` becomes."""
        return self.into / self.source.name

    @property
    def is_put(self) -> bool:
        return self.direction == "put"

    def ends(self, source: Path, target: Path, prefix: str = "t:") -> tuple[str, str]:
        """Return both as words of a command line, the remote one with `prefix`."""
        return (str(source), f"{prefix}{target}") if self.is_put else (f"{prefix}{source}", str(target))
