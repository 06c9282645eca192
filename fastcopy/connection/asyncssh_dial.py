"""The TCP connection below an asyncssh login, with small writes joined and large reads cut.

Owns how bytes pass between asyncssh and its socket (or the jump host's channel). Must not import SFTP or options.
asyncssh writes each SSH packet, and one IGNORE before it, by a call of its own, and slices what it has not parsed
yet twice per packet; both are cured from outside, through its public `tunnel=` argument.
Invariant: bytes leave in the order they were written, at the latest when the loop's running callback has ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncssh

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes. Written at once as soon as so many have gathered. Source: our measurement.
_GATHER_BYTES = 256 << 10
#: Bytes. What asyncssh is given at once: one full SSH packet and a little more. Source: our measurement.
_FEED_BYTES = 64 << 10


class CoalescingTransport:
    """What asyncssh takes for its socket: gathers what is written during one callback of the loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
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
        if self._gathered:
            joined = b"".join(self._gathered)
            self._gathered.clear()
            self._gathered_bytes = 0
            self._transport.write(joined)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._flush()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


class _Wire(asyncio.Protocol):
    """Between the socket's transport and asyncssh's connection."""

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(CoalescingTransport(transport, self._loop))

    def data_received(self, data: bytes) -> None:
        if len(data) <= _FEED_BYTES:
            self._connection.data_received(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), _FEED_BYTES):
            self._connection.data_received(view[start : start + _FEED_BYTES])

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


class Dialler:
    """The `tunnel=` object that reaches a host by TCP."""

    logger = asyncssh.logging.logger

    def __init__(self, family) -> None:
        self._family = family

    async def create_connection(self, factory: Callable[[], Any], host: str, port: int):
        loop = asyncio.get_running_loop()
        connection = factory()
        await loop.create_connection(lambda: _Wire(connection, loop), host, port, family=self._family)
        return None, connection

    def close(self) -> None:
        """Nothing: each connection closes its own socket."""

    async def wait_closed(self) -> None:
        """Nothing."""
