"""The two streams a user reads: stdout for results, stderr for everything else, whatever state they are in.

A stream may be closed, a broken pipe, a full disk, or unable to hold a character: none of that may raise, or change
what the copy itself ends with. Imports only errors.py. Invariant: every line is printable; no name can reach the
terminal as a command.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, TextIO

from fastcopy.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

_STANDARD = (0, 1, 2)


#: Descriptors that the largest job can use: 256 channels with 64 files and 6 of their own each.
_DESCRIPTORS = 20_000


def open_standard_streams() -> None:
    """Put /dev/null where one of fds 0 to 2 is closed, and let no character fail to print. First thing in `main`.

    Without it the next file opened would become fd 1 or 2, and a child's chatter would be written into it.
    """
    for fd in _STANDARD:
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
    sys.stdout = _usable(sys.stdout, 1)
    sys.stderr = _usable(sys.stderr, 2)


def raise_descriptor_limit() -> None:
    """Let this process, which is all the job's, open as many files as the system lets it; the soft limit is low."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS has a further limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _usable(stream: TextIO | None, fd: int) -> TextIO:
    if stream is None:  # what Python makes of an fd that was closed when it started
        return open(fd, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    with contextlib.suppress(AttributeError, OSError, ValueError):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]  # TextIOWrapper, in all but tests
    return stream


class Console:
    """Write lines to stdout and stderr."""

    def result(self, lines: Iterable[str]) -> OSError | None:
        """Write printable `lines` to stdout. Returns what went wrong, if anything."""
        return self._write(sys.stdout, 1, lines)

    def tell(self, lines: Iterable[str]) -> None:
        """Write printable `lines` to stderr; a stderr that does not work is not spoken of."""
        self._write(sys.stderr, 2, lines)

    def complain(self, message: str) -> None:
        """Say one sentence on stderr, under the program's name."""
        self.tell([f"fastcopy: {message}"])

    def _write(self, stream: TextIO | None, fd: int, lines: Iterable[str]) -> OSError | None:
        if stream is None:
            return None
        try:
            stream.write("".join(f"{printable(line)}\n" for line in lines))
            stream.flush()
        except OSError as exc:
            _silence(fd)
            return exc
        except ValueError:  # closed by someone else
            return None
        return None


def _silence(fd: int) -> None:
    """Let what is still buffered for `fd` go nowhere: Python would try again at exit, and end with 120."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, fd)
        os.close(nowhere)
