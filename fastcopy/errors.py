"""Every failure fastcopy can tell a user about, in one tree.

The docstring of a class is the sentence the user reads: `{names}` are filled from the keywords it is raised
with. The class carries the exit code (README, "Exit codes") and whether trying again can help.
Imports nothing of fastcopy. Foreign exceptions are turned into these at the edge that knows them.
"""

from __future__ import annotations

import enum
import string
from typing import Any, ClassVar


class Retry(enum.Enum):
    """Where the same work may be tried again."""

    NEVER = "never"
    SAME_CHANNEL = "same channel"
    OTHER_CHANNEL = "other channel"


class FastcopyError(Exception):
    """{message}"""

    exit_code: ClassVar[int] = 1
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(
        self, message: str = "", *, path: bytes | None = None, offset: int | None = None, **details: Any
    ) -> None:
        """Keep `message`, `path`, `offset` and `details` to fill the class's sentence with.

        Args:
            message: what the system or the peer said, or the whole sentence for classes without one of their own.
            path: the file concerned, as bytes; printed escaped.
            offset: byte offset in that file, where one is known.
            details: further `{names}` of the sentence (`host`, `hint`, ...).
        """
        self.message = message
        self.path = path
        self.offset = offset
        self.details = details
        super().__init__(message)

    @property
    def kind(self) -> str:
        """The name reports use: the class's own."""
        return type(self).__name__

    def __str__(self) -> str:
        values = {"message": self.message, "path": printable(self.path or b""), "offset": self.offset, **self.details}
        return _Sentence().format(type(self).__doc__ or "", **values).strip()


class _Sentence(string.Formatter):
    """Format a docstring; a name nobody gave a value for is left out instead of raising."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        value = kwargs.get(key, "") if isinstance(key, str) else ""
        return printable(value) if isinstance(value, bytes) else "" if value is None else value


def printable(name: bytes | str) -> str:
    r"""Show a file name or a peer's text on one line, with no byte a terminal would act on.

    Control characters (C0, C1, DEL), line and paragraph separators, bidirectional overrides and bytes that are
    not UTF-8 come out as `\xNN` or `\uNNNN`; a backslash stays as it is.
    """
    text = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape: the byte itself
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# --- usage: exit 2 ---------------------------------------------------------------------------------------------


class UsageError(FastcopyError):
    """{message}"""

    exit_code = 2


class InvalidValue(UsageError):
    """{option}: {message}"""


class NothingMatched(UsageError):
    """Nothing to copy: {message}"""


class DuplicateDestination(UsageError):
    """Two sources would both become {path}: {first} and {second}. Copy them in two runs, or to different names."""


# --- reaching the far side: exit 3 -----------------------------------------------------------------------------


class ConnectError(FastcopyError):
    """Could not reach {host}: {message}"""

    exit_code = 3


class HostUnknown(ConnectError):
    """Could not find the host {host}: {message}. Check the name, or add a Host entry to your ssh_config."""


class ConnectionRefused(ConnectError):
    """{host} refused the connection: {message}. Is sshd running there, and on this port (-P)?"""


class ConnectTimeout(ConnectError):
    """{host} did not answer: {message}. Check the address and the firewall between."""


class LoginRefused(ConnectError):
    """{host} refused the login: {message}. Check the user, the key (-i) and what the server accepts."""


class CipherRefused(ConnectError):
    """{host} has none of the ciphers asked for ({asked}); it offers: {offered}. Choose one of those with -c."""


class NoSftp(ConnectError):
    """{host} has no SFTP: {message}. Ask its administrator for a 'Subsystem sftp' line in sshd_config."""


class ServerPrintsText(ConnectError):
    """{host} printed text where SFTP should begin: {message}. A shell start-up file of that account prints it; make it silent for non-interactive logins."""


class TooManyLogins(ConnectError):
    """{host} dropped a login: {message} (MaxStartups in its sshd_config). Ask for fewer with --connections."""

    retry = Retry.SAME_CHANNEL


class TooManySessions(ConnectError):
    """{host} allows no further session on this connection: {message} (MaxSessions in its sshd_config)."""


class ChannelLost(ConnectError):
    """The connection to {host} was lost: {message}. Run the same command again."""

    retry = Retry.OTHER_CHANNEL


class NoProgress(ChannelLost):
    """{host} answered nothing for {timeout_s} s. Run the same command again; --timeout changes how long to wait."""


# --- one file's trouble: exit 4 --------------------------------------------------------------------------------


class FileError(FastcopyError):
    """{path}: {message}"""

    exit_code = 4


class SourceMissing(FileError):
    """{path}: no such file"""


class TargetMissing(FileError):
    """{path}: {message}. The folder to copy into does not exist or went away."""


class PermissionRefused(FileError):
    """{path}: permission denied ({operation} on the {side} side)"""


class SourceChanged(FileError):
    """{path}: changed while it was copied ({message}). Nothing was put under its name; run again once it is at rest."""


class NoSpace(FileError):
    """{path}: no space left on the {side} side ({message})"""


class TargetIsDirectory(FileError):
    """{path}: a directory is in the way on the {side} side. Move it, or copy to another name."""


class TargetNotDirectory(FileError):
    """{path}: a file is in the way on the {side} side, where a directory is needed."""


class NameRefused(FileError):
    """{path}: this name cannot be kept on the {side} side ({message})"""


class LocalError(FileError):
    """{path}: {operation} failed here: {message}"""


class RemoteError(FileError):
    """{path}: {operation} failed on the server: {message}"""


# --- bytes are wrong: exit 5 -----------------------------------------------------------------------------------


class IntegrityError(FastcopyError):
    """{path}: the bytes at the destination are not the source's ({message}). Nothing was put under its name."""

    exit_code = 5


# --- a peer that must not be trusted: exit 6 -------------------------------------------------------------------


class UnsafePeer(FastcopyError):
    """{host}: {message}"""

    exit_code = 6


class HostKeyUnknown(UnsafePeer):
    """The host key of {host} is not known ({message}). Check its fingerprint with the administrator, log in once with ssh to accept it, then run again."""


class HostKeyChanged(UnsafePeer):
    """THE HOST KEY OF {host} HAS CHANGED ({message}). Somebody may be listening, or the host was installed anew. Nothing was sent. If the change is known to be right: ssh-keygen -R {host}"""


class UnsafeName(UnsafePeer):
    """{path}: the server sent a name that would leave the destination ({message})"""


# --- somebody breaks the protocol: exit 7 ----------------------------------------------------------------------


class ProtocolError(FastcopyError):
    """The server broke the SFTP protocol: {message}"""

    exit_code = 7


#: Which exit code wins when several hold (design: 6, then 5, 7, 3, 4).
EXIT_PRECEDENCE = (6, 5, 7, 3, 4)
