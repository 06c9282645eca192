"""Asking a person on the terminal: a password unseen, a yes or no seen.

Owns the terminal's modes while it asks, and restores them whatever happens. Never reads stdin: that may be data.
Invariant: without a terminal in our foreground nobody is asked, and nothing waits.
"""

from __future__ import annotations

import asyncio
import os
import select
import termios

from fastcopy.connection.ssh_conversation import open_terminal

#: A prompt that ends so asks for no secret: what is typed is shown.
SEEN = "(yes/no)? "
#: Seconds between looks at the keyboard; nobody types faster.
_LOOK_S = 0.05


async def ask(prompt: str) -> str | None:
    """Show `prompt` on the terminal and return what is typed, without its line end.

    What is typed is not shown, unless the prompt ends in SEEN.
    Returns: None where there is no terminal, or nobody typed anything (Ctrl-D).
    Cancellation: the terminal shows again what is typed.
    """
    fd = open_terminal()
    if fd is None:
        return None
    try:
        return await _ask(fd, prompt, shows=prompt.endswith(SEEN))
    finally:
        os.close(fd)


async def _ask(fd: int, prompt: str, *, shows: bool) -> str | None:
    before = termios.tcgetattr(fd)
    modes = termios.tcgetattr(fd)
    if not shows:
        modes[3] &= ~(termios.ECHO | termios.ECHONL)
    modes[3] |= termios.ICANON | termios.ISIG
    termios.tcsetattr(fd, termios.TCSAFLUSH, modes)
    try:
        os.write(fd, prompt.encode())
        line = await _line(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        if not shows:
            os.write(fd, b"\n")  # the one that was typed was not shown
    if not line:
        return None
    return line.removesuffix(b"\n").decode("utf-8", "surrogateescape")


async def _line(fd: int) -> bytes:
    """Read one line; b"" at the end of input. The terminal gives it as a whole."""
    # Looking, and not add_reader: macOS's kqueue refuses /dev/tty.
    while not select.select([fd], [], [], 0)[0]:  # noqa: ASYNC110 -- there is no event to wait for
        await asyncio.sleep(_LOOK_S)
    return os.read(fd, 4096)
