"""A plain SFTP version 3 server on stdin and stdout, small enough that each fault is a few lines of a subclass.

Serves this machine's files as the user it runs as. Standard library only, imports nothing of fastcopy, not even its
codec: a misreading of the protocol must not be on both sides. Not for use: it checks no name and bounds no client.
Invariant: one request, one reply, in order, until a subclass says otherwise.
"""

from __future__ import annotations

import itertools
import os
import struct
from typing import ClassVar

# Packet types and codes. Source: draft-ietf-secsh-filexfer-02.
INIT, VERSION, OPEN, CLOSE, READ, WRITE, LSTAT, FSTAT, SETSTAT, FSETSTAT, OPENDIR, READDIR = range(1, 13)
REMOVE, MKDIR, RMDIR, REALPATH, STAT, RENAME, READLINK, SYMLINK = range(13, 21)
STATUS, HANDLE, DATA, NAME, ATTRS = range(101, 106)
EXTENDED, EXTENDED_REPLY = 200, 201
OK, EOF, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE, BAD_MESSAGE, OP_UNSUPPORTED = 0, 1, 2, 3, 4, 5, 8
_HAS_SIZE, _HAS_OWNER, _HAS_MODE, _HAS_TIMES = 1, 2, 4, 8
#: Bytes. Source: OpenSSH's SFTP_MAX_MSG_LENGTH; beyond it its server ends the session, and so does this one.
MAX_PACKET_BYTES = 256 * 1024

#: The method of `Server` that answers a packet type.
_METHODS = {
    **{OPEN: "open", CLOSE: "close", READ: "read", WRITE: "write", STAT: "stat", LSTAT: "lstat", FSTAT: "fstat"},
    **{SETSTAT: "setstat", FSETSTAT: "fsetstat", OPENDIR: "opendir", READDIR: "readdir", REMOVE: "remove"},
    **{MKDIR: "mkdir", RMDIR: "rmdir", REALPATH: "realpath", RENAME: "rename", READLINK: "readlink"},
    **{SYMLINK: "symlink", EXTENDED: "extended"},
}


def string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


class Reader:
    """Take the fields of a packet one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str = "I") -> int:
        (value,) = struct.unpack_from(f">{code}", self._data, self._at)
        self._at += struct.calcsize(f">{code}")
        return int(value)

    def string(self) -> bytes:
        length = self.number()
        self._at += length
        return self._data[self._at - length : self._at]

    def attributes(self) -> dict[str, tuple[int, ...]]:
        flags = self.number()
        found: dict[str, tuple[int, ...]] = {}
        if flags & _HAS_SIZE:
            found["size"] = (self.number("Q"),)
        if flags & _HAS_OWNER:
            found["owner"] = (self.number(), self.number())
        if flags & _HAS_MODE:
            found["mode"] = (self.number(),)
        if flags & _HAS_TIMES:
            found["times"] = (self.number(), self.number())
        return found


class Server:
    """Plain and right: one request, one reply, in order."""

    extensions: ClassVar[dict[bytes, bytes]] = {
        b"posix-rename@openssh.com": b"1",
        b"statvfs@openssh.com": b"2",
        b"hardlink@openssh.com": b"1",
        b"fsync@openssh.com": b"1",
        b"lsetstat@openssh.com": b"1",
        b"limits@openssh.com": b"1",
    }
    #: max packet, max read, max write, max open handles
    limits: ClassVar[tuple[int, int, int, int]] = (MAX_PACKET_BYTES, 261_120, 261_120, 0)

    def __init__(self) -> None:
        self.files: dict[bytes, int] = {}
        self.listings: dict[bytes, list[bytes]] = {}
        self.paths: dict[bytes, bytes] = {}
        self.input = bytearray()

    # --- packets ---

    def serve(self) -> None:
        """Answer until the client goes away."""
        while packet := self.next_packet():
            for reply in self.replies_to(packet):
                self.send(reply)

    def next_packet(self) -> bytes | None:
        """Return the next whole packet without its length; None at the end."""
        while len(self.input) < 4 or len(self.input) < 4 + int.from_bytes(self.input[:4]):
            data = os.read(0, 1 << 16)
            if not data:
                return None
            self.input += data
        length = int.from_bytes(self.input[:4])
        if length > MAX_PACKET_BYTES:
            return None
        packet = bytes(self.input[4 : 4 + length])
        del self.input[: 4 + length]
        return packet

    def send(self, packet: bytes) -> None:
        self.write_all(string(packet))

    def write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]

    def replies_to(self, packet: bytes) -> list[bytes]:
        """Return the packets that answer `packet`."""
        kind, fields = packet[0], Reader(packet[1:])
        if kind == INIT:
            pairs = b"".join(string(name) + string(value) for name, value in self.extensions.items())
            return [struct.pack(">BI", VERSION, 3) + pairs]
        request_id = fields.number()
        try:
            reply = getattr(self, _METHODS[kind])(fields) if kind in _METHODS else self.status(OP_UNSUPPORTED)
        except FileNotFoundError:
            reply = self.status(NO_SUCH_FILE)
        except PermissionError:
            reply = self.status(PERMISSION_DENIED)
        except (OSError, KeyError):  # KeyError: a handle that is not open
            reply = self.status(FAILURE)
        return [reply[:1] + struct.pack(">I", request_id) + reply[1:]]

    # --- replies, without their request id ---

    def status(self, code: int) -> bytes:
        text = {OK: b"Success", EOF: b"End of file", NO_SUCH_FILE: b"No such file", PERMISSION_DENIED: b"Denied"}
        return bytes([STATUS]) + struct.pack(">I", code) + string(text.get(code, b"Failure")) + string(b"")

    def attributes(self, status: os.stat_result) -> bytes:
        flags = _HAS_SIZE | _HAS_OWNER | _HAS_MODE | _HAS_TIMES
        times = int(status.st_atime) & 0xFFFFFFFF, int(status.st_mtime) & 0xFFFFFFFF
        return struct.pack(">IQIIIII", flags, status.st_size, status.st_uid, status.st_gid, status.st_mode, *times)

    def names(self, entries: list[tuple[bytes, bytes]]) -> bytes:
        listed = b"".join(string(name) + string(b"long " + name) + attributes for name, attributes in entries)
        return bytes([NAME]) + struct.pack(">I", len(entries)) + listed

    def handle(self, path: bytes) -> bytes:
        """Return the lowest handle that is free, as OpenSSH does: one closed twice may be another file's by then."""
        names = (b"%d" % number for number in itertools.count())
        handle = next(name for name in names if name not in self.files and name not in self.listings)
        self.paths[handle] = path
        return handle

    # --- one method for each request ---

    def open(self, fields: Reader) -> bytes:
        path, flags, attributes = fields.string(), fields.number(), fields.attributes()
        mode = {1: os.O_RDONLY, 2: os.O_WRONLY, 3: os.O_RDWR}[flags & 3]
        for bit, flag in ((4, os.O_APPEND), (8, os.O_CREAT), (16, os.O_TRUNC), (32, os.O_EXCL)):
            mode |= flag if flags & bit else 0
        fd = os.open(path, mode, attributes.get("mode", (0o666,))[0] & 0o7777)
        handle = self.handle(path)
        self.files[handle] = fd
        return bytes([HANDLE]) + string(handle)

    def close(self, fields: Reader) -> bytes:
        handle = fields.string()
        if handle in self.files:
            os.close(self.files.pop(handle))
        else:
            del self.listings[handle]
        return self.status(OK)

    def read(self, fields: Reader) -> bytes:
        handle, offset, length = fields.string(), fields.number("Q"), fields.number()
        data = os.pread(self.files[handle], self.served(length), offset)
        return bytes([DATA]) + string(data) if data else self.status(EOF)

    def served(self, length: int) -> int:
        """Return how many of the `length` bytes asked for are read at most."""
        return min(length, self.limits[1])

    def write(self, fields: Reader) -> bytes:
        handle, offset, data = fields.string(), fields.number("Q"), fields.string()
        while data:
            written = os.pwrite(self.files[handle], data, offset)
            data, offset = data[written:], offset + written
        return self.status(OK)

    def stat(self, fields: Reader) -> bytes:
        return bytes([ATTRS]) + self.attributes(os.stat(fields.string()))

    def lstat(self, fields: Reader) -> bytes:
        return bytes([ATTRS]) + self.attributes(os.lstat(fields.string()))

    def fstat(self, fields: Reader) -> bytes:
        return bytes([ATTRS]) + self.attributes(os.fstat(self.files[fields.string()]))

    def change(self, target: bytes | int, fields: Reader, *, follow: bool = True) -> bytes:
        attributes = fields.attributes()
        if "size" in attributes:
            os.truncate(target, *attributes["size"])
        if "mode" in attributes and follow:
            os.chmod(target, attributes["mode"][0] & 0o7777)
        if "times" in attributes:
            atime, mtime = attributes["times"]
            os.utime(target, (atime, mtime), follow_symlinks=follow)
        return self.status(OK)

    def setstat(self, fields: Reader) -> bytes:
        return self.change(fields.string(), fields)

    def fsetstat(self, fields: Reader) -> bytes:
        return self.change(self.files[fields.string()], fields)

    def opendir(self, fields: Reader) -> bytes:
        path = fields.string()
        listing = [b".", b"..", *os.listdir(path)]
        handle = self.handle(path)
        self.listings[handle] = listing
        return bytes([HANDLE]) + string(handle)

    def readdir(self, fields: Reader) -> bytes:
        handle = fields.string()
        batch, self.listings[handle] = self.listings[handle][:100], self.listings[handle][100:]
        directory = self.paths[handle]
        entries = [(name, self.attributes(os.lstat(os.path.join(directory, name)))) for name in batch]
        return self.names(entries) if entries else self.status(EOF)

    def remove(self, fields: Reader) -> bytes:
        os.unlink(fields.string())
        return self.status(OK)

    def mkdir(self, fields: Reader) -> bytes:
        path, attributes = fields.string(), fields.attributes()
        os.mkdir(path, attributes.get("mode", (0o777,))[0] & 0o7777)
        return self.status(OK)

    def rmdir(self, fields: Reader) -> bytes:
        os.rmdir(fields.string())
        return self.status(OK)

    def realpath(self, fields: Reader) -> bytes:
        return self.names([(os.path.realpath(fields.string() or b"."), struct.pack(">I", 0))])

    def rename(self, fields: Reader) -> bytes:
        old, new = fields.string(), fields.string()
        os.link(old, new, follow_symlinks=False)  # version 3's own rename never replaces
        os.unlink(old)
        return self.status(OK)

    def readlink(self, fields: Reader) -> bytes:
        return self.names([(os.readlink(fields.string()), struct.pack(">I", 0))])

    def symlink(self, fields: Reader) -> bytes:
        text, path = fields.string(), fields.string()  # in OpenSSH's order, not the draft's
        os.symlink(text, path)
        return self.status(OK)

    def extended(self, fields: Reader) -> bytes:
        name = fields.string()
        if name not in self.extensions:
            return self.status(OP_UNSUPPORTED)
        match name.split(b"@")[0]:
            case b"posix-rename":
                os.rename(fields.string(), fields.string())
            case b"hardlink":
                os.link(fields.string(), fields.string())
            case b"fsync":
                os.fsync(self.files[fields.string()])
            case b"lsetstat":
                return self.change(fields.string(), fields, follow=False)
            case b"limits":
                return bytes([EXTENDED_REPLY]) + struct.pack(">QQQQ", *self.limits)
            case b"statvfs":
                return bytes([EXTENDED_REPLY]) + struct.pack(">11Q", *self.statvfs(fields.string()))
        return self.status(OK)

    def statvfs(self, path: bytes) -> list[int]:
        of = os.statvfs(path)
        free = [of.f_bsize, of.f_frsize, of.f_blocks, of.f_bfree, of.f_bavail]
        return [*free, of.f_files, of.f_ffree, of.f_favail, 0, 0, of.f_namemax]
