"""The byte stream below an asyncssh login (TCP, a jump host, a program): small writes joined, large reads cut.

Owns how bytes pass between asyncssh and what carries them. Must not know about options, keys or SFTP.
asyncssh writes each SSH packet, and an IGNORE packet before it, by a call of its own, and copies all it has not parsed
yet twice per packet; both are cured from outside, through its public `tunnel=` argument.
Invariant: bytes leave in the order they were written, at the latest when the loop's running callback has ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import asyncssh

from fastcopy.connection.asyncssh_errors import quoted
from fastcopy.connection.asyncssh_proxy import ProxyProcess

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes. Written at once as soon as so many have gathered. Source: our measurement.
_GATHER_BYTES = 256 << 10
#: Bytes. What asyncssh is given at once: a full SSH packet, twice. Source: our measurement (32 to 1024 KiB).
_FEED_BYTES = 64 << 10
#: Bytes kept of what the peer says first.
_GREETING_BYTES = 512
#: Bytes. The window of the channel through a jump host: it must not be narrower than those inside it.
_JUMP_WINDOW_BYTES = 16 << 20
#: Seconds after which a further address of the host is tried beside the first. Source: RFC 8305 section 5.
_NEXT_ADDRESS_S = 0.25


class CoalescingTransport:
    """What asyncssh takes for its socket: gathers what is written during one callback of the loop."""

    def __init__(self, carrier: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Write to `carrier`: an asyncio transport, or an asyncssh channel."""
        self._carrier = carrier
        self._loop = loop
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0

    def write(self, data: bytes) -> None:
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= _GATHER_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._gathered:
            return
        joined = b"".join(self._gathered)
        self._gathered.clear()
        self._gathered_bytes = 0
        if not self._carrier.is_closing():
            self._carrier.write(joined)

    def close(self) -> None:
        self._flush()
        self._carrier.close()

    def abort(self) -> None:
        self._flush()  # a DISCONNECT is often the last that was written
        self._carrier.abort()

    def is_closing(self) -> bool:
        return bool(self._carrier.is_closing())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._carrier.get_extra_info(name, default)


class _Wire(asyncio.Protocol):
    """Between the carrier and asyncssh's connection; stands for an asyncio protocol and for an asyncssh session."""

    def __init__(self, dialler: Dialler, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._dialler = dialler
        self._connection = connection
        self._loop = loop

    def connection_made(self, transport: Any) -> None:
        self._connection.connection_made(CoalescingTransport(transport, self._loop))

    def session_started(self) -> None:
        """Nothing: an asyncssh channel says so."""

    def data_received(self, data: bytes, datatype: int | None = None) -> None:
        greeting = self._dialler.greeting
        if len(greeting) < _GREETING_BYTES:
            self._dialler.greeting = greeting + data[: _GREETING_BYTES - len(greeting)]
        if len(data) <= _FEED_BYTES:
            self._connection.data_received(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), _FEED_BYTES):
            self._connection.data_received(view[start : start + _FEED_BYTES])

    def eof_received(self) -> bool | None:
        self._connection.eof_received()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


class Dialler:
    """Reaches one host for one login: an object for asyncssh's `tunnel=` argument."""

    logger = asyncssh.logging.logger

    def __init__(
        self,
        *,
        family: int = 0,
        bind_address: str | None = None,
        through: asyncssh.SSHClientConnection | None = None,
        proxy_command: str | None = None,
    ) -> None:
        """Reach nobody yet.

        Args:
            family: socket.AF_INET or AF_INET6 to allow only that one.
            bind_address: which of our own addresses to come from.
            through: a login on a jump host to go through.
            proxy_command: a program to go through.
        """
        self._family = family
        self._local_address = (bind_address, 0) if bind_address else None
        self._through = through
        self._proxy_command = proxy_command
        self._proxy: ProxyProcess | None = None
        #: The first bytes the peer sent, before any of it was understood.
        self.greeting = b""

    async def create_connection(
        self, factory: Callable[[], asyncssh.SSHClientConnection], host: str, port: int
    ) -> tuple[None, asyncssh.SSHClientConnection]:
        """Connect to `host` and put an asyncssh connection on it. Cancellation: leaves no socket and no channel."""
        loop = asyncio.get_running_loop()
        connection = factory()
        wire = _Wire(self, connection, loop)
        if self._proxy_command is not None:
            self._proxy = ProxyProcess(self._proxy_command)
            await loop.create_connection(lambda: wire, sock=self._proxy.socket)
        elif self._through is not None:
            await self._through.create_connection(lambda: cast("Any", wire), host, port, window=_JUMP_WINDOW_BYTES)
        else:
            await loop.create_connection(
                lambda: wire,
                host,
                port,
                family=self._family,
                local_addr=self._local_address,
                happy_eyeballs_delay=_NEXT_ADDRESS_S,
            )
        return None, connection

    @property
    def said(self) -> str:
        """What the proxy program said on stderr."""
        return quoted(self._proxy.said()) if self._proxy is not None else ""

    async def end(self) -> None:
        """End the proxy program, once the connection is closed. Idempotent."""
        if self._proxy is not None:
            await self._proxy.end()

    def close(self) -> None:
        """Nothing: each connection closes its own carrier."""

    async def wait_closed(self) -> None:
        """Nothing."""
