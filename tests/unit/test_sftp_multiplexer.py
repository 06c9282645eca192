"""Many operations on one channel: what goes next, which reply is whose, and that a lying server harms nobody twice."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from fastcopy.errors import ChannelLost, FastcopyError, ProtocolError, UnsafePeer
from fastcopy.model import Range
from fastcopy.plan.ranges import RangeSet
from fastcopy.sftp import operations, packets
from fastcopy.sftp.multiplexer import Multiplexer
from fastcopy.sftp.operation import Attempt, Conversation, StatusError
from fastcopy.sftp.streams import ReadRange, RequestSize, WriteRange
from tests.support import sftp_wire
from tests.support.sftp_wire import Sent, Wire, range_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fastcopy.sftp.operation import Steps

LOST = ChannelLost("gone", host="srv002")


@pytest.fixture
def file_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, os.urandom(100_000))
    yield fd
    os.close(fd)


def wire(queue_depth: int = 64) -> Wire:
    return Wire(Multiplexer(queue_depth=queue_depth, host="srv002"))


def begun(channel: Wire, steps: Steps[Any]) -> Conversation[Any]:
    conversation = Conversation(steps)
    channel.multiplexer.submit(conversation)
    return conversation


def writing(fd: int, span: Range, size: int = 100, done: RangeSet | None = None) -> Steps[int]:
    moved: int = yield WriteRange(b"h", fd, span, RequestSize(size), done)
    return moved


def reading(fd: int, span: Range, size: int = 100, done: RangeSet | None = None) -> Steps[int]:
    moved: int = yield ReadRange(b"h", fd, span, RequestSize(size), done)
    return moved


def burst(count: int) -> Steps[int]:
    replies = yield Attempt(*(packets.stat(b"%d" % index) for index in range(count)))
    return len(replies)


def paths_of(requests: list[Sent]) -> list[bytes]:
    return [request.body[4:] for request in requests]


# --- what is sent ---


def test_operations_overlap() -> None:
    """Each operation's request goes out without waiting for the others' replies, every one under its own id."""
    channel = wire()
    for name in (b"a", b"b", b"c"):
        begun(channel, operations.stat(name))
    requests = channel.all()
    assert paths_of(requests) == [b"a", b"b", b"c"]
    assert len({request.request_id for request in requests}) == 3
    assert channel.multiplexer.outstanding == 3


def test_no_more_than_the_queue_depth_is_outstanding(file_fd: int) -> None:
    """The depth bounds streams and short requests together; each reply makes room for one more."""
    channel = wire(queue_depth=4)
    operation = begun(channel, writing(file_fd, Range(0, 1000)))
    first = channel.all()
    assert len(first) == 4
    begun(channel, operations.stat(b"a"))
    assert channel.all() == []
    channel.feed(sftp_wire.status(first[0].request_id))
    (short,) = channel.all()
    assert (short.kind, channel.multiplexer.outstanding) == (packets.STAT, 4)
    assert not operation.finished


def test_no_more_operations_than_the_active_limit_are_under_way() -> None:
    """The next operation starts when one has ended: each may hold a handle of the server's."""
    channel = wire()
    channel.multiplexer.active_limit = 2
    operations_ = [begun(channel, operations.stat(name)) for name in (b"a", b"b", b"c")]
    first, second = channel.all()
    channel.feed(sftp_wire.attributes(second.request_id, 5))
    assert paths_of(channel.all()) == [b"c"]
    assert channel.multiplexer.finished == [operations_[1]]
    channel.feed(sftp_wire.attributes(first.request_id, 5))
    assert channel.multiplexer.finished == [operations_[1], operations_[0]]


def test_short_requests_overtake_payload(file_fd: int) -> None:
    """Opening the next file hides behind the bytes of the current one; the stream goes on where it was."""
    channel = wire()
    begun(channel, writing(file_fd, Range(0, 1000)))
    (first,) = filter(None, [channel.next()])
    assert first.kind == packets.WRITE
    begun(channel, operations.stat(b"a"))
    begun(channel, burst(2))
    kinds = [request.kind for request in channel.all()]
    assert kinds == [packets.STAT, packets.STAT, packets.STAT] + [packets.WRITE] * 9


def test_streams_go_first_in_first_out(file_fd: int) -> None:
    """One file is sent whole before the next one begins: fewer files are half done at any time."""
    channel = wire()
    begun(channel, writing(file_fd, Range(0, 300)))
    begun(channel, writing(file_fd, Range(1000, 1300)))
    assert [range_of(request)[0] for request in channel.all()] == [0, 100, 200, 1000, 1100, 1200]


def test_a_burst_cut_by_the_depth_is_sent_once(file_fd: int) -> None:
    """A burst larger than the depth goes out piece by piece; each request once, and its operation is queued once."""
    channel = wire(queue_depth=2)
    operation = begun(channel, burst(50))
    seen = []
    while not operation.finished:
        for request in channel.all():
            seen.append(request)
            channel.feed(sftp_wire.attributes(request.request_id, 1))
        assert len(channel.multiplexer._asking) <= 1
    assert paths_of(seen) == [b"%d" % index for index in range(50)]
    assert (operation.result, channel.multiplexer.finished) == (50, [operation])


def test_an_operation_that_ends_at_its_start_is_reported() -> None:
    """A local error before the first request needs no server."""

    def steps() -> Steps[None]:
        yield from ()
        raise OSError(2, "gone")

    channel = wire()
    operation = begun(channel, steps())
    assert channel.all() == []
    assert channel.multiplexer.finished == [operation]
    assert channel.multiplexer.idle


def test_ids_wrap_after_32_bits() -> None:
    """The id is a 32-bit number that starts again at 0."""
    channel = wire()
    channel.multiplexer._next_id = 0xFFFFFFFF
    operation = begun(channel, burst(2))
    requests = channel.all()
    assert [request.request_id for request in requests] == [0xFFFFFFFF, 0]
    channel.feed(b"".join(sftp_wire.status(request.request_id) for request in requests))
    assert operation.result == 2


def test_content_counts_when_it_is_acknowledged(file_fd: int) -> None:
    """`moved_bytes` grows with acknowledged writes, from a file or from memory, and with stored reads."""
    channel = wire()
    begun(channel, writing(file_fd, Range(0, 250)))
    begun(channel, iter_write(b"12345"))
    begun(channel, reading(file_fd, Range(0, 70)))
    replies = []
    for request in channel.all():
        moves = request.kind == packets.READ
        replies.append(sftp_wire.data(request.request_id, bytes(70)) if moves else sftp_wire.status(request.request_id))
    assert channel.multiplexer.moved_bytes == 0
    channel.feed(b"".join(replies))
    assert channel.multiplexer.moved_bytes == 250 + 5 + 70
    refused = begun(channel, iter_write(b"12345"))
    (request,) = channel.all()
    channel.feed(sftp_wire.status(request.request_id, sftp_wire.FAILURE))
    assert isinstance(refused.error, StatusError)
    assert channel.multiplexer.moved_bytes == 250 + 5 + 70


def iter_write(content: bytes) -> Steps[None]:
    yield packets.write(b"h", 0, content)


# --- what arrives ---


@pytest.mark.parametrize("slice_bytes", [1, 2, 3, 8, 9, 12, 13, 14, 1000])
def test_replies_may_arrive_in_any_slices(file_fd: int, slice_bytes: int) -> None:
    """Payload lands in its file and replies at their operations, however the stream is cut."""
    channel = wire()
    content = os.urandom(1000)
    listing = begun(channel, operations.realpath(b"."))
    read_ = begun(channel, reading(file_fd, Range(5000, 6000), size=300))
    (ask, *reads) = channel.all()
    arrived = sftp_wire.data(reads[1].request_id, content[300:600]) + sftp_wire.names(ask.request_id, b"/home")
    for index in (3, 0, 2):
        piece = content[index * 300 : (index + 1) * 300]
        arrived += sftp_wire.data(reads[index].request_id, piece)
    channel.feed(arrived, lambda: slice_bytes)
    assert (listing.result, read_.result) == (b"/home", 1000)
    assert os.pread(file_fd, 1000, 5000) == content


def test_payload_of_a_file_is_never_read_into_memory(file_fd: int) -> None:
    """While a reply may bring payload for a file, no more than one header is read at once."""
    channel = wire()
    begun(channel, reading(file_fd, Range(0, 100)))
    assert channel.multiplexer.read_limit() == 64 * 1024
    (request,) = channel.all()
    reply = sftp_wire.data(request.request_id, bytes(100))
    assert channel.multiplexer.read_limit() == 13
    channel.multiplexer.receive(reply[:5])
    assert channel.multiplexer.read_limit() == 8
    channel.multiplexer.receive(reply[5:13])
    assert channel.multiplexer.landing == packets.FileSlice(file_fd, 0, 100)


def test_small_reads_come_through_memory() -> None:
    """A READ without a sink is answered with its bytes."""

    def steps() -> Steps[bytes]:
        reply = yield packets.read(b"h", 0, 5)
        return operations.expect(reply, packets.Data).payload or b""

    channel = wire()
    operation = begun(channel, steps())
    (request,) = channel.all()
    channel.feed(sftp_wire.data(request.request_id, b"hello"))
    assert operation.result == b"hello"


def test_a_file_that_refuses_bytes_spoils_its_operation_only(file_fd: int) -> None:
    """The rest of the payload is thrown away, what was stored stays done, and the next reply is understood."""
    channel = wire()
    done = RangeSet()
    read_ = begun(channel, reading(file_fd, Range(0, 1000), size=500, done=done))
    other = begun(channel, operations.realpath(b"."))
    (ask, first, second) = sorted(channel.all(), key=lambda request: request.kind, reverse=True)
    reply = sftp_wire.data(first.request_id, bytes(500))
    channel.feed(reply[:213])
    assert channel.multiplexer.landing == packets.FileSlice(file_fd, 200, 300)
    error = OSError(28, "No space left on device")
    channel.multiplexer.landing_failed(error)
    channel.feed(reply[213:] + sftp_wire.names(ask.request_id, b"/home"))
    assert (other.result, read_.finished) == (b"/home", False)
    channel.feed(sftp_wire.data(second.request_id, bytes(500)))
    assert (read_.error, repr(done)) == (error, "RangeSet([0..200, 500..1000])")


def test_short_reads_are_asked_again(file_fd: int) -> None:
    """An operation whose stream had asked everything comes back to ask for the rest."""
    channel = wire()
    operation = begun(channel, reading(file_fd, Range(0, 100)))
    (request,) = channel.all()
    channel.feed(sftp_wire.data(request.request_id, b"x" * 30))
    (again,) = channel.all()
    assert range_of(again) == (30, 70)
    channel.feed(sftp_wire.data(again.request_id, b"y" * 70))
    assert (operation.result, os.pread(file_fd, 100, 0)) == (100, b"x" * 30 + b"y" * 70)


# --- what no server may send ---


def two_begun(channel: Wire, fd: int) -> tuple[list[Conversation[Any]], dict[str, Sent]]:
    """A listing, a read into a file, a read into memory and a write, all outstanding."""

    def small() -> Steps[None]:
        yield packets.read(b"h", 0, 5)

    begun_ = [
        begun(channel, operations.stat(b"a")),
        begun(channel, small()),
        begun(channel, reading(fd, Range(0, 100))),
        begun(channel, writing(fd, Range(0, 100))),
    ]
    stat, memory, read, write = channel.all()
    return begun_, {"stat": stat, "memory": memory, "read": read, "write": write}


def lie(name: str, requests: dict[str, Sent]) -> bytes:
    """Return what a lying server sends."""
    stat, memory, read, write = (requests[key].request_id for key in ("stat", "memory", "read", "write"))
    return {
        "an id nobody used": sftp_wire.status(99),
        "an answer twice": sftp_wire.status(stat, 4) * 2,
        "a length of 4": struct.pack(">IBI", 4, 101, stat) + bytes(4),
        "a length of 4 GiB": struct.pack(">IBI", 0xFFFFFFFF, 101, stat) + bytes(4),
        "a status of 256 KiB and more": struct.pack(">IBI", (256 << 10) + 1, 101, stat) + bytes(4),
        "a malformed status": sftp_wire.packet(101, stat, b"\0"),
        "a malformed answer to a write": sftp_wire.packet(101, write, b"\0\0\0\4\0\0\0\7cut"),
        "a malformed answer to a read": sftp_wire.packet(102, read, b""),
        "a type that does not exist": sftp_wire.packet(77, stat, b""),
        "a request": sftp_wire.packet(3, stat, b""),
        "data longer than its packet": struct.pack(">IBII", 9 + 50, 103, read, 51) + bytes(50),
        "data shorter than its packet": struct.pack(">IBII", 9 + 50, 103, read, 49) + bytes(50),
        "data that is cut": struct.pack(">IBI", 7, 103, read) + bytes(4),
        "data in memory longer than its packet": struct.pack(">IBII", 9 + 3, 103, memory, 4) + b"abc",
        "more into a file than asked": sftp_wire.data(read, bytes(101)),
        "4 GiB into a file": struct.pack(">IBII", 0xFFFFFFFF, 103, read, 0xFFFFFFFF - 9),
        "more into memory than asked": sftp_wire.data(memory, bytes(6)),
    }[name]


LIES = (
    *("an id nobody used", "an answer twice", "a length of 4", "a length of 4 GiB", "a status of 256 KiB and more"),
    *("a malformed status", "a malformed answer to a write", "a malformed answer to a read"),
    *("a type that does not exist", "a request", "data longer than its packet", "data shorter than its packet"),
    *("data that is cut", "data in memory longer than its packet", "more into a file than asked"),
    *("4 GiB into a file", "more into memory than asked"),
)


@pytest.mark.parametrize("name", LIES)
def test_a_lie_ends_the_channel_and_every_operation_once(file_fd: int, name: str) -> None:
    """The lie is told as ProtocolError or UnsafePeer, and `fail` ends each operation, also the one lied to, once."""
    channel = wire()
    begun_, requests = two_begun(channel, file_fd)
    with pytest.raises(FastcopyError) as caught:
        channel.feed(lie(name, requests))
    assert type(caught.value) is (UnsafePeer if "than asked" in name or "into a file" in name else ProtocolError)
    channel.multiplexer.fail(LOST)
    finished = channel.multiplexer.finished
    assert sorted(map(id, finished)) == sorted(map(id, begun_))
    assert {operation.error for operation in begun_ if not isinstance(operation.error, StatusError)} == {LOST}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_in_single_bytes_is_the_same_lie(file_fd: int, name: str) -> None:
    """However the lie is cut, it is found by its last byte, and before more than a packet is taken into memory."""
    channel = wire()
    _, requests = two_begun(channel, file_fd)
    with pytest.raises(FastcopyError):
        channel.feed(lie(name, requests), lambda: 1)
    assert channel.multiplexer.read_limit() <= 256 << 10


def test_data_that_answers_no_read_harms_its_operation_only() -> None:
    """DATA for a STAT is the wrong type, whatever its length: that operation fails, the channel lives."""
    channel = wire()
    operation = begun(channel, operations.stat(b"\0\0\0\0"))
    other = begun(channel, operations.stat(b"b"))
    first, second = channel.all()
    channel.feed(sftp_wire.data(first.request_id, b"payload") + sftp_wire.attributes(second.request_id, 5))
    assert type(operation.error) is ProtocolError
    assert (other.error, channel.multiplexer.moved_bytes) == (None, 0)


def test_an_answer_before_the_payload_was_sent_is_a_lie(file_fd: int) -> None:
    """A WRITE whose bytes are still on their way cannot be answered: it would count as done, its file be closed."""
    channel = wire()
    done = RangeSet()
    operation = begun(channel, writing(file_fd, Range(0, 100), done=done))
    sent = channel.multiplexer.next_packet()
    assert sent is not None
    request_id = int.from_bytes(sent[0][5:9], "big")
    with pytest.raises(ProtocolError):
        channel.multiplexer.receive(sftp_wire.status(request_id))
    assert (operation.finished, done.total) == (False, 0)


def test_a_reply_larger_than_256_kib_is_taken_where_it_was_asked_for() -> None:
    """A READ into memory may ask for more than other packets may hold."""

    def steps() -> Steps[int]:
        reply = yield packets.read(b"h", 0, 300_000)
        return operations.expect(reply, packets.Data).length

    channel = wire()
    operation = begun(channel, steps())
    (request,) = channel.all()
    channel.feed(sftp_wire.data(request.request_id, bytes(300_000)), lambda: 50_000)
    assert operation.result == 300_000


# --- the end ---


def test_fail_ends_everything_once_wherever_it_is(file_fd: int) -> None:
    """Outstanding, half sent, landing, waiting: each operation ends with the loss, and those not begun never begin."""
    channel = wire(queue_depth=5)
    channel.multiplexer.active_limit = 5
    landing = begun(channel, reading(file_fd, Range(0, 100)))
    outstanding = begun(channel, operations.stat(b"a"))
    half = begun(channel, burst(3))
    streaming = begun(channel, writing(file_fd, Range(0, 1000)))
    ended = begun(channel, operations.stat(b"b"))
    requests = channel.all()
    by_path = {request.body[4:]: request.request_id for request in requests if request.kind == packets.STAT}
    read_id = next((request.request_id for request in requests if request.kind == packets.READ), None)
    channel.feed(sftp_wire.attributes(by_path[b"b"], 1))
    if read_id is None:
        read_id = next(request.request_id for request in channel.all() if request.kind == packets.READ)
    channel.feed(sftp_wire.data(read_id, bytes(100))[:50])
    never = Conversation(never_begun())
    channel.multiplexer.active_limit = 0
    channel.multiplexer.submit(never)
    channel.multiplexer.fail(LOST)
    everyone = [landing, outstanding, half, streaming, ended, never]
    assert sorted(map(id, channel.multiplexer.finished)) == sorted(map(id, everyone))
    assert [operation.error for operation in everyone] == [LOST, LOST, LOST, LOST, None, LOST]
    assert (channel.multiplexer.idle, channel.multiplexer.outstanding, channel.multiplexer.landing) == (True, 0, None)


def never_begun() -> Steps[None]:
    pytest.fail("it began")
    yield packets.stat(b"never")


def test_a_loss_does_not_keep_the_frames_it_went_through(file_fd: int) -> None:
    """One error ends thousands of operations; it must not hold on to what each of them held."""
    channel = wire()
    begun(channel, burst(2))
    channel.all()
    error = ChannelLost("gone")
    channel.multiplexer.fail(error)
    assert error.__traceback__ is None
