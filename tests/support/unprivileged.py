"""Runs a part of a test without root's right to read and write everything, so that permissions mean something."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Source: Debian's `nobody`; any number that owns nothing will do.
_NOBODY = 65534


@contextlib.contextmanager
def unprivileged_in(directory: bytes) -> Iterator[None]:
    """Make `directory` the working directory and, as root, lose all rights; paths inside must be relative to it.

    Relative, because the directories above a test's own are closed to others.
    """
    before = os.open(".", os.O_RDONLY)
    os.chdir(directory)
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        os.fchdir(before)
        os.close(before)
