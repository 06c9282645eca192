"""What is the pipe transport's own, beyond the contract: splice, pacing, its messages and its descriptors."""

from __future__ import annotations

import fcntl
import os
import select
import time
from typing import TYPE_CHECKING

import pytest

from fastcopy.errors import ChannelLost
from fastcopy.transport import wake
from fastcopy.transport.pipe import HAS_SPLICE, PACE_S, PIPE_SIZES_BYTES, STREAMING_BYTES, PipeTransport
from fastcopy.transport.wake import WakeFd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Pipes:
    """A transport, and the far ends of its pipes: `far_read_fd` is the child's stdin."""

    def __init__(self) -> None:
        self.far_read_fd, self.write_fd = os.pipe()
        self.read_fd, self.far_write_fd = os.pipe()
        self.closed: list[str] = []
        self.transport = PipeTransport(
            self.read_fd,
            self.write_fd,
            peer="srv002",
            on_close=lambda: self.closed.append("closed"),
            diagnose=lambda: "Connection reset by peer",
        )


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.transport.close()
    for fd in (made.far_read_fd, made.far_write_fd):
        if fd >= 0:
            os.close(fd)


@pytest.fixture
def file_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(STREAMING_BYTES))
    yield fd
    os.close(fd)


@pytest.mark.skipif(not HAS_SPLICE, reason="needs Linux")
def test_file_bytes_do_not_pass_through_python(pipes: Pipes, file_fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is splice, neither sending nor receiving a file reads or writes any of it here."""

    def forbidden(*_: object) -> None:
        raise AssertionError("file bytes were read or written")

    os.write(pipes.far_write_fd, bytes(5000))
    with monkeypatch.context() as patch:
        for name in ("pread", "pwrite", "read", "write"):
            patch.setattr(os, name, forbidden)
        assert pipes.transport.send_file(file_fd, 0, 5000) == 5000
        assert pipes.transport.receive_file(file_fd, 0, 5000) == 5000
    assert os.read(pipes.far_read_fd, 10_000) == bytes(5000)


def test_a_wait_while_streaming_sleeps_once_then_polls(
    pipes: Pipes, file_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After file bytes have moved one wait only sleeps, the pace at most; when nothing moved since, the next polls."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    assert pipes.transport.send_file(file_fd, 0, STREAMING_BYTES) == STREAMING_BYTES
    pipes.transport.wait(readable=True, writable=False, timeout_s=3600)
    assert slept == [PACE_S]
    pipes.transport.wait(readable=True, writable=False, timeout_s=0.001)
    pipes.transport.wait(readable=True, writable=False, timeout_s=0.001)
    assert slept == [PACE_S]


def test_a_small_file_is_not_paced(pipes: Pipes, file_fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few KiB of file bytes are no streaming: the wait for their answer polls, so it ends when that comes."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    pipes.transport.send_file(file_fd, 0, 4096)
    os.write(pipes.far_write_fd, b"answer")
    pipes.transport.wait(readable=True, writable=False, timeout_s=3600)
    assert slept == []


def test_a_short_timeout_shortens_the_pace(pipes: Pipes, file_fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that may not wait does not sleep either."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    pipes.transport.send_file(file_fd, 0, STREAMING_BYTES)
    pipes.transport.wait(readable=True, writable=False, timeout_s=-1)
    assert slept == [0.0]


def test_a_wake_during_the_pace_ends_the_next_wait(pipes: Pipes, file_fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake that falls into the sleep is not lost."""
    monkeypatch.setattr(time, "sleep", lambda _: pipes.transport.wake())
    pipes.transport.send_file(file_fd, 0, STREAMING_BYTES)
    pipes.transport.wait(readable=True, writable=False, timeout_s=3600)
    pipes.transport.wait(readable=True, writable=False, timeout_s=3600)
    assert pipes.transport.read(1) is None


def test_a_wake_is_used_up_by_the_wait_it_ends(pipes: Pipes) -> None:
    """One wake ends one wait; the pump does not spin after it."""
    pipes.transport.wake()
    pipes.transport.wait(readable=True, writable=False, timeout_s=3600)
    assert pipes.transport._pollers[True, False].poll(0) == []


def test_a_lost_direction_ends_no_wait_for_the_other(pipes: Pipes) -> None:
    """With the far reader gone a wait for reading only does not return at once again and again, and the reverse."""
    os.close(pipes.far_read_fd)
    pipes.far_read_fd = -1
    assert pipes.transport._pollers[True, False].poll(0) == []
    assert pipes.transport._pollers[False, True].poll(0) == [(pipes.write_fd, select.POLLOUT | select.POLLERR)]
    os.close(pipes.far_write_fd)
    pipes.far_write_fd = -1
    assert pipes.transport._pollers[False, False].poll(0) == []


def test_a_lost_channel_tells_what_the_carrier_said(pipes: Pipes, file_fd: int) -> None:
    """ChannelLost names the host and what ssh wrote about it, whichever way the loss is met."""
    for fd in (pipes.far_read_fd, pipes.far_write_fd):
        os.close(fd)
    pipes.far_read_fd = pipes.far_write_fd = -1
    moves: list[Callable[[], int]] = [
        lambda: pipes.transport.write(b"x"),
        lambda: pipes.transport.send_file(file_fd, 0, 1),
        lambda: pipes.transport.receive_file(file_fd, 0, 1),
    ]
    for move in moves:
        with pytest.raises(ChannelLost) as caught:
            move()
        assert str(caught.value) == (
            "The connection to srv002 was lost: Connection reset by peer. Run the same command again."
        )


def test_close_tells_its_owner_once(pipes: Pipes) -> None:
    """`on_close` is called once, after both descriptors are free."""
    pipes.transport.close()
    pipes.transport.close()
    assert pipes.closed == ["closed"]
    for fd in (pipes.read_fd, pipes.write_fd):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert repr(pipes.transport) == "<PipeTransport to srv002: closed>"


@pytest.mark.skipif(not hasattr(fcntl, "F_GETPIPE_SZ"), reason="needs Linux")
def test_pipes_are_enlarged(pipes: Pipes) -> None:
    """Both pipes get one of the sizes we ask for, not the 4 or 64 KiB they are made with."""
    sizes = {fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) for fd in (pipes.read_fd, pipes.write_fd)}
    assert sizes <= set(PIPE_SIZES_BYTES)


@pytest.mark.parametrize("has_eventfd", [wake._HAS_EVENTFD, False])
def test_wake_fd_is_readable_until_cleared(monkeypatch: pytest.MonkeyPatch, has_eventfd: bool) -> None:
    """Any number of wakes make the descriptor readable until one clear; with an eventfd and with a pipe alike."""
    monkeypatch.setattr(wake, "_HAS_EVENTFD", has_eventfd)
    latch = WakeFd()
    poller = select.poll()
    poller.register(latch.fd, select.POLLIN)
    assert latch.clear() is False
    assert poller.poll(0) == []
    for _ in range(100_000):  # more than a pipe would hold
        latch.wake()
    assert poller.poll(0) == [(latch.fd, select.POLLIN)]
    assert latch.clear() is True
    assert poller.poll(0) == []
    latch.close()
    latch.close()
    latch.wake()
