"""One large file that several channels copy in chunks: its part, what is left, who works on it.

Invariants: the part is created once and never reused after a loss of its creator; `is_over` becomes true exactly once,
when every byte was acknowledged (or the file has failed) and no chunk of it is under way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastcopy.errors import ChannelLost

if TYPE_CHECKING:
    from fastcopy.engine.mover import Mover
    from fastcopy.errors import FastcopyError
    from fastcopy.model import Entry, Range
    from fastcopy.plan.ranges import RangeSet
    from fastcopy.sftp.client import SftpClient


class ChunkedFile:
    """The copying of one file. Used from the event loop."""

    def __init__(self, entry: Entry, mover: Mover) -> None:
        self.entry = entry
        #: Why the file fails; its further chunks are passed over.
        self.error: FastcopyError | None = None
        #: Set by whoever commits or discards it, so that it is done once.
        self.ending = False
        self._mover = mover
        self._part: asyncio.Future[Any] | None = None
        self._left_bytes = entry.size
        self._active = 0

    @property
    def is_over(self) -> bool:
        return self._active == 0 and (self._left_bytes == 0 or self.error is not None)

    async def copy(self, client: SftpClient, span: Range, done: RangeSet) -> None:
        """Copy the chunk `span` on one channel; `done` gets what was acknowledged, also when this fails.

        Raises: ChannelLost when the rest must be copied on another channel; else what the mover's steps raise.
        """
        self._active += 1
        try:
            if self.error is None:
                part = await self._part_for(client)
                await client.run(self._mover.chunk(client, part, span, done))
        finally:
            self._active -= 1
            self._left_bytes -= done.total

    async def commit(self, client: SftpClient) -> None:
        """Put the whole file under its final name. Raises as its steps; after ChannelLost it may be tried again."""
        assert self._part is not None
        await client.run(self._mover.commit(client, self._part.result()))

    async def discard(self, client: SftpClient | None) -> None:
        """Remove the part, as well as can be without a channel."""
        part, self._part = self._part, None
        if part is None or not part.done() or part.cancelled() or part.exception() is not None:
            return
        steps = self._mover.discard(client, part.result())
        try:
            if client is not None:
                await client.run(steps)
        except ChannelLost:
            client = None
        if client is None:
            for _ in self._mover.discard(None, part.result()):
                pass  # without a channel nothing is asked

    async def _part_for(self, client: SftpClient) -> Any:
        """Return the part, which the first to ask creates on its channel; the others wait for it."""
        if self._part is None:
            self._part = client.start(self._mover.begin(client, self.entry))
        part = self._part
        try:
            return await asyncio.shield(part)
        except ChannelLost:
            if self._part is part:
                self._part = None
            raise
