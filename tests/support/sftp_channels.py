"""SFTP channels without ssh: the real sftp-server behind two pipes, and servers of Python behind a pair in memory.

Both give the transport an SftpClient is opened over, and leave no process, thread or descriptor behind.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from fastcopy.errors import ChannelLost
from fastcopy.transport.memory import memory_pair
from fastcopy.transport.pipe import PipeTransport
from tests.support.sftp_server import Server, string

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastcopy.transport.memory import MemoryTransport

#: Where Debian, Fedora and macOS keep it.
_SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/libexec/sftp-server")
_WAIT_S = 30.0


def sftp_server_path() -> str | None:
    """Return the real sftp-server of this machine; None where OpenSSH's server is not installed."""
    return next((path for path in _SFTP_SERVERS if Path(path).exists()), None)


class RealServer:
    """One `sftp-server` process; `transport` is our end of its pipes."""

    def __init__(self, *, cwd: Path, splice: bool = True) -> None:
        path = sftp_server_path()
        assert path is not None
        self.process = subprocess.Popen(
            [path, "-e"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=cwd
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        read_fd, write_fd = os.dup(self.process.stdout.fileno()), os.dup(self.process.stdin.fileno())
        self.process.stdin.close()
        self.process.stdout.close()
        self.transport = PipeTransport(read_fd, write_fd, peer="srv002", splice=splice)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def real_server(cwd: Path, *, splice: bool = True) -> Iterator[RealServer]:
    server = RealServer(cwd=cwd, splice=splice)
    try:
        yield server
    finally:
        server.transport.close()
        server.process.wait(_WAIT_S)  # it ends by itself when its input does


class InMemory(threading.Thread):
    """Serves one channel with a Server of tests/support in a thread, until either side closes."""

    def __init__(self, server: Server, *, capacity_bytes: int = 64 << 10) -> None:
        super().__init__(daemon=True, name="server in memory")
        self.server = server
        self.transport, self.far_end = memory_pair(capacity_bytes)

    def run(self) -> None:
        with contextlib.suppress(ChannelLost):
            while head := self._exactly(4):
                replies = self.server.replies_to(self._exactly(int.from_bytes(head)))
                send_all(self.far_end, b"".join(map(string, replies)))
        self.far_end.close()
        for fd in self.server.files.values():
            os.close(fd)
        self.server.files.clear()

    def _exactly(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            piece = self.far_end.read(count - len(got))
            if piece is None:
                self.far_end.wait(readable=True, writable=False, timeout_s=_WAIT_S)
            elif piece:
                got += piece
            else:
                return b""
        return bytes(got)


def send_all(transport: MemoryTransport, data: bytes) -> None:
    """Send from a thread that may wait."""
    rest = memoryview(data)
    while rest:
        rest = rest[transport.write(rest) :]
        if rest:
            transport.wait(readable=False, writable=True, timeout_s=_WAIT_S)


@contextlib.contextmanager
def in_memory(server: Server, *, capacity_bytes: int = 64 << 10) -> Iterator[InMemory]:
    serving = InMemory(server, capacity_bytes=capacity_bytes)
    serving.start()
    try:
        yield serving
    finally:
        serving.transport.close()
        serving.far_end.close()
        serving.join(_WAIT_S)
        assert not serving.is_alive()
