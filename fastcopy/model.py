"""The nouns every layer shares: sides, directions, file attributes, entries, ranges. Values only.

Imports nothing of fastcopy. Paths are bytes; ranges are half-open [start, stop); sizes are bytes, times seconds.
"""

from __future__ import annotations

import enum
import stat
from dataclasses import dataclass


class Side(enum.Enum):
    """One of the two ends of a copy, seen from this process."""

    LOCAL = "local"
    REMOTE = "remote"


class Direction(enum.Enum):
    """Which way the bytes go."""

    PUT = "put"
    GET = "get"
    LOCAL = "local"
    RELAY = "relay"


class FileKind(enum.Enum):
    """What stands behind a name."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    SPECIAL = "special"  # FIFO, socket, device: never opened
    UNKNOWN = "unknown"  # a server that sent no permissions

    @classmethod
    def of_mode(cls, mode: int | None) -> FileKind:
        """Return the kind that the S_IFMT bits of `mode` name."""
        if mode is None or not stat.S_IFMT(mode):
            return cls.UNKNOWN
        return _KINDS.get(stat.S_IFMT(mode), cls.SPECIAL)


_KINDS = {stat.S_IFREG: FileKind.FILE, stat.S_IFDIR: FileKind.DIRECTORY, stat.S_IFLNK: FileKind.SYMLINK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What a file system says of one name; None where it did not say.

    `mode` holds type and permission bits as st_mode does. SFTP v3 has whole seconds, so
    `mtime_ns` is set for local files only.
    """

    size: int | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    atime_s: int | None = None
    mtime_s: int | None = None
    mtime_ns: int | None = None
    inode: int | None = None

    @property
    def kind(self) -> FileKind:
        return FileKind.of_mode(self.mode)

    @property
    def permissions(self) -> int | None:
        """The permission bits alone (07777)."""
        return None if self.mode is None else stat.S_IMODE(self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name to copy: where it comes from, where it goes, what it is.

    `source` and `target` are paths on their sides (a local target's is relative to the destination's folder).
    `link` is a symlink's text, `mode` the permission bits the target shall have; None leaves them to the server.
    """

    source: bytes
    target: bytes
    attributes: Attributes
    link: bytes | None = None
    mode: int | None = None

    @property
    def size(self) -> int:
        """Bytes to copy; 0 where the size is not known."""
        return self.attributes.size or 0


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The bytes [start, stop) of a file."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ValueError(f"not a range: [{self.start}, {self.stop})")

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUsage:
    """CPU seconds spent by a set of processes."""

    user_s: float = 0.0
    system_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s

    def __add__(self, other: CpuUsage) -> CpuUsage:
        return CpuUsage(user_s=self.user_s + other.user_s, system_s=self.system_s + other.system_s)

    def __sub__(self, other: CpuUsage) -> CpuUsage:
        return CpuUsage(user_s=self.user_s - other.user_s, system_s=self.system_s - other.system_s)
