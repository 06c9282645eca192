"""Names as bytes: what a component may be, what a part file is called, how paths are put together.

Pure: bytes in, bytes out; it never asks a file system. Paths are POSIX paths of either side.
Invariant: whatever `part_name` makes passes `check_component` and is known again by `is_part_name`.
"""

from __future__ import annotations

import re

from fastcopy.errors import UnsafeName

#: Bytes. Source: NAME_MAX of Linux and macOS, and of every file system a dump lies on.
MAX_NAME_BYTES = 255
#: Characters of the random token in a part file's name. Source: reliability.md, law 4.
TOKEN_BYTES = 8

_MARK = b".fastcopy-"
_END = b".part"
_PART = re.compile(rb"\..+" + re.escape(_MARK) + rb"[0-9A-Za-z]{%d}" % TOKEN_BYTES + re.escape(_END), re.DOTALL)
_TOKEN = re.compile(rb"[0-9A-Za-z]{%d}" % TOKEN_BYTES)
_SLASHES = re.compile(rb"/(?:\.?/)+")


def check_component(name: bytes, *, host: str = "") -> None:
    """Let pass only what names one thing directly beneath its directory.

    Args:
        name: one component, as a server listed it or as a path was split.
        host: who sent it, for the message.
    Raises: UnsafeName when it is empty, ".", "..", holds "/" or NUL, or has over 255 bytes.
    """
    why = _fault(name)
    if why:
        raise UnsafeName(why, path=name, host=host)


def _fault(name: bytes) -> str:
    if not name:
        return "it is empty"
    if name in (b".", b".."):
        return "it means another directory"
    if b"/" in name:
        return "it holds a slash"
    if b"\0" in name:
        return "it holds a NUL byte"
    if len(name) > MAX_NAME_BYTES:
        return f"it has {len(name)} bytes, over {MAX_NAME_BYTES}"
    return ""


def part_name(name: bytes, token: bytes) -> bytes:
    """Return what the unfinished file `name` is called: `.NAME.fastcopy-TOKEN.part`, of at most 255 bytes.

    A long NAME is cut; never inside a UTF-8 character, so that file systems which insist on UTF-8 take it.

    Args:
        name: the final name, one component.
        token: 8 random characters out of 0-9, a-z, A-Z.
    Raises: ValueError for another token: it is made by us, so that is a bug.
    """
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"not a token of {TOKEN_BYTES} letters and digits: {token!r}")
    room = MAX_NAME_BYTES - len(b"." + _MARK + token + _END)
    return b"." + _cut(name, room) + _MARK + token + _END


def _cut(name: bytes, room: int) -> bytes:
    if len(name) <= room:
        return name
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        return name[:room]
    return name[:room].decode("utf-8", "ignore").encode("utf-8")  # leaves out the character the cut went through


def is_part_name(name: bytes) -> bool:
    """Tell whether `name` looks like an unfinished file of ours, which is never copied as a source."""
    return _PART.fullmatch(name) is not None


def join(directory: bytes, name: bytes) -> bytes:
    """Return the path of `name` in `directory`; b"" is the directory that relative paths begin in."""
    if not directory or directory.endswith(b"/"):
        return directory + name
    return directory + b"/" + name


def parent(path: bytes) -> bytes:
    """Return the directory `path` lies in: b"/" for what is at the top, b"" for a relative name alone."""
    trimmed = path.rstrip(b"/")
    if not trimmed:
        return path[:1]
    directory = trimmed[: trimmed.rfind(b"/") + 1]
    return directory.rstrip(b"/") or directory[:1]


def base(path: bytes) -> bytes:
    """Return the last component of `path`, slashes behind it not counted; b"" for b"/"."""
    trimmed = path.rstrip(b"/")
    return trimmed[trimmed.rfind(b"/") + 1 :]


def clean(path: bytes) -> bytes:
    """Return `path` without doubled slashes, `.` components and slashes at the end; the same file in every case.

    `..` stays, because behind a symlink it is not undone by the component before it. So does a leading `./` before
    `~`, where dropping it would change what is meant. What a slash at the end says must be asked before.
    """
    path = _SLASHES.sub(b"/", path)
    if path.endswith(b"/."):
        path = path[:-1]
    path = path.rstrip(b"/") or path
    return path[2:] if path.startswith(b"./") and not path.startswith(b"./~") else path
