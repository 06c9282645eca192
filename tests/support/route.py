"""One direction over one way to speak SSH: a test written once runs as put and get, over openssh and asyncssh.

Imports nothing of fastcopy. Paths are this machine's on both sides; which of them is called remote is the route's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.command import Outcome, Running, copy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sshd import Sshd

DIRECTIONS = ("put", "get")
WAYS = ("openssh", "asyncssh")


def remote(path: str | bytes | Path) -> bytes:
    """Return how `path` on the test server is written on the command line."""
    return b"t:" + os.fsencode(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Copies through `sshd`: up to it for "put", down from it for "get"."""

    direction: str
    way: str
    sshd: Sshd
    #: Another ssh_config than the server's own, as one through a proxy.
    config: Path | None = None

    def arguments(
        self, sources: tuple[str | bytes | Path, ...], to: str | bytes | Path, options: tuple[object, ...] = ()
    ) -> list[str | bytes | Path]:
        """Return the words behind `fastcopy copy --json -`."""
        source, target = (os.fsencode, remote) if self.direction == "put" else (remote, os.fsencode)
        words = ["--ssh", self.way, "-F", str(self.config or self.sshd.client_config), *map(str, options), "--"]
        return [*words, *(source(path) for path in sources), target(to)]

    def copy(
        self,
        *sources: str | bytes | Path,
        to: str | bytes | Path,
        options: tuple[object, ...] = (),
        **how: Any,
    ) -> Outcome:
        """Run `fastcopy copy` with a JSON report over this route; `how` goes to `tests.support.command.copy`."""
        return copy(*self.arguments(sources, to, options), **how)

    def start(self, *sources: str | bytes | Path, to: str | bytes | Path, options: tuple[object, ...] = ()) -> Running:
        """Start the same and return at once."""
        return Running(["copy", "--json", "-", *self.arguments(sources, to, options)])
