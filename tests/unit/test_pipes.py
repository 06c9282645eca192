"""Collecting from and feeding into a child's pipes, with real pipes."""

from __future__ import annotations

import os

import pytest

from fastcopy.connection.pipes import Collector, Feeder, PipeEnds


async def test_the_beginning_is_kept_and_the_rest_taken() -> None:
    """The writer is never held up, and one call tells that something was thrown away."""
    told: list[str] = []
    with PipeEnds() as ends:
        collector = Collector(ends.take_read(), limit_bytes=4, on_full=lambda: told.append("full"))
        os.write(ends.write_fd, b"abcdefgh")
        assert (collector.drain(), told) == (b"abcd", ["full"])
        os.write(ends.write_fd, b"ijkl")
        ends.close()
        assert (await collector.wait_end(), told) == (b"abcd", ["full"])


async def test_the_end_is_kept_where_that_is_asked_for() -> None:
    """The last words count."""
    with PipeEnds() as ends:
        collector = Collector(ends.take_read(), limit_bytes=4, keep_end=True)
        os.write(ends.write_fd, b"abcdefgh")
        assert collector.drain() == b"efgh"
        collector.close()
        collector.close()


async def test_everything_is_fed_to_a_slow_reader() -> None:
    """More than a pipe holds goes in piece by piece, then the pipe is closed."""
    data = os.urandom(300_000)
    with PipeEnds() as ends:
        Feeder(ends.take_write(), data)
        collector = Collector(ends.take_read(), limit_bytes=len(data))
        assert await collector.wait_end() == data


async def test_a_reader_that_goes_away_is_no_error() -> None:
    """A command need not read what it is given."""
    with PipeEnds() as ends:
        os.close(ends.take_read())
        fd = ends.write_fd
        Feeder(ends.take_write(), b"x" * 100)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_ends_that_were_not_taken_are_closed() -> None:
    """And those that were taken are left open."""
    with PipeEnds() as ends:
        taken, left = ends.take_read(), ends.write_fd
    os.fstat(taken)
    os.close(taken)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(left)
