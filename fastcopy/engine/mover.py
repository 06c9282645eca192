"""The Protocol of the half of a copy that knows its direction: put.py and get.py.

Every method gives steps (sftp/operation.py) that run in a channel's pump thread, local disk calls included.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from fastcopy.sftp import operations, packets
from fastcopy.sftp.operation import StatusError

if TYPE_CHECKING:
    from fastcopy.model import Attributes, Entry, Range
    from fastcopy.plan.ranges import RangeSet
    from fastcopy.sftp.client import SftpClient
    from fastcopy.sftp.operation import Steps


class OpenRefused(StatusError):
    """A bare Failure in answer to OPEN: perhaps the server has no handle left, and fewer files at once would do."""


def open_handle(path: bytes, flags: int, attributes: Attributes | None = None) -> Steps[bytes]:
    """Open a file and return its handle. Raises: OpenRefused; StatusError for every other refusal."""
    try:
        return (yield from operations.open_handle(path, flags, attributes))
    except StatusError as exc:
        if exc.code == packets.FAILURE:
            raise OpenRefused(exc.code, exc.message) from exc
        raise


class Mover(Protocol):
    """How one file is moved, in one direction."""

    #: Whether the server is the side that is read.
    of_source: bool
    #: What the user should be told once, in order of appearance.
    warnings: list[str]
    #: Part files on the server that lost channels left.
    orphans: list[bytes]

    def whole(self, client: SftpClient, entry: Entry) -> Steps[int]:
        """Copy one file from beginning to end: part file, bytes, mode and times, rename. Result: bytes moved."""
        ...

    def link(self, client: SftpClient, entry: Entry) -> Steps[bool]:
        """Make one symlink. Result: False when it was there already."""
        ...

    def begin(self, client: SftpClient, entry: Entry) -> Steps[Any]:
        """Create the part file of a file that several channels copy. Result: the part, for the methods below."""
        ...

    def chunk(self, client: SftpClient, part: Any, span: Range, done: RangeSet) -> Steps[None]:
        """Copy one chunk; `done` gets what was acknowledged, also when this fails."""
        ...

    def commit(self, client: SftpClient, part: Any) -> Steps[None]:
        """Check size and source, set mode and times, rename. The part must be `discard`ed when this fails."""
        ...

    def discard(self, client: SftpClient | None, part: Any) -> Steps[None]:
        """Remove the part file as well as can be; frees what is held locally in any case."""
        ...

    def sweep(self, client: SftpClient) -> Steps[None]:
        """Remove `orphans`; those that are still there afterwards stay in the list."""
        ...


def token() -> bytes:
    """Return 8 random characters for a part file's name."""
    return os.urandom(4).hex().encode("ascii")
