"""A multiplexer driven by hand: what it sends as values, and replies fed to it in any slices, as a pump would.

Replies are built here with struct alone, not with fastcopy's codec: a misreading must not be on both sides.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastcopy.sftp.multiplexer import Multiplexer

STATUS, HANDLE, DATA, NAME, ATTRS, EXTENDED_REPLY = 101, 102, 103, 104, 105, 201
OK, EOF, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE = 0, 1, 2, 3, 4


class Sent(NamedTuple):
    """One request as it went on the wire; `body` is what follows the id, payload of a file included."""

    kind: int
    request_id: int
    body: bytes


def string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def packet(kind: int, request_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">IBI", 5 + len(body), kind, request_id) + body


def status(request_id: int, code: int = OK, message: bytes = b"Success") -> bytes:
    return packet(STATUS, request_id, struct.pack(">I", code) + string(message) + string(b""))


def handle(request_id: int, value: bytes = b"h") -> bytes:
    return packet(HANDLE, request_id, string(value))


def data(request_id: int, payload: bytes) -> bytes:
    return packet(DATA, request_id, string(payload))


def attributes(request_id: int, size: int) -> bytes:
    return packet(ATTRS, request_id, struct.pack(">IQ", 1, size))


def names(request_id: int, *filenames: bytes) -> bytes:
    listed = b"".join(string(name) + string(b"long " + name) + struct.pack(">I", 0) for name in filenames)
    return packet(NAME, request_id, struct.pack(">I", len(filenames)) + listed)


def range_of(request: Sent) -> tuple[int, int]:
    """Return offset and length of a READ or WRITE."""
    (handle_bytes,) = struct.unpack_from(">I", request.body)
    offset, length = struct.unpack_from(">QI", request.body, 4 + handle_bytes)
    return offset, length


class Wire:
    """The far end of one multiplexer."""

    def __init__(self, multiplexer: Multiplexer) -> None:
        self.multiplexer = multiplexer

    def next(self) -> Sent | None:
        """Take the next packet with its payload read from its file; None when there is none now."""
        sent = self.multiplexer.next_packet()
        if sent is None:
            return None
        head, payload, _ = sent
        if payload is not None:
            head += os.pread(payload.fd, payload.length, payload.offset)
            self.multiplexer.payload_sent()
        length, kind, request_id = struct.unpack_from(">IBI", head)
        assert len(head) == 4 + length
        return Sent(kind, request_id, head[9:])

    def all(self) -> list[Sent]:
        """Take everything that may be sent now."""
        sent = []
        while (request := self.next()) is not None:
            sent.append(request)
        return sent

    def feed(self, arrived: bytes, slice_bytes: Callable[[], int] = lambda: 1 << 30) -> None:
        """Hand over what arrived, payload into its file; `slice_bytes` says how much comes at once."""
        position = 0
        while position < len(arrived):
            landing = self.multiplexer.landing
            limit = self.multiplexer.read_limit() if landing is None else landing.length
            assert limit > 0
            piece = arrived[position : position + min(limit, slice_bytes())]
            position += len(piece)
            if landing is None:
                self.multiplexer.receive(piece)
            else:
                assert os.pwrite(landing.fd, piece, landing.offset) == len(piece)
                self.multiplexer.landed(len(piece))
