"""An SFTP channel of an asyncssh connection, as a Transport: the pump's thread on one end, the event loop on the other.

Owns what waits in this process in both directions. Must not import SFTP, nor how a login is made. Two deques and a
few counters, each with one writing thread, connect the sides; there is no lock: an append, a popleft and a store are
whole, and each side first says what it did and then looks at what the other one did.
Invariant: at most about `memory_bytes` wait per direction, beside the window that SSH itself grants.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import asyncssh

from fastcopy.connection.asyncssh_errors import quoted
from fastcopy.connection.asyncssh_lean import make_channel_lean
from fastcopy.errors import ChannelLost, SourceChanged, printable

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes of payload that may wait for the other side, per direction. Source: our measurement; twice OpenSSH's window.
DEFAULT_CHANNEL_MEMORY_BYTES = 4 << 20
#: Bytes. The most channel data one SSH packet to OpenSSH may hold. Source: its channels.h, CHAN_SES_PACKET_DEFAULT.
PACKET_BYTES = 32_768
#: Bytes. How much one turn of the event loop sends before others get theirs.
_TURN_BYTES = 512 << 10
#: Bytes. The most one `send_file` reads at once.
_READ_BYTES = 256 << 10
#: Buffers in one pwritev; well below IOV_MAX. Source: limits.h of Linux and macOS: 1024.
_MOST_PIECES = 64
#: How long to let payload gather (or drain) instead of waking for each SSH packet, as (bytes of files moved since the
#: last `wait`, seconds), the fastest first. Each wake-up also takes the interpreter's lock from the loop's thread.
#: Source: our measurement: get at 2 ms beside 0.5 ms: a third of the wake-ups, 20 % less CPU; and see
#: transport/pipe.py: less than a small file does not count as streaming.
PACES = ((512 << 10, 0.002), (16 << 10, 0.0005))
#: Bytes kept of what the far program prints on stderr.
_SAID_BYTES = 8 << 10
_NOTHING = memoryview(b"")


class SessionTransport:
    """A Transport over one asyncssh session. Make it on the loop's thread, hand `session` to create_session."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        peer: str,
        memory_bytes: int = DEFAULT_CHANNEL_MEMORY_BYTES,
    ) -> None:
        """Prepare both directions; nothing is sent before `session` is connected.

        Args:
            loop: the running loop of the connection.
            peer: the host, for error messages.
            memory_bytes: how much may wait in each direction before the faster side is held up.
        """
        self.session = _Session(self)
        self._loop = loop
        self._peer = peer
        self._memory_bytes = memory_bytes
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._bell = threading.Event()
        self._is_waiting = False  # the pump is about to sleep on the bell
        self._is_woken = False
        self._is_closed = False
        self._moved_bytes = 0  # of files, since the last wait

        self._outgoing: deque[bytes] = deque()  # the pump appends, the loop takes
        self._accepted_bytes = 0  # by the pump, ever
        self._sent_bytes = 0  # by the loop, ever
        self._is_flush_due = False
        self._may_write = True  # the session's: SSH window and socket have room
        self._rest = _NOTHING  # the loop's: of a piece that asyncssh took only in part

        self._incoming: deque[bytes] = deque()  # the loop appends, the pump takes
        self._arrived_bytes = 0  # by the loop, ever
        self._taken_bytes = 0  # by the pump, ever
        self._is_reading_paused = False
        self._head = _NOTHING  # the pump's: what is left of the piece it took last

        self._has_ended = False  # the peer sends nothing more
        self._lost: str | None = None  # why nothing can be sent any more
        self._said = b""
        self._end = asyncio.Event()
        #: How the far program ended; 128 + n for a signal, as a shell says it; None where nobody said.
        self.exit_status: int | None = None

    def __repr__(self) -> str:
        waiting = f"out={self._accepted_bytes - self._sent_bytes} in={self._arrived_bytes - self._taken_bytes}"
        state = "closed" if self._is_closed else "ended" if self._has_ended else "open"
        return f"<SessionTransport to {self._peer}: {state} {waiting}>"

    # --- the pump's thread ---------------------------------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> int:
        """See Transport.write."""
        room = self._room()
        if room <= 0 or not data:
            return 0
        piece = bytes(data[:room])  # of bytes that fit whole, this is no copy
        self._send(piece)
        return len(piece)

    def send_file(self, fd: int, offset: int, length: int) -> int:
        """See Transport.send_file."""
        room = self._room()
        if room <= 0 or not length:
            return 0
        piece = os.pread(fd, min(length, room, _READ_BYTES), offset)
        if not piece:
            raise SourceChanged(f"it ends at or before byte {offset}", offset=offset)
        self._send(piece)
        self._moved_bytes += len(piece)
        return len(piece)

    def _room(self) -> int:
        if self._is_closed:
            raise ChannelLost("this end closed it", host=self._peer)
        if self._lost is not None:
            raise self._loss()
        return self._memory_bytes - (self._accepted_bytes - self._sent_bytes)

    def _send(self, piece: bytes) -> None:
        self._accepted_bytes += len(piece)
        self._outgoing.append(piece)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._call(self._flush)

    def read(self, limit: int) -> bytes | None:
        """See Transport.read."""
        has_ended = self._has_ended or self._is_closed  # looked at first: data may come between two looks
        if not self._head and not self._next_piece():
            return b"" if has_ended else None
        piece, self._head = self._head[:limit], self._head[limit:]
        self._took(len(piece))
        return bytes(piece)

    def receive_file(self, fd: int, offset: int, length: int) -> int:
        """See Transport.receive_file."""
        if self._is_closed:
            raise ChannelLost("this end closed it", host=self._peer)
        has_ended = self._has_ended
        if not length:
            return 0
        if not self._head and not self._next_piece():
            if has_ended:
                raise self._loss()
            return 0
        pieces = [self._head]
        size_bytes = len(self._head)
        while size_bytes < length and len(pieces) < _MOST_PIECES and self._incoming:
            piece = memoryview(self._incoming.popleft())
            pieces.append(piece)
            size_bytes += len(piece)
        surplus = max(0, size_bytes - length)
        whole_last = pieces[-1]
        if surplus:
            pieces[-1] = whole_last[:-surplus]
        try:
            put = os.pwritev(fd, pieces, offset) if hasattr(os, "pwritev") else os.pwrite(fd, pieces[0], offset)
        except OSError:
            put = 0
            raise
        finally:
            pieces[-1] = whole_last
            self._keep(pieces, put)
        return put

    def _keep(self, pieces: list[memoryview], put: int) -> None:
        """Give back to the stream what of `pieces` the file did not take."""
        self._moved_bytes += put
        self._took(put)
        for number, piece in enumerate(pieces):
            if put < len(piece):
                self._head = piece[put:]
                self._incoming.extendleft(bytes(later) for later in reversed(pieces[number + 1 :]))
                return
            put -= len(piece)
        self._head = _NOTHING

    def _next_piece(self) -> bool:
        if not self._incoming:
            return False
        self._head = memoryview(self._incoming.popleft())
        return True

    def _took(self, count: int) -> None:
        self._taken_bytes += count
        if self._is_reading_paused and self._arrived_bytes - self._taken_bytes <= self._memory_bytes // 2:
            self._is_reading_paused = False
            self._call(self._resume_reading)

    def wait(self, *, readable: bool, writable: bool, timeout_s: float) -> None:
        """See Transport.wait. While file bytes stream it sleeps a pace of PACES before it will wait for the bell."""
        if self._is_ready(readable, writable):
            self._is_woken = False
            return
        pace_s = next((pace_s for moved_bytes, pace_s in PACES if self._moved_bytes >= moved_bytes), None)
        self._moved_bytes = 0
        if pace_s is not None:
            time.sleep(max(0.0, min(pace_s, timeout_s)))
            return
        self._bell.clear()
        self._is_waiting = True
        if not self._is_ready(readable, writable):  # what comes after this look rings
            self._bell.wait(max(0.0, min(timeout_s, threading.TIMEOUT_MAX)))
        self._is_waiting = False
        self._is_woken = False

    def _is_ready(self, readable: bool, writable: bool) -> bool:
        return (
            self._is_woken
            or self._is_closed
            or (readable and (bool(self._head) or bool(self._incoming) or self._has_ended))
            or (writable and (self._lost is not None or self._accepted_bytes - self._sent_bytes < self._memory_bytes))
        )

    def wake(self) -> None:
        """See Transport.wake."""
        self._is_woken = True
        self._bell.set()

    def close(self) -> None:
        """See Transport.close."""
        if self._is_closed:
            return
        self._is_closed = True
        self._head = _NOTHING
        self._call(self._abort)

    def diagnosis(self) -> str:
        """See Transport.diagnosis: the far program's stderr, how it ended, and why the channel is gone."""
        ended = f"its program ended with status {self.exit_status}" if self.exit_status is not None else ""
        return "; ".join(part for part in (quoted(self._said), ended, self._lost or "") if part)

    def _loss(self) -> ChannelLost:
        return ChannelLost(self.diagnosis() or "the server ended the channel", host=self._peer)

    def _call(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop; where the loop is closed there is nothing left to do."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            self._has_ended = True
            self._lost = self._lost or "the event loop has ended"

    # --- the loop's thread ---------------------------------------------------------------------------------------

    async def wait_end(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` until the channel is over; return whether it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._end.wait()
        return self._end.is_set()

    @property
    def said(self) -> str:
        """What the far program printed on stderr."""
        return self._said.decode("utf-8", "replace")

    @property
    def is_closed(self) -> bool:
        """Whether this end closed it."""
        return self._is_closed

    def _open(self, channel: asyncssh.SSHClientChannel[bytes]) -> None:
        make_channel_lean(channel)
        self._channel = channel

    def _flush(self) -> None:
        """Send what waits in packets filled to the brim, until asyncssh says stop or this turn is over."""
        self._is_flush_due = False  # first: a piece appended from here on makes a new flush due
        if self._lost is not None or self._channel is None:
            return
        turn_bytes = 0
        while self._may_write and turn_bytes < _TURN_BYTES:
            packet = self._packet()
            if not packet:
                break
            self._channel.write(packet)
            turn_bytes += len(packet)
        self._sent_bytes += turn_bytes
        self._ring()
        if turn_bytes >= _TURN_BYTES and self._may_write and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _packet(self) -> Any:
        """Take the next up to PACKET_BYTES to send; a view where one piece fills them, so that nothing is copied."""
        rest = self._rest
        if not rest:
            if not self._outgoing:
                return rest
            rest = memoryview(self._outgoing.popleft())
        if len(rest) >= PACKET_BYTES:
            self._rest = rest[PACKET_BYTES:]
            return rest[:PACKET_BYTES]
        parts = [rest]
        room = PACKET_BYTES - len(rest)
        rest = _NOTHING
        while room and self._outgoing:
            piece = memoryview(self._outgoing.popleft())
            parts.append(piece[:room])
            rest = piece[room:]
            room -= len(parts[-1])
        self._rest = rest
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _set_writable(self, may_write: bool) -> None:
        self._may_write = may_write
        if may_write:
            self._loop.call_soon(self._flush)

    def _arrive(self, data: bytes) -> None:
        self._incoming.append(data)
        self._arrived_bytes += len(data)
        self._ring()
        if self._arrived_bytes - self._taken_bytes > self._memory_bytes:
            self._pause_reading()

    def _hear(self, data: bytes) -> None:
        self._said += data[: _SAID_BYTES - len(self._said)]

    def _pause_reading(self) -> None:
        """Let the rest gather in the SSH window, which asyncssh does not open again meanwhile."""
        if self._is_reading_paused or self._channel is None:
            return
        self._is_reading_paused = True
        if self._arrived_bytes - self._taken_bytes > self._memory_bytes // 2:
            self._channel.pause_reading()
        else:  # the pump took it all just now, and may not have seen that it is to resume
            self._is_reading_paused = False

    def _resume_reading(self) -> None:
        if self._channel is not None:
            self._channel.resume_reading()

    def _finish_input(self) -> None:
        self._has_ended = True
        self._ring()

    def _lose(self, why: str) -> None:
        self._lost = why
        self._has_ended = True
        self._end.set()
        self._ring()

    def _abort(self) -> None:
        self._outgoing.clear()
        self._incoming.clear()
        self._rest = _NOTHING
        if self._channel is not None:
            self._channel.abort()

    def _ring(self) -> None:
        if self._is_waiting:
            self._bell.set()


class _Session(asyncssh.SSHClientSession[bytes]):
    """What asyncssh calls, on the loop's thread, for one SessionTransport."""

    def __init__(self, transport: SessionTransport) -> None:
        self._transport = transport

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._transport._open(chan)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is None:
            self._transport._arrive(data)
        else:
            self._transport._hear(data)

    def eof_received(self) -> bool:
        self._transport._finish_input()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport._lose(printable(str(exc)) if exc is not None else "the server closed the channel")

    def exit_status_received(self, status: int) -> None:
        self._transport.exit_status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._transport.exit_status = exit_status_of_signal(signal)

    def pause_writing(self) -> None:
        self._transport._set_writable(False)

    def resume_writing(self) -> None:
        self._transport._set_writable(True)


def exit_status_of_signal(name: str) -> int:
    """Return what a shell's $? would be after the signal `name` (without SIG)."""
    number = getattr(signal, f"SIG{name}", None)
    return 128 + int(number) if isinstance(number, signal.Signals) else 128
