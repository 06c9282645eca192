"""One range over a channel to a model server that reorders, shortens, refuses and lies: right bytes or our error.

The model knows what it acknowledged; after every step `done` must hold exactly that (the invariant of streams.py).
"""

from __future__ import annotations

import functools
import os
import random
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastcopy.config import SAFE_REQUEST_BYTES
from fastcopy.errors import ChannelLost, FastcopyError, ProtocolError, SourceChanged, UnsafePeer
from fastcopy.model import Range
from fastcopy.plan.ranges import RangeSet
from fastcopy.sftp.multiplexer import Multiplexer
from fastcopy.sftp.operation import Conversation, StatusError
from fastcopy.sftp.streams import ReadRange, RequestSize, WriteRange
from tests.support import sftp_wire
from tests.support.sftp_wire import Sent, Wire, range_of

if TYPE_CHECKING:
    from fastcopy.sftp.operation import Steps

#: What the model server does with a request beside answering it well; each at most now and then.
HONEST = ("short", "refuse")
LIES = ("duplicate", "wrong id", "wrong type", "too much", "early end", "permission", "malformed")
SIZES = st.integers(0, 3 * SAFE_REQUEST_BYTES + 7)


class ModelServer:
    """One file in memory, requests answered in any order, and a list of what was acknowledged."""

    def __init__(self, content: bytes, dice: random.Random, tricks: tuple[str, ...]) -> None:
        self.content = bytearray(content)
        self.dice = dice
        self.tricks = tricks
        self.waiting: list[Sent] = []
        self.acknowledged = RangeSet()
        self.lied = False

    def answer_one(self) -> tuple[bytes, Range]:
        """Return the reply to any waiting request, and what it acknowledges."""
        request = self.waiting.pop(self.dice.randrange(len(self.waiting)))
        trick = self.dice.choice(self.tricks) if self.tricks and self.dice.random() < 0.25 else ""
        offset, length = range_of(request)
        good, moved = self.well(request, offset, length, short=trick == "short")
        nothing = Range(offset, offset)
        if trick == "refuse":
            refused = length > SAFE_REQUEST_BYTES
            return (sftp_wire.status(request.request_id, 4), nothing) if refused else (good, moved)
        if trick in ("", "short"):
            return good, moved
        self.lied = True
        match trick:
            case "duplicate":
                return good + good, moved
            case "wrong id":
                return good[:5] + b"\xde\xad\xbe\xef" + good[9:], nothing
            case "wrong type":
                return sftp_wire.attributes(request.request_id, 5), nothing
            case "too much":
                return sftp_wire.data(request.request_id, bytes(length + 1)), nothing
            case "early end":
                return sftp_wire.status(request.request_id, sftp_wire.EOF), nothing
            case "permission":
                return sftp_wire.status(request.request_id, sftp_wire.PERMISSION_DENIED), nothing
            case _:
                return sftp_wire.packet(101, request.request_id, b"\0\0"), nothing

    def well(self, request: Sent, offset: int, length: int, *, short: bool) -> tuple[bytes, Range]:
        """Do what was asked; return the reply and what it acknowledges."""
        if request.kind == 5:
            length = self.dice.randint(1, length) if short else length
            payload = bytes(self.content[offset : offset + length])
            return sftp_wire.data(request.request_id, payload), Range(offset, offset + len(payload))
        self.content[offset : offset + length] = request.body[len(request.body) - length :]
        return sftp_wire.status(request.request_id), Range(offset, offset + length)


class Transfer:
    """A range stream on a multiplexer, and the model server at its far end."""

    def __init__(self, kind: type[Any], fd: int, span: Range, server: ModelServer, *, depth: int, size: int) -> None:
        self.server = server
        self.done = RangeSet()
        self.multiplexer = Multiplexer(queue_depth=depth, host="h")
        self.wire = Wire(self.multiplexer)

        def steps() -> Steps[int]:
            moved: int = yield kind(b"h", fd, span, RequestSize(size), self.done)
            return moved

        self.operation = Conversation(steps())
        self.multiplexer.submit(self.operation)
        self.depth = depth

    def run(self, dice: random.Random) -> FastcopyError | None:
        """Send and answer in random turns to the end; return the error that ended the channel, if one did."""
        while not self.operation.finished:
            request = self.wire.next() if dice.random() < 0.6 else None
            if request is not None:
                self.server.waiting.append(request)
            elif self.server.waiting:
                reply, moved = self.server.answer_one()
                slices = [1, 5, 13] if len(reply) < 200 else [1000, 13_000, 40_000]
                try:
                    self.wire.feed(reply, functools.partial(dice.choice, slices))
                except FastcopyError as exc:
                    return exc
                finally:
                    self.server.acknowledged.add(moved)
                    assert self.done == self.server.acknowledged
            assert len(self.multiplexer._pending) <= self.depth
        return None


def run(kind: type[Any], seed: int, size: int, span: Range, depth: int, tricks: tuple[str, ...]) -> None:
    """Move `span` of a file of `size` bytes and see that every byte is right, or an error says that it is not."""
    dice = random.Random(seed)
    content = dice.randbytes(size)
    writes = kind is WriteRange
    with tempfile.TemporaryFile() as file:
        fd = file.fileno()
        if writes:
            os.pwrite(fd, content, 0)
        server = ModelServer(bytes(size) if writes else content, dice, tricks)
        transfer = Transfer(kind, fd, span, server, depth=depth, size=SAFE_REQUEST_BYTES + 1000)
        ended = transfer.run(dice)
        if ended is not None:
            assert type(ended) in (ProtocolError, UnsafePeer)
            assert server.lied
            transfer.multiplexer.fail(ChannelLost("gone"))
        assert transfer.multiplexer.finished == [transfer.operation]
        arrived = bytes(server.content) if writes else os.pread(fd, size, 0).ljust(size, b"\0")
        for piece in transfer.done:
            assert arrived[piece.start : piece.stop] == content[piece.start : piece.stop]
        error = transfer.operation.error
        if error is None:
            assert transfer.done == RangeSet([span])
            assert (arrived[span.start : span.stop], transfer.operation.result) == (
                content[span.start : span.stop],
                len(span),
            )
        else:
            assert server.lied
            assert isinstance(error, (FastcopyError, StatusError))
        outside = arrived[: span.start] + arrived[span.stop :]
        assert outside == bytes(len(outside))


SPANS = st.tuples(SIZES, SIZES).map(lambda ends: Range(min(ends), max(ends)))


@pytest.mark.parametrize("kind", [WriteRange, ReadRange])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), span=SPANS, depth=st.integers(1, 9))
def test_an_awkward_server_gets_every_byte(kind: type[Any], seed: int, span: Range, depth: int) -> None:
    """Any order of replies, short reads and refused sizes end with exactly the bytes of the range."""
    run(kind, seed, span.stop + 100, span, depth, HONEST)


@pytest.mark.parametrize("kind", [WriteRange, ReadRange])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), span=SPANS, depth=st.integers(1, 9))
def test_a_lying_server_gets_one_of_our_errors(kind: type[Any], seed: int, span: Range, depth: int) -> None:
    """Duplicates, wrong ids and types, too much, early ends: right bytes or our error, and `done` never lies."""
    run(kind, seed, span.stop + 100, span, depth, HONEST + LIES)


class EndsEarly(ModelServer):
    """Says EOF to whatever begins behind the end of its file, as the draft wants it."""

    def well(self, request: Sent, offset: int, length: int, *, short: bool) -> tuple[bytes, Range]:
        if offset >= len(self.content):
            return sftp_wire.status(request.request_id, sftp_wire.EOF), Range(offset, offset)
        return super().well(request, offset, length, short=short)


@given(seed=st.integers(0, 1 << 32), size=st.integers(1, 50_000))
def test_a_file_shorter_than_its_range_changed(seed: int, size: int) -> None:
    """A server whose file ends inside the range gives SourceChanged, and `done` is what came before."""
    dice = random.Random(seed)
    with tempfile.TemporaryFile() as file:
        server = EndsEarly(bytes(size), dice, ("short",))
        transfer = Transfer(ReadRange, file.fileno(), Range(0, 50_001), server, depth=3, size=10_000)
        assert transfer.run(dice) is None
        assert isinstance(transfer.operation.error, SourceChanged)
        assert transfer.done == server.acknowledged
