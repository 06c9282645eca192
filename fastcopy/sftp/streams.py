"""Moving one byte range of a file: WriteRange and ReadRange, the hot path's policy.

Sans-I/O: they say which request comes next and take the replies in any order. Short replies are asked again, a
refused size drops to 32 KiB for the rest of the channel, and what was acknowledged is known at any instant, so that
a lost channel costs only its unacknowledged requests. Invariant: `done` (the caller's, if it
gave one) holds exactly the acknowledged bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastcopy.config import SAFE_REQUEST_BYTES
from fastcopy.errors import ProtocolError, SourceChanged
from fastcopy.model import Range
from fastcopy.plan.ranges import RangeSet
from fastcopy.sftp import packets
from fastcopy.sftp.operation import StatusError, refused
from fastcopy.sftp.packets import Data, FileSlice, Reply, Request, Status

#: A server may answer a READ with nothing but a success this often in a row before it counts as broken (law 5).
_EMPTY_READS_ALLOWED = 2


@dataclass(slots=True)
class RequestSize:
    """Bytes asked per request on one channel and direction; only ever shrinks."""

    request_bytes: int

    def shrink(self, request_bytes: int) -> None:
        self.request_bytes = max(1, min(self.request_bytes, request_bytes))


class _RangeStream:
    """What both directions share: cutting the range, counting what is outstanding, ending."""

    __slots__ = (
        "_again",
        "_fd",
        "_next",
        "_outstanding",
        "_prefix",
        "_size",
        "_stop",
        "_trouble",
        "done",
        "error",
        "finished",
        "result",
        "streaming",
    )

    def __init__(self, handle: bytes, fd: int, span: Range, size: RequestSize, done: RangeSet | None = None) -> None:
        self._prefix = packets.string(handle)
        self._fd = fd
        self._next = span.start
        self._stop = span.stop
        self._size = size
        self._again: list[Range] = []  # to be asked anew: after short or refused requests
        self._outstanding = 0
        self._trouble: BaseException | None = None
        self.done = RangeSet() if done is None else done
        self.streaming = True
        self.finished = len(span) == 0
        self.result: int = 0
        self.error: BaseException | None = None

    @property
    def has_requests(self) -> bool:
        return self._trouble is None and (self._next < self._stop or bool(self._again))

    def spoil(self, error: BaseException) -> None:
        self._trouble = self._trouble or error
        self._end_if_idle()

    def fail(self, error: BaseException) -> None:
        self.error, self.finished = error, True

    def _cut(self) -> FileSlice | None:
        """Return the next slice to move, or None."""
        if self._trouble is not None:
            return None
        if self._again:
            span = self._again.pop()
            if len(span) > self._size.request_bytes:
                self._again.append(Range(span.start + self._size.request_bytes, span.stop))
            length = min(len(span), self._size.request_bytes)
            self._outstanding += 1
            return FileSlice(self._fd, span.start, length)
        offset = self._next
        if offset >= self._stop:
            return None
        length = min(self._size.request_bytes, self._stop - offset)
        self._next = offset + length
        self._outstanding += 1
        return FileSlice(self._fd, offset, length)

    def _moved(self, start: int, length: int) -> None:
        self.done.add(Range(start, start + length))
        self.result += length

    def _end_if_idle(self) -> None:
        if self._outstanding:
            return
        if self._trouble is not None:
            self.error, self.finished = self._trouble, True
        elif self._next >= self._stop and not self._again:
            self.finished = True


class WriteRange(_RangeStream):
    """Write `span` of the local file `fd` to the same place of the remote `handle`. Result: bytes written.

    Ends with StatusError when the server refuses a WRITE of 32 KiB or less, or says why (permission, no such file).
    """

    __slots__ = ("_latest", "_spoilt")

    def __init__(self, handle: bytes, fd: int, span: Range, size: RequestSize, done: RangeSet | None = None) -> None:
        super().__init__(handle, fd, span, size, done)
        self._latest: FileSlice | None = None
        self._spoilt: FileSlice | None = None  # what the server got here is not the file's: never `done`

    def next_request(self) -> Request | None:
        payload = self._latest = self._cut()
        return None if payload is None else packets.write_from(self._prefix, payload)

    def spoil(self, error: BaseException) -> None:
        self._spoilt = self._latest  # payload is sent one request at a time: only the latest can fail
        super().spoil(error)

    def deliver(self, request: Request, reply: Reply) -> None:
        payload = request.payload
        assert payload is not None
        self._outstanding -= 1
        if type(reply) is not Status:
            self._trouble = self._trouble or ProtocolError(f"a WRITE was answered with {type(reply).__name__}")
        elif reply.code == packets.OK:
            if payload is not self._spoilt:
                self._moved(payload.offset, payload.length)
        elif reply.code in (packets.FAILURE, packets.BAD_MESSAGE) and payload.length > SAFE_REQUEST_BYTES:
            self._size.shrink(SAFE_REQUEST_BYTES)
            self._again.append(Range(payload.offset, payload.offset + payload.length))
        else:
            self._trouble = self._trouble or StatusError(reply.code, reply.message)
        self._end_if_idle()


class ReadRange(_RangeStream):
    """Read `span` of the remote `handle` into the same place of the local file `fd`. Result: bytes read.

    Ends with SourceChanged when the file ends before `span` does, StatusError when the server refuses.
    """

    __slots__ = ("_empty_reads", "_short_bytes", "_short_stop")

    def __init__(self, handle: bytes, fd: int, span: Range, size: RequestSize, done: RangeSet | None = None) -> None:
        super().__init__(handle, fd, span, size, done)
        self._empty_reads = 0
        self._short_bytes = 0  # how much a short reply brought
        self._short_stop = -1  # and where it ended

    def next_request(self) -> Request | None:
        sink = self._cut()
        return None if sink is None else packets.read_into(self._prefix, sink)

    def deliver(self, request: Request, reply: Reply) -> None:
        sink = request.sink
        assert sink is not None
        self._outstanding -= 1
        if type(reply) is Data:
            self._take(sink, reply.length)
        elif type(reply) is Status and reply.code == packets.EOF:
            self._trouble = self._trouble or SourceChanged("it ended early", offset=sink.offset)
        elif (
            type(reply) is Status
            and reply.code in (packets.FAILURE, packets.BAD_MESSAGE)
            and sink.length > SAFE_REQUEST_BYTES
        ):
            self._size.shrink(SAFE_REQUEST_BYTES)
            self._again.append(Range(sink.offset, sink.offset + sink.length))
        else:
            try:
                self._trouble = self._trouble or refused(reply)
            except ProtocolError as exc:
                self._trouble = exc
        self._end_if_idle()

    def _take(self, sink: FileSlice, length: int) -> None:
        if length:
            self._moved(sink.offset, length)
            self._empty_reads = 0
            if sink.offset == self._short_stop:
                # There was more: so the reply was short because the server serves no more at once. From now on ask for
                # no more than that, as OpenSSH's sftp does. (A reply at the end of a file that shrank tells nothing.)
                self._size.shrink(max(self._short_bytes, 4096))
                self._short_stop = -1
            if length == sink.length:
                return
            self._short_bytes, self._short_stop = length, sink.offset + length
        else:
            self._empty_reads += 1
            if self._empty_reads > _EMPTY_READS_ALLOWED:
                self._trouble = self._trouble or ProtocolError("READ is answered with no bytes again and again")
                return
        self._again.append(Range(sink.offset + length, sink.offset + sink.length))
