"""Conversations: a generator is resumed with what it asked, whatever the order of the replies, and always ends once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fastcopy.errors import ChannelLost, ProtocolError
from fastcopy.model import Attributes, Range
from fastcopy.sftp import packets
from fastcopy.sftp.operation import Attempt, Conversation, StatusError, refused
from fastcopy.sftp.operations import expect
from fastcopy.sftp.packets import Data, Handle, Reply, Request, Status
from fastcopy.sftp.streams import ReadRange, RequestSize, WriteRange

if TYPE_CHECKING:
    from fastcopy.sftp.operation import Ask, Steps

OK = Status(packets.OK, "")
FAILURE = Status(packets.FAILURE, "Failure")
A, B, C = packets.stat(b"a"), packets.stat(b"b"), packets.stat(b"c")
LOST = ChannelLost("gone", host="h")


class Recorder:
    """Steps that ask `asks` one after the other and note what came of each."""

    def __init__(self, *asks: Ask) -> None:
        self.asks = asks
        self.answers: list[Any] = []
        self.freed = 0

    def steps(self) -> Steps[str]:
        try:
            for ask in self.asks:
                try:
                    self.answers.append((yield ask))
                except StatusError as exc:
                    self.answers.append((exc.code, exc.message))
            return "done"
        finally:
            self.freed += 1


def started(*asks: Ask) -> tuple[Recorder, Conversation[str]]:
    recorder = Recorder(*asks)
    conversation = Conversation(recorder.steps())
    conversation.start()
    return recorder, conversation


def taken(conversation: Conversation[Any]) -> list[Request]:
    """Take everything it has to send now."""
    requests = []
    while (request := conversation.next_request()) is not None:
        requests.append(request)
    return requests


def stream(length: int) -> WriteRange:
    return WriteRange(b"h", 0, Range(0, length), RequestSize(10))


def test_steps_do_not_begin_before_start() -> None:
    """Making a conversation runs nothing of it; `start` runs it to its first question."""
    recorder = Recorder(A)
    conversation = Conversation(recorder.steps())
    assert not conversation.has_requests
    conversation.start()
    assert taken(conversation) == [A]
    assert (conversation.finished, recorder.answers) == (False, [])


def test_a_request_is_answered_with_its_reply() -> None:
    """The reply is the value of the yield, and the generator's return value the result."""
    recorder, conversation = started(A, B)
    assert taken(conversation) == [A]
    conversation.deliver(A, Attributes(size=7))
    assert taken(conversation) == [B]
    conversation.deliver(B, OK)
    assert recorder.answers == [Attributes(size=7), OK]
    assert (conversation.finished, conversation.result, conversation.error) == (True, "done", None)


def test_a_refusal_is_raised_where_it_was_asked() -> None:
    """A status other than OK is a StatusError at the yield, which may go on from there."""
    recorder, conversation = started(A, B)
    taken(conversation)
    conversation.deliver(A, FAILURE)
    assert recorder.answers == [(4, "Failure")]
    assert taken(conversation) == [B]


def test_what_steps_raise_is_the_error() -> None:
    """An exception that leaves the steps ends the conversation with it."""

    def steps() -> Steps[None]:
        yield A
        raise ValueError("ours")

    conversation = Conversation(steps())
    conversation.start()
    taken(conversation)
    conversation.deliver(A, OK)
    assert (conversation.finished, repr(conversation.error)) == (True, "ValueError('ours')")


def test_steps_that_end_or_fail_at_once() -> None:
    """Steps may return or raise before they ask anything."""

    def returns() -> Steps[int]:
        yield from ()
        return 5

    def raises() -> Steps[int]:
        yield from ()
        raise OSError(2, "gone")

    conversation = Conversation(returns())
    conversation.start()
    assert (conversation.finished, conversation.result) == (True, 5)
    conversation = Conversation(raises())
    conversation.start()
    assert (conversation.finished, type(conversation.error)) == (True, FileNotFoundError)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_burst_is_answered_in_the_order_asked(order: tuple[int, int, int]) -> None:
    """All requests of a list go out at once; the replies come back in its order, however they arrived."""
    recorder, conversation = started([A, B, C])
    requests = taken(conversation)
    assert requests == [A, B, C]
    replies: list[Reply] = [OK, Attributes(size=1), Handle(b"h")]
    for index in order:
        assert recorder.answers == []
        conversation.deliver(requests[index], replies[index])
    assert recorder.answers == [replies]


def test_one_refusal_of_a_burst_is_raised_once_all_is_answered() -> None:
    """Nothing of a burst is outstanding any more when its refusal is raised; the first in its order counts."""
    recorder, conversation = started([A, B, C])
    requests = taken(conversation)
    conversation.deliver(requests[2], Status(3, "later"))
    conversation.deliver(requests[1], Status(2, "first"))
    assert recorder.answers == []
    conversation.deliver(requests[0], OK)
    assert recorder.answers == [(2, "first")]


def test_the_refusals_of_an_attempt_are_answers() -> None:
    """Attempt raises nothing: statuses come back among the replies."""
    recorder, conversation = started(Attempt(A, B))
    requests = taken(conversation)
    conversation.deliver(requests[1], OK)
    conversation.deliver(requests[0], FAILURE)
    assert recorder.answers == [[FAILURE, OK]]


def test_an_empty_burst_is_answered_at_once() -> None:
    """Asking nothing costs no round trip."""
    recorder, conversation = started([], Attempt(), A)
    assert recorder.answers == [[], []]
    assert taken(conversation) == [A]


def test_the_same_request_twice_in_a_burst_is_answered_twice() -> None:
    """A burst may hold one request object more than once, and still ends."""
    recorder, conversation = started([A, A])
    for request, size in zip(taken(conversation), (1, 2), strict=True):
        conversation.deliver(request, Attributes(size=size))
    assert recorder.answers == [[Attributes(size=1), Attributes(size=2)]]


def test_a_stream_is_answered_with_its_result() -> None:
    """While a stream runs the conversation is `streaming`, asks what it asks, and goes on with its result."""
    recorder, conversation = started(stream(25), A)
    assert conversation.streaming
    requests = taken(conversation)
    assert [request.payload.length for request in requests if request.payload] == [10, 10, 5]
    for request in reversed(requests):
        conversation.deliver(request, OK)
    assert recorder.answers == [25]
    assert (conversation.streaming, taken(conversation)) == (False, [A])


def test_one_stream_may_follow_another() -> None:
    """A stream that ends by making the steps ask the next stream leaves the conversation streaming."""
    recorder, conversation = started(stream(10), stream(5))
    (request,) = taken(conversation)
    conversation.deliver(request, OK)
    assert conversation.streaming
    (request,) = taken(conversation)
    conversation.deliver(request, OK)
    assert (recorder.answers, conversation.finished) == ([10, 5], True)


def test_an_empty_range_needs_no_request() -> None:
    """A stream of nothing is over before it begins."""
    recorder, conversation = started(stream(0), A)
    assert recorder.answers == [0]
    assert taken(conversation) == [A]


def test_the_error_of_a_stream_is_raised_where_it_was_asked() -> None:
    """A stream that ends with an error raises it at the yield, once nothing of it is outstanding."""
    recorder, conversation = started(stream(20))
    first, second = taken(conversation)
    conversation.deliver(first, Status(packets.PERMISSION_DENIED, "no"))
    assert recorder.answers == []
    conversation.deliver(second, OK)
    assert recorder.answers == [(3, "no")]


def test_a_spoilt_stream_ends_when_all_is_answered() -> None:
    """A local failure inside a stream is raised at the yield after the outstanding replies, and asks no more."""
    seen: list[BaseException] = []

    def steps() -> Steps[str]:
        try:
            yield stream(30)
        except OSError as exc:
            seen.append(exc)
        return "went on"

    conversation = Conversation(steps())
    conversation.start()
    first, second = conversation.next_request(), conversation.next_request()
    error = OSError(5, "Input/output error")
    conversation.spoil(error)
    assert (conversation.has_requests, conversation.next_request()) == (False, None)
    assert first is not None
    assert second is not None
    conversation.deliver(second, OK)
    assert seen == []
    conversation.deliver(first, OK)
    assert (seen, conversation.result) == ([error], "went on")


def test_only_payload_can_be_spoilt() -> None:
    """Spoiling a conversation that moves no payload is a defect, and told as one."""
    _, conversation = started(A)
    with pytest.raises(ProtocolError):
        conversation.spoil(OSError())


@pytest.mark.parametrize("ask", [A, [A, B], stream(20)], ids=["request", "burst", "stream"])
def test_a_lost_channel_is_raised_where_it_was_asked(ask: Ask) -> None:
    """`fail` raises the loss at the yield, so that `finally` clauses run; nothing is asked any more."""
    recorder, conversation = started(ask, C)
    conversation.next_request()
    conversation.fail(LOST)
    assert (conversation.finished, conversation.error, recorder.freed) == (True, LOST, 1)
    assert taken(conversation) == []


def test_what_never_began_never_begins() -> None:
    """Failing a conversation that was not started runs nothing of it."""
    recorder = Recorder(A)
    conversation = Conversation(recorder.steps())
    conversation.fail(LOST)
    assert (conversation.finished, conversation.error, recorder.freed) == (True, LOST, 0)


def test_clean_up_that_asks_a_dead_channel_is_told_the_same_again() -> None:
    """Nested clean-up that asks the server while the channel is lost still runs to its end, the local part included."""
    freed: list[str] = []

    def inner() -> Steps[None]:
        try:
            yield A
        finally:
            yield B
            freed.append("never: the server cannot be asked")

    def outer() -> Steps[None]:
        try:
            try:
                yield from inner()
            finally:
                yield C
        finally:
            freed.append("descriptor")

    conversation = Conversation(outer())
    conversation.start()
    taken(conversation)
    conversation.fail(LOST)
    assert (conversation.finished, conversation.error) == (True, LOST)
    assert freed == ["descriptor"]


def test_steps_that_ask_a_dead_channel_for_ever_are_given_up() -> None:
    """A defect in one conversation does not keep the others of its channel from ending."""

    def steps() -> Steps[None]:
        while True:
            try:
                yield A
            except ChannelLost:
                continue

    conversation = Conversation(steps())
    conversation.start()
    conversation.fail(LOST)
    assert (conversation.finished, conversation.error) == (True, LOST)


def test_steps_may_answer_a_lost_channel_with_a_result() -> None:
    """Steps that catch the loss and return have a result."""

    def steps() -> Steps[str]:
        try:
            yield A
        except ChannelLost:
            return "left alone"
        return "answered"

    conversation = Conversation(steps())
    conversation.start()
    conversation.fail(LOST)
    assert (conversation.result, conversation.error) == ("left alone", None)


def test_a_reply_of_the_wrong_type_is_named() -> None:
    """`refused` and `expect` turn a status into StatusError and anything else into a ProtocolError."""
    error = refused(Status(3, "no"))
    assert (error.code, error.message, str(error)) == (3, "no", "status 3: no")
    with pytest.raises(ProtocolError, match=r"wrong type \(Data\)"):
        refused(Data(b"", 0))
    assert expect(Handle(b"h"), Handle) == Handle(b"h")
    with pytest.raises(StatusError):
        expect(OK, Handle)


def test_a_read_stream_takes_its_replies_through_a_conversation() -> None:
    """Data replies reach the stream that asked, short ones make it ask again."""
    recorder = Recorder(ReadRange(b"h", 0, Range(0, 10), RequestSize(10)))
    conversation = Conversation(recorder.steps())
    conversation.start()
    (request,) = taken(conversation)
    conversation.deliver(request, Data(None, 4))
    (again,) = taken(conversation)
    assert again.sink is not None
    assert (again.sink.offset, again.sink.length) == (4, 6)
    conversation.deliver(again, Data(None, 6))
    assert recorder.answers == [10]
