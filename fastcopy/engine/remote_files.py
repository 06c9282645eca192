"""Small remote files that are read whole and again: some kept open, so that a second look costs one round trip.

For /proc, whose files tell the present at every read from their beginning. Invariant: a file is kept open only where
that was asked for; the handles end with their channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastcopy.sftp import operations

if TYPE_CHECKING:
    from fastcopy.sftp.client import SftpClient


class RemoteFiles:
    """Reads the beginning of small files over any channel of a job. Used from one event loop."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: how much of each file is wanted."""
        self._limit_bytes = limit_bytes
        self._handles: dict[tuple[SftpClient, bytes], bytes] = {}

    async def read(self, client: SftpClient, path: bytes) -> bytes:
        """Return the first bytes of `path`, what one READ brings. Raises: StatusError; ChannelLost; ProtocolError."""
        handle = self._handles.get((client, path))
        if handle is None:
            return await client.run(operations.read_small(path, self._limit_bytes))
        return await client.run(operations.read_beginning(handle, self._limit_bytes))

    async def keep(self, client: SftpClient, path: bytes) -> None:
        """Open `path` for many reads. Raises: as `read`."""
        self._handles[client, path] = await client.run(operations.open_handle(path, operations.READ_FLAG))
