"""What the contract of Transport does not say about an asyncssh session: bounds on memory, and full SSH packets."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from fastcopy.connection.asyncssh_transport import PACKET_BYTES
from fastcopy.errors import ChannelLost
from tests.support.asyncssh_logins import WAIT_S, read
from tests.support.session_pair import session_pair

if TYPE_CHECKING:
    from pathlib import Path

    from fastcopy.transport.base import Transport

MEMORY_BYTES = 256 << 10
WINDOW_BYTES = 1 << 20
SIZE_BYTES = 8 << 20


def test_arriving_bytes_are_bounded_and_none_is_lost() -> None:
    """A pump that does not take what arrives holds up the sender; what it takes later is all of it, in order."""
    data = os.urandom(SIZE_BYTES)
    with session_pair(memory_bytes=MEMORY_BYTES, window_bytes=WINDOW_BYTES) as (transport, peer):
        sender = threading.Thread(target=peer.send_all, args=(data,))
        sender.start()
        transport.wait(readable=True, writable=False, timeout_s=WAIT_S)
        highest = 0
        for _ in range(20):
            time.sleep(0.01)  # the sender has time to send more than it may
            highest = max(highest, transport._arrived_bytes - transport._taken_bytes)
        assert MEMORY_BYTES < highest <= MEMORY_BYTES + PACKET_BYTES
        assert read(transport, len(data)) == data
        sender.join()


def test_leaving_bytes_are_bounded(tmp_path: Path) -> None:
    """A peer that does not read holds up the pump: no more than the bound waits in this process."""
    source = tmp_path / "source"
    source.write_bytes(bytes(SIZE_BYTES))
    with session_pair(memory_bytes=MEMORY_BYTES) as (transport, _), source.open("rb") as file:
        sent = 0
        while sent < SIZE_BYTES:
            taken = transport.send_file(file.fileno(), sent, SIZE_BYTES - sent)
            assert transport._accepted_bytes - transport._sent_bytes <= MEMORY_BYTES
            sent += taken
            if not taken:
                transport.wait(readable=False, writable=True, timeout_s=0.2)
                if transport._accepted_bytes - transport._sent_bytes == MEMORY_BYTES:
                    break
        assert sent < SIZE_BYTES


def test_many_small_requests_share_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests written one after the other leave in packets filled to the brim, in order."""
    with session_pair() as (transport, peer):
        sizes: list[int] = []
        channel = transport._channel
        assert channel is not None
        write = channel.write

        def note(data: bytes) -> None:
            sizes.append(len(data))
            write(data)

        monkeypatch.setattr(channel, "write", note)
        pieces = [bytes([n % 251]) * 40 for n in range(10_000)]
        transport._loop.call_soon_threadsafe(time.sleep, 0.1)  # the loop is busy while the pump writes
        for piece in pieces:
            assert transport.write(piece) == len(piece)
        assert peer.receive_exactly(400_000) == b"".join(pieces)
        assert sum(sizes) == 400_000
        assert len(sizes) <= 400_000 // PACKET_BYTES + 3


@pytest.mark.parametrize("memory_bytes", [1, PACKET_BYTES, MEMORY_BYTES])
def test_tiny_bounds_only_make_it_slow(tmp_path: Path, memory_bytes: int) -> None:
    """With room for a single byte everything still arrives, both ways at once: nobody waits for ever."""
    size = 2_000 if memory_bytes == 1 else 4 << 20
    data = os.urandom(size)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    with (
        session_pair(memory_bytes=memory_bytes, window_bytes=PACKET_BYTES) as (transport, peer),
        source.open("rb") as from_file,
        target.open("wb") as to_file,
    ):
        echo = threading.Thread(target=lambda: peer.send_all(peer.receive_exactly(size)))
        echo.start()
        pump(transport, from_file.fileno(), to_file.fileno(), size)
        echo.join()
    assert target.read_bytes() == data


def pump(transport: Transport, from_fd: int, to_fd: int, size: int) -> None:
    sent = received = 0
    while received < size:
        moved = 0
        if sent < size:
            moved += (taken := transport.send_file(from_fd, sent, size - sent))
            sent += taken
        moved += (put := transport.receive_file(to_fd, received, size - received))
        received += put
        if not moved:
            transport.wait(readable=True, writable=sent < size, timeout_s=WAIT_S)


def test_a_loop_that_has_ended_is_a_lost_channel() -> None:
    """A pump that outlives the event loop gets ChannelLost, and may still close and wake."""
    with session_pair() as (transport, _):
        pass
    assert transport.read(1) == b""
    with pytest.raises(ChannelLost):
        transport.write(b"x")
    transport.wake()
    transport.close()
