"""The demo server in a process of its own, so that client and server do not share one interpreter's lock.

Owns that process. It ends when its stdin closes: also when we are killed. Run as `python -m fastcopy.demo.process ROOT`
it is the server's side: it prints one line of JSON when it is ready.
Invariant: neither side outlives the other by more than 2 s, and the keys go with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Self

from fastcopy.config import SshOptions, SshWay
from fastcopy.demo.server import LOOPBACK, DemoServer, demo_ssh_options
from fastcopy.errors import ConnectError

#: Seconds until the server is ready; generous for a busy machine.
_START_S = 30.0
#: Seconds between asking the server to end and killing it. Source: law 12.
_GRACE_S = 1.5


class DemoProcess:
    """A running demo server process: `async with DemoProcess(root) as server: ...`."""

    def __init__(self, root: Path) -> None:
        """Prepare to serve `root` as `/`."""
        self.root = root
        self.host = LOOPBACK
        self.port = 0
        self.host_key_line = ""
        self._process: asyncio.subprocess.Process | None = None
        self._directory = Path()

    @property
    def pid(self) -> int:
        """The server's process id, for the remote side of the report."""
        if self._process is None:
            raise RuntimeError("the demo server is not running")
        return self._process.pid

    @property
    def client_key_path(self) -> Path:
        """The private key that may log in."""
        return self._directory / "client_key"

    @property
    def known_hosts_path(self) -> Path:
        """A known_hosts file with this server's key."""
        return self._directory / "known_hosts"

    def ssh_options(self, *, way: SshWay = SshWay.AUTO) -> SshOptions:
        """Return the options that reach this server, and nothing of the user's own configuration."""
        return demo_ssh_options(self.port, self.client_key_path, self.known_hosts_path, way=way)

    async def __aenter__(self) -> Self:
        """Start the server. Raises: ConnectError when it does not come up. Cancellation: leaves no process."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fastcopy.demo.process",
            str(self.root),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is ours to handle; we close its stdin
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_S):
                line = await self._process.stdout.readline()
            ready = json.loads(line or b"{}")
            self.port = int(ready["port"])
            self.host_key_line = ready["host_key_line"]
            self._directory = Path(ready["directory"])
        except (TimeoutError, ValueError, KeyError) as exc:
            await self._end()
            raise ConnectError("the demo server did not start", host=LOOPBACK) from exc
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def _serve(root: Path) -> None:
    """Serve until stdin ends."""
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end.set)
    async with DemoServer(root) as server:
        ready = {"port": server.port, "host_key_line": server.host_key_line, "directory": str(server.directory)}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        loop.add_reader(sys.stdin.fileno(), end.set)  # nothing is ever written there: readable means ended
        await end.wait()
        loop.remove_reader(sys.stdin.fileno())


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
