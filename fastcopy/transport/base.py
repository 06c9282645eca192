"""The Protocol of what bytes travel over: a duplex byte stream that can also move FILE bytes by itself.

One thread, the channel's pump, drives one transport: every method but `wake` is called from that thread only, none
of them waits except `wait`. So a slow disk holds up its own channel and never the event loop, and protocol code
above needs no locks. Implementations: pipe (splice), asyncssh session (connection/), memory (tests).
Invariant: bytes arrive in the order they were accepted, whichever method accepted them.
"""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """A non-blocking byte stream to one peer, owned by one thread."""

    def write(self, data: bytes | memoryview) -> int:
        """Take a prefix of `data` to send.

        Returns: how many bytes were taken; 0 when there is no room now (`wait` for it).
        Raises: ChannelLost when the peer is gone.
        """
        ...

    def send_file(self, fd: int, offset: int, length: int) -> int:
        """Take up to `length` bytes of the file `fd` from `offset`, without moving its file position.

        Returns: how many bytes were taken; 0 when there is no room now.
        Raises: ChannelLost when the peer is gone; SourceChanged when the file ends at or before `offset`;
            OSError of the file (EIO and the like) as it came.
        """
        ...

    def read(self, limit: int) -> bytes | None:
        """Return 1 to `limit` bytes that have arrived; None when there are none now; b"" after the peer's end."""
        ...

    def receive_file(self, fd: int, offset: int, length: int) -> int:
        """Put up to `length` of the bytes that arrive next into the file `fd` at `offset`.

        Returns: how many bytes were put; 0 when none are there now.
        Raises: ChannelLost when the peer ended; OSError of the file (ENOSPC, EDQUOT, EIO) as it came. After an
            OSError the bytes not counted are still in the stream: `read` them away or close.
        """
        ...

    def wait(self, *, readable: bool, writable: bool, timeout_s: float) -> None:
        """Sleep until one of the asked-for directions may move, `wake` was called, or `timeout_s` passed.

        May return early and may return late by a millisecond (it lets a full pipe drain instead of waking for a page).
        """
        ...

    def wake(self) -> None:
        """End a running or the next `wait`. The only method any thread may call, at any time, also after `close`."""
        ...

    def close(self) -> None:
        """End both directions and free everything. Idempotent. What was accepted but not yet sent may be lost."""
        ...

    def diagnosis(self) -> str:
        """What the carrier said, if anything, for an error message: ssh's stderr, an exit code; "" otherwise."""
        ...
