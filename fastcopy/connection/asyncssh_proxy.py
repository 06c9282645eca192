"""A ProxyCommand: the program whose stdin and stdout carry an asyncssh login.

Owns the process, our end of the socket to it, and what it says on stderr. asyncssh could start it by itself, but would
take its stderr for the server's bytes. Must not know what is carried.
Invariant: after `end` the process is gone.
"""

from __future__ import annotations

import os
import socket

from fastcopy.connection.pipes import Collector, PipeEnds
from fastcopy.connection.process import ChildProcess

#: Bytes kept of what it says last.
_STDERR_BYTES = 8 << 10


class ProxyProcess:
    """A running or ended ProxyCommand."""

    def __init__(self, command: str) -> None:
        """Start `command` by the user's shell, as ssh does. Raises: OSError when that cannot be started."""
        self.socket, theirs = socket.socketpair()
        try:
            with theirs, PipeEnds() as err:
                shell = os.environ.get("SHELL") or "/bin/sh"
                self._child = ChildProcess(
                    [shell, "-c", f"exec {command}"],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=err.write_fd,
                )
                self._stderr = Collector(err.take_read(), limit_bytes=_STDERR_BYTES, keep_end=True)
        except BaseException:
            self.socket.close()
            raise

    def said(self) -> bytes:
        """Return what it has said on stderr."""
        return self._stderr.drain()

    async def end(self) -> None:
        """End it and wait until it is gone. Idempotent. Cancellation: it is ended all the same."""
        try:
            self.socket.close()
            await self._child.end()
        finally:
            self._stderr.close()
