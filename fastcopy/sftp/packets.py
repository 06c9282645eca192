"""SFTP version 3 on the wire: numbers, attributes, and the encoding of every request and reply.

Sans-I/O and without state. Owns the byte layout (draft-ietf-secsh-filexfer-02, OpenSSH's PROTOCOL for the
extensions) and nothing else; fuzzed in tests/property. Invariant: decoding foreign bytes raises ProtocolError, never
anything else, and makes no more values than the packet it was given has bytes for.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from fastcopy.errors import ProtocolError
from fastcopy.model import Attributes

VERSION = 3

# Packet types. Source: draft-02 section 3.
INIT, VERSION_REPLY = 1, 2
OPEN, CLOSE, READ, WRITE, LSTAT, FSTAT, SETSTAT, FSETSTAT = 3, 4, 5, 6, 7, 8, 9, 10
OPENDIR, READDIR, REMOVE, MKDIR, RMDIR, REALPATH, STAT, RENAME, READLINK, SYMLINK = (
    11,
    12,
    13,
    14,
    15,
    16,
    17,
    18,
    19,
    20,
)
STATUS, HANDLE, DATA, NAME, ATTRS = 101, 102, 103, 104, 105
EXTENDED, EXTENDED_REPLY = 200, 201

# Status codes. Source: draft-02 section 7.
OK, EOF, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE, BAD_MESSAGE, NO_CONNECTION, CONNECTION_LOST, OP_UNSUPPORTED = range(
    9
)

# OPEN flags. Source: draft-02 section 6.3.
READ_FLAG, WRITE_FLAG, APPEND_FLAG, CREATE_FLAG, TRUNCATE_FLAG, EXCLUSIVE_FLAG = 1, 2, 4, 8, 16, 32

_SIZE, _UIDGID, _PERMISSIONS, _TIMES, _EXTENDED_ATTRS = 1, 2, 4, 8, 0x80000000
_USUAL = _SIZE | _UIDGID | _PERMISSIONS | _TIMES

#: Bytes of a DATA reply before its payload: length, type, id, payload length.
DATA_HEADER_BYTES = 13
#: Bytes. Longest packet taken that is no DATA reply. Source: SFTP_MAX_MSG_LENGTH of OpenSSH's sftp-common.h.
MAX_PACKET_BYTES = 256 * 1024

_U32 = struct.Struct(">I")
_U32x2 = struct.Struct(">II")
_U64 = struct.Struct(">Q")
_OWNER_MODE_TIMES = struct.Struct(">QIIIII")
_OFFSET_LENGTH = struct.Struct(">QI")
_HEADER = struct.Struct(">IBI")


class FileSlice(NamedTuple):
    """`length` bytes of the open local file `fd` from `offset`."""

    fd: int
    offset: int
    length: int


class Request(NamedTuple):
    """One request without its id: type, what follows the id, and where file bytes come from or go to.

    `payload` bytes follow the body on the wire. A DATA reply to a request with a `sink` goes into that file; without,
    into memory.
    """

    kind: int
    body: bytes
    payload: FileSlice | None = None
    sink: FileSlice | None = None
    #: Bytes of file content this request moves once it is answered well (small files carry theirs in the body).
    content_bytes: int = 0


def header(request: Request, request_id: int) -> bytes:
    """Return what goes on the wire for `request`, all but its payload."""
    length = 5 + len(request.body)
    if request.payload is not None:
        length += request.payload.length
    return _HEADER.pack(length, request.kind, request_id) + request.body


def init() -> bytes:
    """Return the INIT packet."""
    return struct.pack(">IBI", 5, INIT, VERSION)


def string(value: bytes) -> bytes:
    return _U32.pack(len(value)) + value


# --- replies ---------------------------------------------------------------------------------------------------


class Status(NamedTuple):
    code: int
    message: str


class Handle(NamedTuple):
    handle: bytes


class Data(NamedTuple):
    """File bytes: `payload` when they stand in memory, None when `length` bytes went into the request's sink."""

    payload: bytes | None
    length: int


class Name(NamedTuple):
    filename: bytes
    attributes: Attributes


class Names(NamedTuple):
    names: tuple[Name, ...]


class Extended(NamedTuple):
    body: bytes


Reply = Status | Handle | Data | Names | Attributes | Extended


class Reader:
    """Take fields off the front of one packet."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def u32(self) -> int:
        position = self._position
        if position + 4 > len(self._data):
            raise self._cut_short(4)
        self._position = position + 4
        return int.from_bytes(self._data[position : position + 4], "big")

    def u64(self) -> int:
        return self.u32() << 32 | self.u32()

    def string(self) -> bytes:
        length = self.u32()
        start = self._position
        stop = start + length
        if stop > len(self._data):
            raise self._cut_short(length)
        self._position = stop
        return self._data[start:stop]

    def attributes(self) -> Attributes:
        """Take an ATTRS field; extended attributes are passed over."""
        flags = self.u32()
        if flags == _USUAL and self.remaining >= _OWNER_MODE_TIMES.size:  # what servers send, in one step
            size, uid, gid, mode, atime_s, mtime_s = _OWNER_MODE_TIMES.unpack_from(self._data, self._position)
            self._position += _OWNER_MODE_TIMES.size
            return Attributes(size=size, mode=mode, uid=uid, gid=gid, atime_s=atime_s, mtime_s=mtime_s)
        size = self.u64() if flags & _SIZE else None
        uid, gid = (self.u32(), self.u32()) if flags & _UIDGID else (None, None)
        mode = self.u32() if flags & _PERMISSIONS else None
        atime_s, mtime_s = (self.u32(), self.u32()) if flags & _TIMES else (None, None)
        if flags & _EXTENDED_ATTRS:
            for _ in range(self.u32()):  # ends by itself: each turn takes at least 8 bytes of the packet
                self.string()
                self.string()
        return Attributes(size=size, mode=mode, uid=uid, gid=gid, atime_s=atime_s, mtime_s=mtime_s)

    def _cut_short(self, count: int) -> ProtocolError:
        return ProtocolError(f"a field of {count} bytes where {self.remaining} are left")


def decode(kind: int, body: bytes) -> Reply:
    """Return the reply of type `kind` whose bytes after the id are `body`.

    Raises: ProtocolError when they are not such a reply.
    """
    if kind == STATUS:
        if body[:4] == _OK_CODE:
            return _STATUS_OK
        if len(body) < 4:
            raise ProtocolError("a STATUS without a code")
        return Status(int.from_bytes(body[:4], "big"), _status_text(body))
    reader = Reader(body)
    if kind == HANDLE:
        handle = reader.string()
        if not 0 < len(handle) <= 256:  # Source: draft-02 section 6.3
            raise ProtocolError(f"a handle of {len(handle)} bytes")
        return Handle(handle)
    if kind == DATA:
        payload = reader.string()
        return Data(payload, len(payload))
    if kind == ATTRS:
        return reader.attributes()
    if kind == NAME:
        return Names(tuple(_name(reader) for _ in range(_bounded_count(reader))))
    if kind == EXTENDED_REPLY:
        return Extended(body)
    raise ProtocolError(f"an unknown packet type {kind}")


_OK_CODE = _U32.pack(OK)
_STATUS_OK = Status(OK, "")


def _status_text(body: bytes) -> str:
    if len(body) < 8:  # version 0-2 servers send the code alone
        return ""
    return Reader(body, 4).string().decode("utf-8", "replace")


def _bounded_count(reader: Reader) -> int:
    count = reader.u32()
    if count * 12 > reader.remaining:  # two empty strings and empty attributes
        raise ProtocolError(f"a NAME reply says {count} names in {reader.remaining} bytes")
    return count


def _name(reader: Reader) -> Name:
    filename = reader.string()
    reader.string()  # the `ls -l` line: for people only
    return Name(filename, reader.attributes())


def decode_version(packet: bytes) -> dict[bytes, bytes]:
    """Return the extensions a VERSION packet (without its length) announces: name to version.

    Raises: ProtocolError when it is no VERSION, or of a version below 3.
    """
    if not packet or packet[0] != VERSION_REPLY:
        raise ProtocolError("the first packet is no VERSION")
    reader = Reader(packet, 1)
    version = reader.u32()
    if version < VERSION:
        raise ProtocolError(f"the server speaks version {version}; fastcopy needs 3")
    extensions = {}
    while reader.remaining:
        name = reader.string()
        extensions[name] = reader.string()
    return extensions


# --- requests --------------------------------------------------------------------------------------------------


def encode_attributes(attributes: Attributes) -> bytes:
    """Return ATTRS holding what is set in `attributes`; times only when both are."""
    flags, fields = 0, b""
    if attributes.size is not None:
        flags, fields = flags | _SIZE, _U64.pack(attributes.size)
    if attributes.uid is not None and attributes.gid is not None:
        flags, fields = flags | _UIDGID, fields + _U32x2.pack(attributes.uid, attributes.gid)
    if attributes.mode is not None:
        flags, fields = flags | _PERMISSIONS, fields + _U32.pack(attributes.mode)
    if attributes.atime_s is not None and attributes.mtime_s is not None:
        flags, fields = flags | _TIMES, fields + _U32x2.pack(attributes.atime_s, attributes.mtime_s)
    return _U32.pack(flags) + fields


NO_ATTRIBUTES = encode_attributes(Attributes())


def open_file(path: bytes, flags: int, attributes: Attributes | None = None) -> Request:
    attrs = NO_ATTRIBUTES if attributes is None else encode_attributes(attributes)
    return Request(OPEN, string(path) + _U32.pack(flags) + attrs)


def close(handle: bytes) -> Request:
    return Request(CLOSE, string(handle))


def read(handle: bytes, offset: int, length: int) -> Request:
    """Ask for bytes into memory."""
    return Request(READ, string(handle) + _OFFSET_LENGTH.pack(offset, length), content_bytes=length)


def read_into(prefix: bytes, sink: FileSlice) -> Request:
    """Ask for the bytes [offset, offset + length) of a file into the same place of a local one.

    `prefix` is `string(handle)`, made once per file since this is the hot path.
    """
    return Request(READ, prefix + _OFFSET_LENGTH.pack(sink.offset, sink.length), sink=sink)


def write(handle: bytes, offset: int, data: bytes) -> Request:
    """Send bytes from memory."""
    return Request(WRITE, string(handle) + _OFFSET_LENGTH.pack(offset, len(data)) + data, content_bytes=len(data))


def write_from(prefix: bytes, payload: FileSlice) -> Request:
    """Send bytes of a local file to the same place of the remote one; `prefix` as in `read_into`."""
    body = prefix + _OFFSET_LENGTH.pack(payload.offset, payload.length)
    return Request(WRITE, body, payload=payload, content_bytes=payload.length)


def stat(path: bytes) -> Request:
    return Request(STAT, string(path))


def lstat(path: bytes) -> Request:
    return Request(LSTAT, string(path))


def fstat(handle: bytes) -> Request:
    return Request(FSTAT, string(handle))


def setstat(path: bytes, attributes: Attributes) -> Request:
    return Request(SETSTAT, string(path) + encode_attributes(attributes))


def fsetstat(handle: bytes, attributes: Attributes) -> Request:
    return Request(FSETSTAT, string(handle) + encode_attributes(attributes))


def opendir(path: bytes) -> Request:
    return Request(OPENDIR, string(path))


def readdir(handle: bytes) -> Request:
    return Request(READDIR, string(handle))


def remove(path: bytes) -> Request:
    return Request(REMOVE, string(path))


def mkdir(path: bytes, mode: int) -> Request:
    return Request(MKDIR, string(path) + encode_attributes(Attributes(mode=mode)))


def rmdir(path: bytes) -> Request:
    return Request(RMDIR, string(path))


def realpath(path: bytes) -> Request:
    return Request(REALPATH, string(path))


def rename(old: bytes, new: bytes) -> Request:
    """Rename; version 3 servers refuse when `new` exists."""
    return Request(RENAME, string(old) + string(new))


def readlink(path: bytes) -> Request:
    return Request(READLINK, string(path))


def symlink(text: bytes, path: bytes) -> Request:
    """Make `path` a link to `text`. OpenSSH takes the two in the opposite order to the draft (its PROTOCOL, 4.1)."""
    return Request(SYMLINK, string(text) + string(path))


# --- extensions. Source: OpenSSH's PROTOCOL, section 4 ---------------------------------------------------------

POSIX_RENAME = b"posix-rename@openssh.com"
STATVFS = b"statvfs@openssh.com"
HARDLINK = b"hardlink@openssh.com"
FSYNC = b"fsync@openssh.com"
LSETSTAT = b"lsetstat@openssh.com"
LIMITS = b"limits@openssh.com"
EXPAND_PATH = b"expand-path@openssh.com"


def _extended(name: bytes, *fields: bytes) -> Request:
    return Request(EXTENDED, string(name) + b"".join(fields))


def posix_rename(old: bytes, new: bytes) -> Request:
    return _extended(POSIX_RENAME, string(old), string(new))


def statvfs(path: bytes) -> Request:
    return _extended(STATVFS, string(path))


def hardlink(old: bytes, new: bytes) -> Request:
    return _extended(HARDLINK, string(old), string(new))


def fsync(handle: bytes) -> Request:
    return _extended(FSYNC, string(handle))


def lsetstat(path: bytes, attributes: Attributes) -> Request:
    return _extended(LSETSTAT, string(path), encode_attributes(attributes))


def limits() -> Request:
    return _extended(LIMITS)


def expand_path(path: bytes) -> Request:
    return _extended(EXPAND_PATH, string(path))


class Limits(NamedTuple):
    """limits@openssh.com: bytes and a count; 0 means the server names no limit."""

    packet_bytes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    open_handles: int = 0

    @classmethod
    def decode(cls, body: bytes) -> Limits:
        reader = Reader(body)
        return cls(reader.u64(), reader.u64(), reader.u64(), reader.u64())


class FileSystem(NamedTuple):
    """The part of statvfs@openssh.com that fastcopy asks for: bytes."""

    free_bytes: int
    total_bytes: int

    @classmethod
    def decode(cls, body: bytes) -> FileSystem:
        reader = Reader(body)
        _block, fragment, blocks, _free, available = (reader.u64() for _ in range(5))
        return cls(free_bytes=available * fragment, total_bytes=blocks * fragment)
