"""The user's terminal, while the first login may ask on it.

ssh asks there by itself (/dev/tty); but what it only logs goes to our `-E` file, and some of that belongs to the
conversation: what a one-time-code server tells, "please try again". Must not read from the terminal.
Invariants: a peer's text is printed without any control character; a login that fails leaves the terminal's settings
as they were.
"""

from __future__ import annotations

import os
import re
import termios
from typing import Any

from fastcopy.errors import printable

_ASKING = re.compile(r"^debug1: Next authentication method: (?:keyboard-interactive|password)")
_NOT_ASKING = re.compile(r"^(?:debug1: Next authentication method: |Authenticated to |debug1: No more authentication)")
#: Ours to tell, as the job's error (ssh_diagnosis), or no news to a person.
_NOT_TOLD = re.compile(r"^debug\d: |^\S+: Permission denied \(|^Received disconnect|^Disconnected|^Connection |^$")


def open_terminal() -> int | None:
    """Open the terminal for writing if there is one and we are in its foreground; else None.

    A job in the background must not ask: reading would stop it until somebody looks.
    """
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    if is_foreground(fd):
        return fd
    os.close(fd)
    return None


def is_foreground(terminal_fd: int) -> bool:
    """Tell whether we may use the terminal without being stopped for it."""
    try:
        return os.tcgetpgrp(terminal_fd) == os.getpgrp()
    except OSError:
        return False


class Conversation:
    """One login on the terminal: shows what ssh logs and a person answering it should see."""

    def __init__(self, terminal_fd: int) -> None:
        """Write to `terminal_fd`, which stays the caller's."""
        self._fd = terminal_fd
        self._begun_line = ""
        self._is_asking = False
        self._settings: list[Any] | None
        try:
            self._settings = termios.tcgetattr(terminal_fd)
        except termios.error:  # no terminal: nothing to restore
            self._settings = None

    def restore(self) -> None:
        """Undo what an ssh that was ended while it asked has left behind: no echo.

        ssh does so itself on a signal, unless that comes between its setting the terminal and its reading from it.
        """
        if self._settings is not None and is_foreground(self._fd):
            termios.tcsetattr(self._fd, termios.TCSANOW, self._settings)

    def hear(self, text: str) -> None:
        """Take the next piece of ssh's log."""
        *lines, self._begun_line = (self._begun_line + text).split("\n")
        for line in lines:
            line = line.rstrip("\r")
            if _ASKING.match(line):
                self._is_asking = True
            elif _NOT_ASKING.match(line):
                self._is_asking = False
            if line.startswith("Warning: Permanently added") or (self._is_asking and not _NOT_TOLD.match(line)):
                os.write(self._fd, (printable(line) + "\r\n").encode())
