"""What runs on an SFTP channel: operations, written as generators that ask and are answered.

    def size_of(path: bytes) -> Steps[int]:
        attributes = yield packets.stat(path)
        return attributes.size or 0

A step yields one Request (answered with its reply), a list of requests (a burst sent at once, answered with the list
of their replies) or an Operation (a stream such as WriteRange, answered with its result). A status other than OK is
raised inside the generator as StatusError. Sans-I/O: multiplexer.py carries the packets, so that thousands
of operations overlap on one channel. Invariant: a generator is resumed only when nothing it asked is outstanding.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, Protocol, TypeVar

from fastcopy.errors import ProtocolError
from fastcopy.sftp import packets
from fastcopy.sftp.packets import Reply, Request, Status

T = TypeVar("T")

#: How often one conversation may ask again while it is told that its channel is gone. Source: our choice; each nested
#: `finally` or `except` that asks for something counts one.
_CLEAN_UPS_ALLOWED = 64


class StatusError(Exception):
    """A server's answer other than OK: `code` and its `message`. The engine turns it into a FileError."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"status {code}: {message}")
        self.code = code
        self.message = message


class Operation(Protocol):
    """A sans-I/O conversation of many requests, driven by a channel from one thread."""

    #: True while it has a long run of payload to send, which short requests of others may overtake.
    streaming: bool
    #: True once `result` or `error` is set; nothing of it is outstanding then.
    finished: bool
    result: Any
    error: BaseException | None

    @property
    def has_requests(self) -> bool:
        """Whether `next_request` has one to give now."""
        ...

    def next_request(self) -> Request | None:
        """Return the next request to send; None when it must wait for replies or has ended."""
        ...

    def deliver(self, request: Request, reply: Reply) -> None:
        """Take the reply to one of its requests, in any order."""
        ...

    def spoil(self, error: BaseException) -> None:
        """Give up because of `error` on this side (a local read or write): ask no more, end when all is answered."""
        ...

    def fail(self, error: BaseException) -> None:
        """End at once: the channel is gone and no reply will come."""
        ...


class Attempt:
    """A burst whose refusals are answers too: all replies come back, statuses included, and nothing is raised."""

    __slots__ = ("requests",)

    def __init__(self, *requests: Request) -> None:
        self.requests = list(requests)


Ask = Request | list[Request] | Attempt | Operation
Steps = Generator[Ask, Any, T]


class Conversation(Generic[T]):
    """The Operation that a generator of steps describes. Local clean-up belongs into its `finally` clauses."""

    __slots__ = (
        "_asked",
        "_missing",
        "_raises",
        "_replies",
        "_steps",
        "_stream",
        "error",
        "finished",
        "result",
        "streaming",
        "unsent",
    )

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._asked: list[Request] | None = None  # the requests of a burst, to put replies in order
        self._replies: list[Reply | None] = []
        self._missing = 0  # how many of them are None
        self._raises = True
        self._stream: Operation | None = None
        #: Requests of its own to be sent now, the next one last. The channel takes them from here: it is the hot path.
        self.unsent: list[Request] = []
        self.streaming = False
        self.finished = False
        self.result: T | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Run to the first question."""
        self._resume(None)

    @property
    def has_requests(self) -> bool:
        return self._stream.has_requests if self._stream is not None else bool(self.unsent)

    def next_request(self) -> Request | None:
        if self._stream is not None:
            return self._stream.next_request()
        return self.unsent.pop() if self.unsent else None

    def deliver(self, request: Request, reply: Reply) -> None:
        stream = self._stream
        if stream is not None:
            stream.deliver(request, reply)
            if stream.finished:
                self._end_stream(stream)
        elif self._asked is None:
            if type(reply) is Status and reply.code != packets.OK:
                self._throw(StatusError(reply.code, reply.message))
            else:
                self._resume(reply)
        else:
            self._collect(request, reply)

    def spoil(self, error: BaseException) -> None:
        if self._stream is None:
            raise ProtocolError("only a stream has payload that can be spoilt")
        self._stream.spoil(error)
        if self._stream.finished:
            self._end_stream(self._stream)

    def fail(self, error: BaseException) -> None:
        if self._stream is not None:
            self._stream.fail(error)
        self._stream = None
        for _ in range(_CLEAN_UPS_ALLOWED):  # clean-up that asks the dead channel is told the same again
            try:
                self._steps.throw(error)
            except StopIteration as stop:
                self._finish(result=stop.value)
                return
            except BaseException as exc:
                self._finish(error=exc)
                return
        self._finish(error=error)

    def _collect(self, request: Request, reply: Reply) -> None:
        replies = self._replies
        for index, candidate in enumerate(self._asked or ()):
            if candidate is request and replies[index] is None:
                replies[index] = reply
                break
        self._missing -= 1
        if self._missing:
            return
        for reply_ in replies if self._raises else ():
            if type(reply_) is Status and reply_.code != packets.OK:
                self._throw(StatusError(reply_.code, reply_.message))
                return
        self._resume(replies)

    def _end_stream(self, stream: Operation) -> None:
        self._stream, self.streaming = None, False
        if stream.error is not None:
            self._throw(stream.error)
        else:
            self._resume(stream.result)

    def _resume(self, answer: Any) -> None:
        try:
            self._ask(self._steps.send(answer))
        except StopIteration as stop:
            self._finish(result=stop.value)
        except BaseException as exc:
            self._finish(error=exc)

    def _throw(self, error: BaseException) -> None:
        try:
            self._ask(self._steps.throw(error))
        except StopIteration as stop:
            self._finish(result=stop.value)
        except BaseException as exc:
            self._finish(error=exc)

    def _ask(self, ask: Ask) -> None:
        if isinstance(ask, Request):
            self._asked, self.unsent = None, [ask]
        elif isinstance(ask, list):
            self._burst(ask, raises=True)
        elif isinstance(ask, Attempt):
            self._burst(ask.requests, raises=False)
        elif ask.finished:  # nothing to move: an empty range
            self._end_stream(ask)
        else:
            self._stream, self.streaming = ask, True

    def _burst(self, requests: list[Request], *, raises: bool) -> None:
        self._asked, self._raises, self.unsent = requests, raises, requests[::-1]
        self._missing = len(requests)
        self._replies = [None] * self._missing
        if not requests:
            self._resume([])

    def _finish(self, *, result: T | None = None, error: BaseException | None = None) -> None:
        self.result, self.error, self.finished = result, error, True
        self.unsent = []


def refused(reply: Reply) -> StatusError:
    """Return the error for a reply of a type nobody asked for, or of a status that is no success."""
    if isinstance(reply, Status):
        return StatusError(reply.code, reply.message)
    raise ProtocolError(f"an answer of the wrong type ({type(reply).__name__})")
