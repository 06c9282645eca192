"""The ground all contestants run on: a directory in memory, one data set at a time, an empty destination, an sshd.

Owns everything the benchmark leaves on disk and every server it starts; `close` removes all of it. Imports nothing of
fastcopy. Invariant: memory that a measured run writes to was touched before. The first touch of a page is several
times dearer than the next, so the destination is removed before every run, whoever runs: all take pages from the same
pool of used and freed ones, nobody overwrites in place.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.perf.trip import Server, Trip
from tests.support.delay_proxy import DelayProxy
from tests.support.sshd import Keys, Sshd

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.perf.dataset import DataSet

_PIECE_BYTES = 4 << 20
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ")


class Ground:
    """A context manager: server up, directory made; on the way out both are gone."""

    def __init__(self, parent: Path) -> None:
        """Make a directory below `parent`, which should be in memory, and start the server."""
        self.directory = Path(tempfile.mkdtemp(prefix="fastcopy-bench-", dir=parent))
        self._close: list[Callable[[], None]] = [lambda: shutil.rmtree(self.directory, ignore_errors=True)]
        self._standing: DataSet | None = None
        self._sources: tuple[Path, ...] = ()
        self._roads: dict[float, Path] = {}
        self._into = self.directory / "into"
        home = self.directory / "home"
        try:
            for path in (home, self.directory / "keys"):
                path.mkdir()
            self._sshd = Sshd(self.directory / "sshd", Keys.generate(self.directory / "keys"))
            self._close.append(self._sshd.close)
        except BaseException:
            self.close()
            raise
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        #: What every contestant sees: an empty home, no agent.
        self.environment = {**kept, "HOME": str(home)}

    def touch_memory(self, wanted_bytes: int) -> None:
        """Write to as much memory as a run may need, and free it again."""
        path = self.directory / "touched"
        with path.open("wb", buffering=0) as file:
            for _ in range(wanted_bytes // _PIECE_BYTES):
                file.write(bytes(_PIECE_BYTES))
        path.unlink()

    def trip(self, direction: str, data: DataSet | None, rtt_s: float = 0.0) -> Trip:
        """Return a trip of `data` to a destination that is now empty. Other data is removed, sessions have ended."""
        self._sshd.wait_idle()
        self._remove(self._into)
        if data != self._standing:
            self._stand(data)
        self._into.mkdir()
        return Trip(direction=direction, sources=self._sources, into=self._into, server=self._server(rtt_s))

    def _stand(self, data: DataSet | None) -> None:
        root = self.directory / "data"
        self._remove(root)
        root.mkdir()
        self._standing = None
        self._sources = data.make(root) if data else ()
        self._standing = data

    @staticmethod
    def _remove(root: Path) -> None:
        if root.exists():
            shutil.rmtree(root)

    def _server(self, rtt_s: float) -> Server:
        return Server(
            config=self._road(rtt_s) if rtt_s else self._sshd.client_config,
            host=self._sshd.host,
            port=self._sshd.port,
            user=pwd.getpwuid(os.geteuid()).pw_name,
            identity=self._sshd.keys.client,
            known_hosts=self._sshd.known_hosts,
        )

    def _road(self, rtt_s: float) -> Path:
        """Return the ssh_config that reaches the server over a long road, built when first asked for."""
        if rtt_s not in self._roads:
            proxy = DelayProxy(self._sshd.host, self._sshd.port, delay_s=rtt_s / 2)
            self._close.append(proxy.close)
            self._roads[rtt_s] = self._sshd.config_through(proxy.port)
        return self._roads[rtt_s]

    def close(self) -> None:
        """End the servers and remove the directory. Idempotent."""
        try:
            while len(self._close) > 1:
                self._close.pop()()
        finally:
            while self._close:
                self._close.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def difference(trip: Trip) -> str:
    """Compare what arrived with what was sent, byte for byte; return what differs, "" when nothing does."""
    for source in trip.sources:
        compared = subprocess.run(
            ["diff", "--recursive", "--brief", "--no-dereference", source, trip.into / source.name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if compared.returncode != 0:
            return (compared.stdout + compared.stderr).strip().partition("\n")[0]
    return ""


def shortfall(trip: Trip) -> str:
    """Compare names and sizes alone; return what differs, "" when nothing does."""
    for source in trip.sources:
        sent, arrived = _sizes(source), _sizes(trip.into / source.name)
        if sent != arrived:
            return f"{source.name}: {sum(arrived.values())} of {sum(sent.values())} bytes arrived"
    return ""


def _sizes(root: Path) -> dict[str, int]:
    if root.is_file():
        return {"": root.stat().st_size}
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.stat().st_size for path in files}
