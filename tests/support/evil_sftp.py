"""SFTP servers with one fault each, run by a real sshd as its subsystem.

`Sshd(..., {"Subsystem": subsystem("early-eof")})`: so both ways to speak SSH meet the same fault through the real
command. Each fault is a small subclass of the plain server and says in its docstring what it does wrong. Standard
library only, imports nothing of fastcopy.
"""

from __future__ import annotations

import os
import random
import re
import select
import stat
import struct
import sys
import time
from pathlib import Path
from typing import ClassVar

from tests.support.sftp_server import (
    ATTRS,
    DATA,
    EOF,
    FAILURE,
    INIT,
    MAX_PACKET_BYTES,
    NAME,
    NO_SUCH_FILE,
    OK,
    READ,
    WRITE,
    Reader,
    Server,
    string,
)


def subsystem(fault: str) -> str:
    """Return the value of an sshd_config `Subsystem` line that serves `fault` (one of FAULTS)."""
    assert fault in FAULTS
    return f"sftp /usr/bin/env PYTHONPATH={Path(__file__).parents[2]} {sys.executable} -m {__name__} {fault}"


# --- faults of order ----------------------------------------------------------------------------------------------


class OneReplyAtATime(Server):
    """Takes the next request only after the last reply was taken, and hands replies out in halves."""

    def next_packet(self) -> bytes | None:
        head = self._exactly(4)
        return self._exactly(int.from_bytes(head)) if head else None

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length and (piece := os.read(0, length - len(data))):
            data += piece
        return data if len(data) == length else b""

    def write_all(self, data: bytes) -> None:
        super().write_all(data[: len(data) // 2])
        time.sleep(0.0002)
        super().write_all(data[len(data) // 2 :])


class Reordered(Server):
    """Answers the requests that wait in a random order."""

    def serve(self) -> None:
        dice = random.Random(7)
        waiting: list[bytes] = []
        while packet := self.next_packet():
            waiting += self.replies_to(packet)
            if len(waiting) < 50 and select.select([0], [], [], 0.003)[0]:
                continue
            dice.shuffle(waiting)
            for reply in waiting:
                self.send(reply)
            waiting.clear()


# --- faults of length ---------------------------------------------------------------------------------------------


class ShortReadsOfOneByte(Server):
    """Serves one byte of any read."""

    def served(self, length: int) -> int:
        return 1


class ShortReadsOf1000Bytes(Server):
    """Serves 1000 bytes of any read."""

    def served(self, length: int) -> int:
        return min(length, 1000)


class ShortReadsAtRandom(Server):
    """Serves any number of bytes of a read."""

    def served(self, length: int) -> int:
        return random.randint(1, min(length, 261_120))


class SmallLimits(Server):
    """Announces 16384 bytes, serves no more, and refuses larger writes."""

    limits = (32_768, 16_384, 16_384, 0)

    def write(self, fields: Reader) -> bytes:
        handle, offset, data = fields.string(), fields.number("Q"), fields.string()
        if len(data) > self.limits[2]:
            return self.status(FAILURE)
        return super().write(Reader(string(handle) + struct.pack(">Q", offset) + string(data)))


class LyingLimits(SmallLimits):
    """Announces 261120 bytes, serves 102400, and refuses larger writes (case A12)."""

    limits = (MAX_PACKET_BYTES, 261_120, 102_400, 0)

    def served(self, length: int) -> int:
        return min(length, 102_400)

    def extended(self, fields: Reader) -> bytes:
        reply = super().extended(fields)
        honest = struct.pack(">QQQQ", *self.limits)
        return reply.replace(honest, struct.pack(">QQQQ", *Server.limits)) if reply.endswith(honest) else reply


class LimitsOfZero(Server):
    """Announces limits of 0, which means none."""

    limits = (0, 0, 0, 0)

    def served(self, length: int) -> int:
        return min(length, 261_120)


class LimitsOfOne(LimitsOfZero):
    """Announces limits of one byte."""

    limits = (1, 1, 1, 1)


class LimitsWithoutEnd(LimitsOfZero):
    """Announces limits of 2^63 bytes and handles."""

    limits = (1 << 63, 1 << 63, 1 << 63, 1 << 63)


class EarlyEof(Server):
    """Ends every file at byte 65536 (case A01)."""

    def read(self, fields: Reader) -> bytes:
        handle, offset, length = fields.string(), fields.number("Q"), fields.number()
        length = min(length, 65_536 - offset)
        if length <= 0:
            return self.status(EOF)
        return super().read(Reader(string(handle) + struct.pack(">QI", offset, length)))


class LongReads(Server):
    """Serves one byte more than was asked for."""

    def read(self, fields: Reader) -> bytes:
        reply = super().read(fields)
        return bytes([DATA]) + string(reply[5:] + b"!") if reply[0] == DATA else reply


# --- faults of the protocol ---------------------------------------------------------------------------------------


class NoExtensions(Server):
    """Announces nothing beyond version 3."""

    extensions: ClassVar[dict[bytes, bytes]] = {}


class NoProc(Server):
    """Shows no /proc, as a chroot does."""

    def replies_to(self, packet: bytes) -> list[bytes]:
        if b"/proc/" not in packet or packet[0] == INIT:
            return super().replies_to(packet)
        reply = self.status(NO_SUCH_FILE)
        return [reply[:1] + packet[1:5] + reply[1:]]


class NoPosixRename(Server):
    """Cannot replace a file by renaming."""

    extensions: ClassVar = {name: value for name, value in Server.extensions.items() if b"rename" not in name}


class FailingClose(Server):
    """Says Failure to every CLOSE of a file that was written (case A16)."""

    def __init__(self) -> None:
        super().__init__()
        self.written: set[bytes] = set()

    def write(self, fields: Reader) -> bytes:
        reply = super().write(fields)
        self.written.update(self.files)
        return reply

    def close(self, fields: Reader) -> bytes:
        wrote = bool(self.written & self.files.keys())
        super().close(fields)
        return self.status(FAILURE if wrote else OK)


class DiskFull(Server):
    """Says a bare Failure to writes from byte 100000 on, as a full disk does (cases B12, D19)."""

    def write(self, fields: Reader) -> bytes:
        handle, offset, data = fields.string(), fields.number("Q"), fields.string()
        if offset + len(data) > 100_000:
            return self.status(FAILURE)
        return super().write(Reader(string(handle) + struct.pack(">Q", offset) + string(data)))

    def statvfs(self, path: bytes) -> list[int]:
        return [4096, 4096, 1000, 0, 0, 1000, 1000, 1000, 0, 0, 255]


class RefusedFiles(Server):
    """Says Failure to every write of a file with "wrong" in its name (no letters a part file's random token has)."""

    def write(self, fields: Reader) -> bytes:
        handle, offset, data = fields.string(), fields.number("Q"), fields.string()
        if b"wrong" in self.paths[handle]:
            return self.status(FAILURE)
        return super().write(Reader(string(handle) + struct.pack(">Q", offset) + string(data)))


class DuplicatedReply(Server):
    """Answers every READ and WRITE twice."""

    def replies_to(self, packet: bytes) -> list[bytes]:
        return super().replies_to(packet) * (2 if packet[0] in {READ, WRITE} else 1)


class WrongId(Server):
    """Answers every READ and WRITE under an id nobody used."""

    def replies_to(self, packet: bytes) -> list[bytes]:
        replies = super().replies_to(packet)
        if packet[0] in {READ, WRITE}:
            return [reply[:1] + b"\xde\xad\xbe\xef" + reply[5:] for reply in replies]
        return replies


class WrongType(Server):
    """Answers every READ and WRITE with attributes."""

    def read(self, fields: Reader) -> bytes:
        return bytes([ATTRS]) + struct.pack(">I", 0)

    write = read


class TextAtLogin(Server):
    """Prints a greeting where SFTP should begin, as a chatty .bashrc does."""

    def serve(self) -> None:
        self.write_all(b"Welcome to srv002, have a nice day!\n")
        super().serve()


class EmptyVersion(Server):
    """Ends before it says anything."""

    def serve(self) -> None:
        sys.stderr.write("the account has expired\n")


# --- faults of names ----------------------------------------------------------------------------------------------


class ListsUp(Server):
    """Lists a name that climbs (case A21, CVE-2019-6111)."""

    name: ClassVar[bytes] = b"../escaped"

    def readdir(self, fields: Reader) -> bytes:
        reply = super().readdir(fields)
        if reply[0] != NAME:
            return reply
        entry = os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, 3, 0, 0, 0))
        (count,) = struct.unpack_from(">I", reply, 1)
        evil = string(self.name) + string(b"long") + self.attributes(entry)
        return bytes([NAME]) + struct.pack(">I", count + 1) + evil + reply[5:]


class ListsAbsolute(ListsUp):
    """Lists an absolute name."""

    name = b"/tmp/escaped"


class ListsSlash(ListsUp):
    """Lists a name with a slash inside."""

    name = b"a/escaped"


class ListsEmpty(ListsUp):
    """Lists an empty name."""

    name = b""


class ListsNul(ListsUp):
    """Lists a name with a NUL inside."""

    name = b"escaped\0.dmp"


# --- faults of number ---------------------------------------------------------------------------------------------


class OneHandle(Server):
    """Allows one open handle, and does not say so (case D03)."""

    handles: ClassVar[int] = 1

    def open(self, fields: Reader) -> bytes:
        if len(self.files) + len(self.listings) >= self.handles:
            return self.status(FAILURE)
        return super().open(fields)

    def opendir(self, fields: Reader) -> bytes:
        if len(self.files) + len(self.listings) >= self.handles:
            return self.status(FAILURE)
        return super().opendir(fields)


class FourHandles(OneHandle):
    """Allows four open handles, and announces it."""

    handles = 4
    limits = (MAX_PACKET_BYTES, 261_120, 261_120, 4)


def _every(kind: type[Server]) -> list[type[Server]]:
    return [kind, *(deeper for child in kind.__subclasses__() for deeper in _every(child))]


#: Every server by its name in kebab case: `one-reply-at-a-time`; the plain one is `server`.
FAULTS = {re.sub(r"(?<!^)(?=[A-Z])|(?<=[a-z])(?=\d)", "-", kind.__name__).lower(): kind for kind in _every(Server)}


if __name__ == "__main__":
    FAULTS[sys.argv[1]]().serve()
