"""The wire: every request byte for byte as the draft and OpenSSH's PROTOCOL write it, every reply read or refused."""

from __future__ import annotations

import struct

import pytest

from fastcopy.errors import ProtocolError
from fastcopy.model import Attributes
from fastcopy.sftp import packets
from fastcopy.sftp.packets import Data, Extended, FileSlice, FileSystem, Handle, Limits, Name, Names, Request, Status
from tests.support.sftp_wire import string

PATH = b"/u01/\xff\\\n"
HANDLE = b"\0\0\0\x07"
WIRE_PATH = b"\0\0\0\x08/u01/\xff\\\n"
WIRE_HANDLE = b"\0\0\0\x04\0\0\0\x07"
TIMES = Attributes(mode=0o644, atime_s=1, mtime_s=2)
WIRE_TIMES = bytes.fromhex("0000000c 000001a4 00000001 00000002")

REQUESTS = {
    "open": (packets.open_file(PATH, 0x1A), 3, WIRE_PATH + bytes.fromhex("0000001a 00000000")),
    "open with mode": (
        packets.open_file(PATH, 1, Attributes(mode=0o600)),
        3,
        WIRE_PATH + bytes.fromhex("00000001 00000004 00000180"),
    ),
    "close": (packets.close(HANDLE), 4, WIRE_HANDLE),
    "read": (packets.read(HANDLE, 1 << 32, 9), 5, WIRE_HANDLE + bytes.fromhex("0000000100000000 00000009")),
    "write": (packets.write(HANDLE, 2, b"ab"), 6, WIRE_HANDLE + bytes.fromhex("0000000000000002 00000002") + b"ab"),
    "lstat": (packets.lstat(PATH), 7, WIRE_PATH),
    "fstat": (packets.fstat(HANDLE), 8, WIRE_HANDLE),
    "setstat": (packets.setstat(PATH, TIMES), 9, WIRE_PATH + WIRE_TIMES),
    "fsetstat": (packets.fsetstat(HANDLE, TIMES), 10, WIRE_HANDLE + WIRE_TIMES),
    "opendir": (packets.opendir(PATH), 11, WIRE_PATH),
    "readdir": (packets.readdir(HANDLE), 12, WIRE_HANDLE),
    "remove": (packets.remove(PATH), 13, WIRE_PATH),
    "mkdir": (packets.mkdir(PATH, 0o700), 14, WIRE_PATH + bytes.fromhex("00000004 000001c0")),
    "rmdir": (packets.rmdir(PATH), 15, WIRE_PATH),
    "realpath": (packets.realpath(PATH), 16, WIRE_PATH),
    "stat": (packets.stat(PATH), 17, WIRE_PATH),
    "rename": (packets.rename(PATH, b"b"), 18, WIRE_PATH + string(b"b")),
    "readlink": (packets.readlink(PATH), 19, WIRE_PATH),
    "symlink, in OpenSSH's order": (packets.symlink(b"text", PATH), 20, string(b"text") + WIRE_PATH),
    "posix-rename": (
        packets.posix_rename(PATH, b"b"),
        200,
        string(b"posix-rename@openssh.com") + WIRE_PATH + string(b"b"),
    ),
    "statvfs": (packets.statvfs(PATH), 200, string(b"statvfs@openssh.com") + WIRE_PATH),
    "hardlink": (packets.hardlink(PATH, b"b"), 200, string(b"hardlink@openssh.com") + WIRE_PATH + string(b"b")),
    "fsync": (packets.fsync(HANDLE), 200, string(b"fsync@openssh.com") + WIRE_HANDLE),
    "lsetstat": (packets.lsetstat(PATH, TIMES), 200, string(b"lsetstat@openssh.com") + WIRE_PATH + WIRE_TIMES),
    "limits": (packets.limits(), 200, string(b"limits@openssh.com")),
    "expand-path": (packets.expand_path(PATH), 200, string(b"expand-path@openssh.com") + WIRE_PATH),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_written_as_the_draft_says(name: str) -> None:
    """Length, type, id and fields of every request stand where the draft puts them."""
    request, kind, body = REQUESTS[name]
    assert packets.header(request, 0x01020304) == struct.pack(">IBI", 5 + len(body), kind, 0x01020304) + body


def test_init_asks_for_version_3() -> None:
    """INIT has no id, only the version."""
    assert packets.init() == bytes.fromhex("00000005 01 00000003")


def test_file_bytes_are_counted_in_the_length_but_left_to_the_transport() -> None:
    """A WRITE from a file announces its payload, which follows without passing through here."""
    request = packets.write_from(string(HANDLE), FileSlice(fd=9, offset=1 << 40, length=261_120))
    fields = WIRE_HANDLE + struct.pack(">QI", 1 << 40, 261_120)
    assert packets.header(request, 5) == struct.pack(">IBI", 5 + len(fields) + 261_120, 6, 5) + fields
    assert request.content_bytes == 261_120


def test_a_read_into_a_file_asks_for_just_its_slice() -> None:
    """Offset and length of the sink are those of the request."""
    sink = FileSlice(fd=9, offset=3, length=4)
    request = packets.read_into(string(HANDLE), sink)
    assert request == Request(5, WIRE_HANDLE + struct.pack(">QI", 3, 4), sink=sink)


ATTRIBUTES = [
    (Attributes(), "00000000"),
    (Attributes(size=1 << 33), "00000001 0000000200000000"),
    (Attributes(uid=1, gid=2), "00000002 00000001 00000002"),
    (Attributes(mode=0o100644), "00000004 000081a4"),
    (Attributes(atime_s=1, mtime_s=0xFFFFFFFF), "00000008 00000001 ffffffff"),
    (
        Attributes(size=5, uid=1, gid=2, mode=0o644, atime_s=3, mtime_s=4),
        "0000000f 0000000000000005 00000001 00000002 000001a4 00000003 00000004",
    ),
]


@pytest.mark.parametrize(("attributes", "wire"), ATTRIBUTES)
def test_attributes_are_written_and_read(attributes: Attributes, wire: str) -> None:
    """Each field has its flag, and what was not said is None."""
    assert packets.encode_attributes(attributes) == bytes.fromhex(wire)
    assert packets.decode(packets.ATTRS, bytes.fromhex(wire)) == attributes


def test_half_a_pair_is_not_written() -> None:
    """An owner without a group, or one time without the other, cannot be said in version 3."""
    assert packets.encode_attributes(Attributes(uid=1, mtime_s=2)) == bytes(4)


def test_extended_attributes_are_passed_over() -> None:
    """What a server adds to ATTRS does not disturb the fields behind it."""
    extended = struct.pack(">II", 0x80000004, 0o644) + struct.pack(">I", 2) + (string(b"a@b") + string(b"c")) * 2
    body = struct.pack(">I", 2) + (string(b"x") + string(b"-rw x") + extended) * 2
    assert packets.decode(packets.NAME, body) == Names((Name(b"x", Attributes(mode=0o644)),) * 2)


REPLIES = {
    "ok": (101, "00000000 00000000 00000000", Status(0, "")),
    "ok with the code alone": (101, "00000000", Status(0, "")),
    "failure": (101, "00000004 00000002 c3a9 00000000", Status(4, "é")),
    "failure, not in UTF-8": (101, "00000004 00000001 ff 00000000", Status(4, "\ufffd")),
    "failure with the code alone": (101, "00000003", Status(3, "")),
    "a code of no version": (101, "ffffffff 00000000", Status(0xFFFFFFFF, "")),
    "handle": (102, "00000004 00000007", Handle(HANDLE)),
    "data": (103, "00000002 6162", Data(b"ab", 2)),
    "no data": (103, "00000000", Data(b"", 0)),
    "no names": (104, "00000000", Names(())),
    "extended": (201, "0102", Extended(b"\1\2")),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_read(name: str) -> None:
    """Every reply of the draft becomes its value."""
    kind, wire, expected = REPLIES[name]
    assert packets.decode(kind, bytes.fromhex(wire)) == expected


MALFORMED = {
    "status without a code": (101, "000000"),
    "status whose message is cut": (101, "00000004 00000005 6162"),
    "handle without a length": (102, "0000"),
    "empty handle": (102, "00000000"),
    "handle of 257 bytes": (102, "00000101" + "00" * 257),
    "data shorter than it says": (103, "00000003 6162"),
    "attributes without flags": (105, ""),
    "attributes cut in the size": (105, "00000001 00000000"),
    "all attributes but the last byte": (105, "0000000f" + "00" * 27),
    "endless extended attributes": (105, "80000000 ffffffff"),
    "names without a count": (104, "0000"),
    "more names than bytes": (104, "ffffffff" + "00" * 24),
    "name cut in its text": (104, "00000001" + "00000009" + "00" * 12),
    "a request": (3, ""),
    "type 0": (0, ""),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_reply_is_a_protocol_error(name: str) -> None:
    """A reply that is none is told as such, whatever is wrong with it."""
    kind, wire = MALFORMED[name]
    with pytest.raises(ProtocolError, match="The server broke the SFTP protocol: "):
        packets.decode(kind, bytes.fromhex(wire))


def test_version_tells_the_extensions() -> None:
    """Names and versions of the extensions are kept as the server wrote them."""
    version = (
        bytes([2]) + struct.pack(">I", 3) + string(b"fsync@openssh.com") + string(b"1") + string(b"x") + string(b"")
    )
    assert packets.decode_version(version) == {b"fsync@openssh.com": b"1", b"x": b""}


@pytest.mark.parametrize(
    "version",
    [
        b"",
        bytes([2]),
        bytes([101]) + struct.pack(">I", 3),
        bytes([2]) + struct.pack(">I", 2),
        bytes([2]) + struct.pack(">I", 3) + string(b"name without a version"),
        bytes([2]) + struct.pack(">I", 3) + b"\0\0\0\xffcut",
    ],
)
def test_a_version_that_is_none_is_refused(version: bytes) -> None:
    """Another packet, an older version and cut extensions are protocol errors."""
    with pytest.raises(ProtocolError):
        packets.decode_version(version)


def test_limits_and_file_system_are_read() -> None:
    """The two extended replies fastcopy asks for become numbers of bytes."""
    assert Limits.decode(struct.pack(">4Q", 262_144, 1 << 63, 3, 4)) == Limits(262_144, 1 << 63, 3, 4)
    body = struct.pack(">11Q", 4096, 512, 1000, 300, 200, 0, 0, 0, 0, 0, 255)
    assert FileSystem.decode(body) == FileSystem(free_bytes=200 * 512, total_bytes=1000 * 512)
    for decode in (Limits.decode, FileSystem.decode):
        with pytest.raises(ProtocolError):
            decode(bytes(31))
