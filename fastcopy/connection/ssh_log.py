"""What one ssh process says of itself (`-E FILE`), heard line by line while it runs.

FILE is a FIFO in the private directory: nothing reaches a disk, and the event loop is woken instead of polling.
Must not know what the lines mean (ssh_diagnosis does). Invariant: the FIFO is always read, so ssh never waits for us,
and at most 2 x KEPT_BYTES are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes kept of the beginning (the login) and of the end (why it ended). Source: a login at DEBUG1 logs 3-8 KiB.
KEPT_BYTES = 64 << 10


class SshLog:
    """The log of one ssh process."""

    def __init__(self, path: str, *, on_news: Callable[[str], None]) -> None:
        """Make the FIFO `path`, to be given to ssh as `-E PATH`.

        Args:
            on_news: called in the event loop with the text that came.
        """
        self.path = path
        self._on_news = on_news
        self._text = bytearray()
        self._loop = asyncio.get_running_loop()
        os.mkfifo(path, 0o600)
        # Opened for both ways it never reports an end, neither before ssh opens it nor after.
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop.add_reader(self._fd, self._read)

    @property
    def text(self) -> str:
        """All that was said until now; the middle is left out where it was much."""
        self._read()
        return self.heard

    @property
    def heard(self) -> str:
        """The same without looking for more; the only thing another thread may ask for."""
        return self._text.decode("utf-8", "replace")

    def _read(self) -> None:
        if self._fd is None:
            return
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._fd, 1 << 16):
                self._text += piece
                if len(self._text) > 2 * KEPT_BYTES:
                    del self._text[KEPT_BYTES:-KEPT_BYTES]
                self._on_news(piece.decode("utf-8", "replace"))

    def close(self) -> None:
        """Read what is left and remove the FIFO; `text` stays. Idempotent. ssh may go on logging: it is not heard."""
        self._read()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
