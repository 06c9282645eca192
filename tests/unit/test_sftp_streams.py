"""Moving a range: what is asked next, what counts as done, and how refusals, short replies and local failures end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastcopy.config import SAFE_REQUEST_BYTES
from fastcopy.errors import ChannelLost, ProtocolError, SourceChanged
from fastcopy.model import Attributes, Range
from fastcopy.plan.ranges import RangeSet
from fastcopy.sftp import packets
from fastcopy.sftp.operation import StatusError
from fastcopy.sftp.packets import Data, FileSlice, Reply, Request, Status
from fastcopy.sftp.streams import ReadRange, RequestSize, WriteRange

LARGE = SAFE_REQUEST_BYTES * 4
OK = Status(packets.OK, "")
EOF = Status(packets.EOF, "")
FAILURE = Status(packets.FAILURE, "Failure")
BAD_MESSAGE = Status(packets.BAD_MESSAGE, "Bad message")
FD = 7
Stream = WriteRange | ReadRange
Make = Callable[..., Stream]


def slice_of(request: Request) -> FileSlice:
    piece = request.payload or request.sink
    assert piece is not None
    assert piece.fd == FD
    return piece


def requests_of(stream: Stream) -> list[Request]:
    requests = []
    while (request := stream.next_request()) is not None:
        requests.append(request)
    return requests


def spans(requests: list[Request]) -> list[tuple[int, int]]:
    return [(slice_of(request).offset, slice_of(request).length) for request in requests]


def write(span: Range, size: int | RequestSize = 10, done: RangeSet | None = None) -> WriteRange:
    return WriteRange(b"hh", FD, span, size if isinstance(size, RequestSize) else RequestSize(size), done)


def read(span: Range, size: int | RequestSize = 10, done: RangeSet | None = None) -> ReadRange:
    return ReadRange(b"hh", FD, span, size if isinstance(size, RequestSize) else RequestSize(size), done)


@pytest.mark.parametrize("make", [write, read])
def test_a_range_is_cut_into_requests(make: Make) -> None:
    """The requests cover the span in order, each of the request size but the last."""
    stream = make(Range(5, 30))
    requests = requests_of(stream)
    assert spans(requests) == [(5, 10), (15, 10), (25, 5)]
    assert {request.kind for request in requests} == {packets.WRITE if make is write else packets.READ}
    assert all(request.body.startswith(packets.string(b"hh")) for request in requests)
    assert (stream.has_requests, stream.finished) == (False, False)


@pytest.mark.parametrize("make", [write, read])
def test_done_holds_what_was_acknowledged_at_any_instant(make: Make) -> None:
    """Only what was answered well is in the caller's set, in whatever order; the result counts the same bytes."""
    done = RangeSet([Range(0, 3)])
    stream = make(Range(5, 30), done=done)
    first, second, third = requests_of(stream)
    for request, expected in (
        (third, "RangeSet([0..3, 25..30])"),
        (first, "RangeSet([0..3, 5..15, 25..30])"),
        (second, "RangeSet([0..3, 5..30])"),
    ):
        stream.deliver(request, OK if make is write else Data(None, slice_of(request).length))
        assert repr(done) == expected
    assert (stream.finished, stream.result, stream.error) == (True, 25, None)


@pytest.mark.parametrize("make", [write, read])
def test_an_empty_range_is_over_at_once(make: Make) -> None:
    """Nothing to move needs no request."""
    stream = make(Range(9, 9))
    assert (stream.finished, stream.result, stream.has_requests, stream.next_request()) == (True, 0, False, None)


@pytest.mark.parametrize("make", [write, read])
@pytest.mark.parametrize("refusal", [FAILURE, BAD_MESSAGE])
def test_a_refused_size_drops_to_32_kib(make: Make, refusal: Status) -> None:
    """A large request that is refused is asked again in pieces of 32 KiB, and so is everything after it."""
    size = RequestSize(LARGE)
    stream = make(Range(0, 3 * LARGE), size)
    first = stream.next_request()
    second = stream.next_request()
    assert first is not None
    assert second is not None
    stream.deliver(second, refusal)
    assert (size.request_bytes, stream.done.total) == (SAFE_REQUEST_BYTES, 0)
    rest = requests_of(stream)
    assert {length for _, length in spans(rest)} == {SAFE_REQUEST_BYTES}
    assert sorted(offset for offset, _ in spans(rest)) == list(range(LARGE, 3 * LARGE, SAFE_REQUEST_BYTES))
    for request in [first, *rest]:
        stream.deliver(request, OK if make is write else Data(None, slice_of(request).length))
    assert (stream.finished, stream.error, repr(stream.done)) == (True, None, f"RangeSet([0..{3 * LARGE}])")


@pytest.mark.parametrize("make", [write, read])
def test_a_small_request_that_is_refused_fails(make: Make) -> None:
    """At 32 KiB the size is not to blame: the refusal ends the stream once all is answered, and no more is asked."""
    stream = make(Range(0, 10 * SAFE_REQUEST_BYTES), SAFE_REQUEST_BYTES)
    first, second = stream.next_request(), stream.next_request()
    assert first is not None
    assert second is not None
    stream.deliver(first, FAILURE)
    assert (stream.finished, stream.has_requests, stream.next_request()) == (False, False, None)
    stream.deliver(second, OK if make is write else Data(None, SAFE_REQUEST_BYTES))
    assert stream.finished
    assert isinstance(stream.error, StatusError)
    assert (stream.error.code, stream.done.total) == (packets.FAILURE, SAFE_REQUEST_BYTES)


@pytest.mark.parametrize("make", [write, read])
def test_a_refusal_that_says_why_is_not_tried_again(make: Make) -> None:
    """Permission and the like do not depend on the size."""
    size = RequestSize(LARGE)
    stream = make(Range(0, LARGE), size)
    (request,) = requests_of(stream)
    stream.deliver(request, Status(packets.PERMISSION_DENIED, "no"))
    assert isinstance(stream.error, StatusError)
    assert (stream.error.code, size.request_bytes) == (packets.PERMISSION_DENIED, LARGE)


@pytest.mark.parametrize("make", [write, read])
@pytest.mark.parametrize("reply", [Attributes(), packets.Handle(b"h"), packets.Names(()), packets.Extended(b"")])
def test_an_answer_of_the_wrong_type_is_a_protocol_error(make: Make, reply: Reply) -> None:
    """Nobody's bytes count as moved because of an answer to something else."""
    stream = make(Range(0, 10))
    (request,) = requests_of(stream)
    stream.deliver(request, reply)
    assert (type(stream.error), stream.finished, stream.done.total) == (ProtocolError, True, 0)


def test_data_is_no_answer_to_a_write_nor_success_to_a_read() -> None:
    """Each direction knows one kind of success."""
    for stream, reply in ((write(Range(0, 10)), Data(b"0123456789", 10)), (read(Range(0, 10)), OK)):
        (request,) = requests_of(stream)
        stream.deliver(request, reply)
        assert stream.error is not None
        assert stream.done.total == 0


@pytest.mark.parametrize("make", [write, read])
def test_the_first_trouble_counts(make: Make) -> None:
    """What follows from a failure does not hide it."""
    stream = make(Range(0, 30))
    first, second, third = requests_of(stream)
    stream.deliver(first, Status(packets.NO_SUCH_FILE, "first"))
    stream.deliver(second, Attributes())
    stream.deliver(third, Status(packets.PERMISSION_DENIED, "last"))
    assert str(stream.error) == "status 2: first"


@pytest.mark.parametrize("make", [write, read])
def test_a_lost_channel_ends_a_stream_at_once(make: Make) -> None:
    """`fail` does not wait for replies that will not come; what was acknowledged stays done."""
    stream = make(Range(0, 20))
    first, _ = requests_of(stream)
    stream.deliver(first, OK if make is write else Data(None, 10))
    lost = ChannelLost("gone")
    stream.fail(lost)
    assert (stream.finished, stream.error, repr(stream.done)) == (True, lost, "RangeSet([0..10])")


def test_a_spoilt_write_is_never_done() -> None:
    """The request whose payload could not be read went out with zeros: its OK acknowledges nothing of the file."""
    stream = write(Range(0, 30))
    first, second = stream.next_request(), stream.next_request()
    assert first is not None
    assert second is not None
    error = OSError(5, "Input/output error")
    stream.spoil(error)
    assert (stream.finished, stream.next_request()) == (False, None)
    stream.deliver(second, OK)
    stream.deliver(first, OK)
    assert (stream.finished, stream.error, repr(stream.done)) == (True, error, "RangeSet([0..10])")


def test_a_spoilt_read_keeps_what_is_in_the_file() -> None:
    """When the local file refuses bytes, those before the refusal count."""
    stream = read(Range(0, 20))
    first, second = requests_of(stream)
    error = OSError(28, "No space left on device")
    stream.spoil(error)
    stream.deliver(first, Data(None, 4))
    stream.deliver(second, Data(None, 0))
    assert (stream.finished, stream.error, repr(stream.done)) == (True, error, "RangeSet([0..4])")


# --- reading ---


def test_a_short_read_is_asked_again() -> None:
    """The rest of a short reply is asked for before anything further."""
    stream = read(Range(0, 40))
    first = stream.next_request()
    assert first is not None
    stream.deliver(first, Data(None, 3))
    assert spans(requests_of(stream)) == [(3, 7), (10, 10), (20, 10), (30, 10)]


def test_a_server_that_serves_less_at_once_is_asked_for_less() -> None:
    """Once the rest of a short reply brought more, requests shrink to what the server serves, 4 KiB at least."""
    for served, expected in ((20_000, 20_000), (100, 4096)):
        size = RequestSize(LARGE)
        stream = read(Range(0, 3 * LARGE), size)
        first = stream.next_request()
        assert first is not None
        stream.deliver(first, Data(None, served))
        assert size.request_bytes == LARGE
        rest = stream.next_request()
        assert rest is not None
        stream.deliver(rest, Data(None, served))
        assert size.request_bytes == expected


def test_a_file_that_shrank_does_not_slow_its_channel_down() -> None:
    """A short reply at a file's new end says nothing of the server: later files are asked for as before."""
    size = RequestSize(LARGE)
    stream = read(Range(0, 2 * LARGE), size)
    first, second = requests_of(stream)
    stream.deliver(first, Data(None, 10))
    (rest,) = requests_of(stream)
    stream.deliver(rest, EOF)
    stream.deliver(second, EOF)
    assert (type(stream.error), size.request_bytes, stream.done.total) == (SourceChanged, LARGE, 10)


def test_a_file_that_ends_early_changed() -> None:
    """EOF before the end of the span is SourceChanged, with the place."""
    stream = read(Range(0, 20))
    first, second = requests_of(stream)
    stream.deliver(second, EOF)
    stream.deliver(first, Data(None, 10))
    assert isinstance(stream.error, SourceChanged)
    assert stream.error.offset == 10


def test_a_server_that_answers_nothing_again_and_again_is_broken() -> None:
    """Empty successes are asked again twice, then end the stream; progress in between starts the count anew."""
    stream = read(Range(0, 20))
    for length in (0, 0, 10, 0, 0):
        request = stream.next_request()
        assert request is not None
        stream.deliver(request, Data(None, length))
        assert not stream.finished
    request = stream.next_request()
    assert request is not None
    stream.deliver(request, Data(None, 0))
    assert (stream.finished, type(stream.error)) == (True, ProtocolError)


def test_one_byte_at_a_time_ends_well() -> None:
    """The shortest possible replies still bring every byte."""
    stream = read(Range(0, 50), 20)
    while not stream.finished:
        request = stream.next_request()
        assert request is not None
        stream.deliver(request, Data(None, 1))
    assert (stream.error, repr(stream.done)) == (None, "RangeSet([0..50])")


def test_a_request_size_only_shrinks() -> None:
    """Nothing makes requests larger again, or empty."""
    size = RequestSize(100)
    for wanted, expected in ((200, 100), (50, 50), (60, 50), (0, 1)):
        size.shrink(wanted)
        assert size.request_bytes == expected
