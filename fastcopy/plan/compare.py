"""Whether a file needs copying at all, and what mode and time its copy gets.

Pure: it compares attributes that others fetched, and is told the time.
Invariant: in doubt a file is copied again; no bit of a mode is taken over that gives more rights than were asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastcopy.model import FileKind

if TYPE_CHECKING:
    from fastcopy.model import Attributes

#: Seconds. mtimes have whole seconds here, so a file may change again within one unseen. Source: design.md section 4.
UNSETTLED_S = 2.0
#: Seconds. How far the source's clock may be ahead of ours; a later mtime is a made-up date, not a clock. Our choice.
CLOCK_AHEAD_S = 86_400.0
#: Seconds since 1970. Source: draft-ietf-secsh-filexfer-02 section 5 (atime and mtime are uint32).
MAX_SFTP_TIME_S = 0xFFFF_FFFF

_PERMISSIONS = 0o777
_DIRECTORY_PERMISSIONS = 0o1777
_DEFAULT_FILE_MODE = 0o666
_DEFAULT_DIRECTORY_MODE = 0o777


def is_current(source: Attributes, target: Attributes | None, *, now_s: float, force: bool) -> bool:
    """Tell whether `target` is the copy of `source` already, so that nothing needs to move.

    It is when both are regular files of equal size and equal mtime in whole seconds, `force` was not asked for, and
    the source is at rest: it last changed over 2 s before `now_s`. A source from a clock ahead of ours (by up to a
    day) counts as not at rest. What is not known is not equal.
    """
    if force or target is None:
        return False
    if source.kind is not FileKind.FILE or target.kind is not FileKind.FILE:
        return False
    changed_s, kept_s = _mtime_s(source), _mtime_s(target)
    if source.size is None or source.size != target.size or changed_s is None:
        return False
    # A time SFTP cannot carry was clamped when the copy was made.
    if kept_s not in (changed_s, clamp_sftp_time(changed_s)):
        return False
    return not now_s - UNSETTLED_S <= changed_s <= now_s + CLOCK_AHEAD_S


def _mtime_s(attributes: Attributes) -> int | None:
    if attributes.mtime_s is None and attributes.mtime_ns is not None:
        return attributes.mtime_ns // 1_000_000_000
    return attributes.mtime_s


def final_mode(source: Attributes, target: Attributes | None, *, umask: int, preserve: bool) -> int:
    """Return the permission bits a copied file gets.

    | preserve | target | mode |
    | --- | --- | --- |
    | no | a regular file | the target's |
    | no | missing, or another kind (replaced) | the source's & ~umask |
    | yes | any | the source's |

    Set-id and sticky bits are never among them, as in sftp: without its owner a set-id file is another program.
    A mode the source's side did not tell counts as 0666 & ~umask, or stays the target's.
    """
    kept = target.permissions if target is not None and target.kind is FileKind.FILE else None
    return _mode(source.permissions, kept, _DEFAULT_FILE_MODE, umask, preserve) & _PERMISSIONS


def final_directory_mode(source: Attributes, target: Attributes | None, *, umask: int, preserve: bool) -> int:
    """Return the permission bits a copied directory gets, by the table of `final_mode`.

    A directory that was there keeps all its bits without `preserve`. Of the source's, the sticky bit is taken over
    (without it more people could delete there), the set-id bits are not.
    """
    kept = target.permissions if target is not None and target.kind is FileKind.DIRECTORY else None
    if kept is not None and (not preserve or source.permissions is None):
        return kept
    return _mode(source.permissions, None, _DEFAULT_DIRECTORY_MODE, umask, preserve) & _DIRECTORY_PERMISSIONS


def _mode(source: int | None, kept: int | None, default: int, umask: int, preserve: bool) -> int:
    if preserve and source is not None:
        return source
    if kept is not None:
        return kept
    return (default if source is None else source) & ~umask


def clamp_sftp_time(seconds: int) -> int:
    """Return the nearest time SFTP version 3 can carry: 1970 to 2106."""
    return min(max(seconds, 0), MAX_SFTP_TIME_S)
