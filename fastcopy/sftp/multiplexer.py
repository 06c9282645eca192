"""Many operations over one SFTP channel: ids, the queue depth, and what comes next in both directions.

Sans-I/O, driven from one thread (pump.py): `next_packet` gives what to send, `read_limit`/`receive`/`landing` take
what arrives. Owns which request waits for which reply. Invariants: at most `queue_depth` requests are outstanding;
payload of a READ with a sink never passes through this object's memory; every id is answered once or the channel ends.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING

from fastcopy.errors import ProtocolError, UnsafePeer
from fastcopy.sftp.packets import (
    DATA,
    DATA_HEADER_BYTES,
    MAX_PACKET_BYTES,
    OK,
    READ,
    Data,
    FileSlice,
    Reply,
    Request,
    Status,
    decode,
    header,
)

if TYPE_CHECKING:
    from typing import Any

    from fastcopy.sftp.operation import Conversation

#: Bytes read at once while no file payload is expected: a few hundred status replies.
_SMALL_READ_BYTES = 64 * 1024
_HEADER = struct.Struct(">IBI")
_DATA_HEADER = struct.Struct(">IBII")


class Multiplexer:
    """The sans-I/O state of one SFTP channel after its handshake."""

    def __init__(self, *, queue_depth: int, host: str) -> None:
        """Make an idle channel.

        Args:
            queue_depth: most requests outstanding at once.
            host: for error messages.
        """
        self.queue_depth = queue_depth
        #: Most operations under way at once; each may hold one handle of the server's.
        self.active_limit = queue_depth
        self.host = host
        #: Operations that ended since the caller last emptied this.
        self.finished: list[Conversation[Any]] = []
        #: Bytes of file content acknowledged (sent) or stored (received) so far.
        self.moved_bytes = 0
        #: Where the payload that arrives next goes, and how much of it; None while there is none.
        self.landing: FileSlice | None = None
        self._pending: dict[int, tuple[Conversation[Any], Request]] = {}
        self._waiting: deque[Conversation[Any]] = deque()  # not started
        self._asking: deque[Conversation[Any]] = deque()  # short requests to send
        self._streaming: deque[Conversation[Any]] = deque()  # payload to send, first in first out
        self._active = 0
        self._sinks = 0  # outstanding requests whose reply goes into a file
        self._sending: int | None = None  # the request whose payload is on its way
        self._next_id = 0
        self._buffer = b""
        self._landing_for: tuple[Conversation[Any], Request, int] | None = None
        self._skip_bytes = 0  # payload of a spoilt landing, still to be thrown away

    @property
    def outstanding(self) -> int:
        """Requests sent and not answered."""
        return len(self._pending) + (self._landing_for is not None)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way or waiting."""
        return self._active == 0 and not self._waiting

    def narrow(self) -> None:
        """Halve how many operations may be under way at once."""
        self.active_limit = max(1, min(self.active_limit, self._active) // 2)

    def submit(self, operation: Conversation[Any]) -> None:
        """Queue an operation; it starts when fewer than `active_limit` are under way."""
        self._waiting.append(operation)

    # --- sending ---

    def next_packet(self) -> tuple[bytes, FileSlice | None, Conversation[Any]] | None:
        """Return the next packet's bytes, the file bytes to follow them, and whose it is; None when there is none now.

        Short requests go before the payload of streams, so that opening the next file hides behind the current one.
        """
        if len(self._pending) >= self.queue_depth:
            return None
        while True:
            while not self._asking and self._waiting and self._active < self.active_limit:
                self._begin(self._waiting.popleft())
            request: Request | None
            if self._asking:
                operation = self._asking[0]
                request = operation.unsent.pop()
                if not operation.unsent:
                    self._asking.popleft()
            elif self._streaming:
                operation = self._streaming[0]
                request = operation.next_request()
                if not operation.has_requests:
                    self._streaming.popleft()
                if request is None:  # spoilt meanwhile
                    continue
            else:
                return None
            request_id = self._next_id
            self._next_id = (request_id + 1) & 0xFFFFFFFF
            self._pending[request_id] = (operation, request)
            if request.sink is not None:
                self._sinks += 1
            if request.payload is not None:
                self._sending = request_id
            return header(request, request_id), request.payload, operation

    def payload_sent(self) -> None:
        """Note that the file bytes of the last packet are all on the wire: only now it can be answered."""
        self._sending = None

    def _begin(self, operation: Conversation[Any]) -> None:
        self._active += 1
        operation.start()
        self._file_away(operation)

    def _file_away(self, operation: Conversation[Any]) -> None:
        """Put `operation` where it belongs after it was started or resumed."""
        if operation.finished:
            self._active -= 1
            self.finished.append(operation)
        elif operation.streaming:
            self._streaming.append(operation)
        else:
            self._asking.append(operation)

    # --- receiving ---

    def read_limit(self) -> int:
        """Return how many bytes may be read without reading into payload that belongs into a file."""
        if self._skip_bytes:
            return min(self._skip_bytes, _SMALL_READ_BYTES)
        if not self._sinks:
            return _SMALL_READ_BYTES
        have = len(self._buffer)
        if have < DATA_HEADER_BYTES:
            return DATA_HEADER_BYTES - have
        return max(1, 4 + int.from_bytes(self._buffer[:4], "big") - have)

    def receive(self, data: bytes) -> None:
        """Take bytes that arrived: at most `read_limit` of them.

        Raises: ProtocolError for what no server may send, UnsafePeer for more payload than was asked for.
        """
        if self._skip_bytes:
            self._skip_bytes -= len(data)
            return
        if self._buffer:
            data = self._buffer + data
        position, end = 0, len(data)
        while end - position >= 9:
            length, kind, request_id = _HEADER.unpack_from(data, position)
            if kind == DATA and self._has_sink(request_id):
                if end - position < DATA_HEADER_BYTES:
                    break
                if end - position > DATA_HEADER_BYTES:  # read_limit never asks for more while a sink is outstanding
                    raise ProtocolError("payload that came before it was asked for")
                self._buffer = b""
                self._land(data, position)
                return
            if length < 5 or (length > MAX_PACKET_BYTES and length > self._longest(request_id)):
                raise ProtocolError(f"a packet of {length} bytes")
            stop = position + 4 + length
            if stop > end:
                break
            self._answer(request_id, kind, data[position + 9 : stop])
            position = stop
        self._buffer = data[position:]

    def landed(self, count: int) -> None:
        """Note that `count` bytes of `landing` are in the file."""
        landing = self.landing
        assert landing is not None
        self.moved_bytes += count
        if count < landing.length:
            self.landing = FileSlice(landing.fd, landing.offset + count, landing.length - count)
        elif self._landing_for is not None:
            self._end_landing(self._landing_for[2])

    def landing_failed(self, error: OSError) -> None:
        """Note that the file refused the rest of `landing`: its operation is spoilt, the bytes are thrown away."""
        landing, landing_for = self.landing, self._landing_for
        assert landing is not None
        assert landing_for is not None
        operation, _request, count = landing_for
        operation.spoil(error)
        self._skip_bytes = landing.length
        self._end_landing(count - landing.length)

    def _end_landing(self, count: int) -> None:
        assert self._landing_for is not None
        (operation, request, _), self._landing_for, self.landing = self._landing_for, None, None
        self._deliver(operation, request, Data(None, count))

    def _has_sink(self, request_id: int) -> bool:
        pending = self._pending.get(request_id)
        return pending is not None and pending[1].sink is not None

    def _longest(self, request_id: int) -> int:
        pending = self._pending.get(request_id)
        if pending is None or pending[1].kind != READ:
            return MAX_PACKET_BYTES
        asked = int.from_bytes(pending[1].body[-4:], "big")
        return asked + DATA_HEADER_BYTES

    def _land(self, data: bytes, position: int) -> None:
        length, _kind, request_id, count = _DATA_HEADER.unpack_from(data, position)
        if length != count + 9:
            raise ProtocolError(f"a DATA packet of {length} bytes says it holds {count}")
        operation, request = self._pending[request_id]
        sink = request.sink
        assert sink is not None
        if count > sink.length:
            raise UnsafePeer(f"sent {count} bytes where {sink.length} were asked for", host=self.host)
        del self._pending[request_id]
        self._sinks -= 1
        self._landing_for = (operation, request, count)
        self.landing = FileSlice(sink.fd, sink.offset, count)
        if count == 0:
            self._end_landing(0)

    def _answer(self, request_id: int, kind: int, body: bytes) -> None:
        pending = self._pending.get(request_id)
        if pending is None or request_id == self._sending:
            raise ProtocolError(f"an answer to request {request_id}, which was never asked or is answered already")
        operation, request = pending
        reply = decode(kind, body)
        if type(reply) is Status:
            if reply.code == OK:
                self.moved_bytes += request.content_bytes
        elif type(reply) is Data and request.kind == READ:
            if reply.length > int.from_bytes(request.body[-4:], "big"):
                raise UnsafePeer(f"sent {reply.length} bytes, more than were asked for", host=self.host)
            if request.content_bytes:  # else it is no file of the job's
                self.moved_bytes += reply.length
        del self._pending[request_id]  # not before it is known to be good: `fail` must find its operation
        if request.sink is not None:
            self._sinks -= 1
        self._deliver(operation, request, reply)

    def _deliver(self, operation: Conversation[Any], request: Request, reply: Reply) -> None:
        if operation.streaming:
            operation.deliver(request, reply)
            if not operation.streaming:
                self._leave_streaming(operation)
                self._file_away(operation)
            elif operation.has_requests and operation not in self._streaming:  # a short or refused one to ask again
                self._streaming.append(operation)
        elif operation.unsent:  # the rest of its burst: it stands in the queue as it is
            operation.deliver(request, reply)
        else:
            operation.deliver(request, reply)
            if operation.unsent or operation.finished or operation.streaming:
                self._file_away(operation)

    def _leave_streaming(self, operation: Conversation[Any]) -> None:
        if operation in self._streaming:
            self._streaming.remove(operation)

    def fail(self, error: BaseException) -> None:
        """End every operation with `error`: the channel is gone. Those not started never start."""
        everyone = {id(op): op for op, _ in self._pending.values()}
        everyone |= {id(op): op for queue in (self._asking, self._streaming, self._waiting) for op in queue}
        if self._landing_for is not None:
            everyone[id(self._landing_for[0])] = self._landing_for[0]
        self._pending.clear()
        for queue in (self._asking, self._streaming, self._waiting):
            queue.clear()
        self.landing = self._landing_for = None
        self._active = self._sinks = 0
        for operation in everyone.values():
            if not operation.finished:
                operation.fail(error)
                self.finished.append(operation)
        error.__traceback__ = None  # it holds the frames of every conversation it went through
