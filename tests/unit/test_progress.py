"""The display while a copy runs: what is counted, when a bar is drawn, and that no name reaches the terminal raw."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from typing import TYPE_CHECKING, TextIO

import pytest

from fastcopy.cli.console import Console
from fastcopy.cli.progress import Progress, Tally, has_width
from fastcopy.events import BytesMoved, ChannelsChanged, FileDone, Found, PhaseBegan, Warned

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminal:
    """A pseudo terminal of a given width; what was written to it can be read back."""

    def __init__(self, columns: int) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0))
        self.stream: TextIO = os.fdopen(slave, "w")

    def shown(self) -> str:
        self.stream.flush()
        os.set_blocking(self._master, False)
        try:
            return os.read(self._master, 1 << 16).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal(120)
    yield terminal
    terminal.close()


def a_copy(progress: Progress) -> None:
    """Two of three files are copied, one fails."""
    progress(PhaseBegan(phase="copy"))
    progress(Found(files=3, size_bytes=4 << 20, complete=True))
    progress(ChannelsChanged(channels=2, connections=1))
    progress(BytesMoved(count=1 << 20))
    for outcome in ("copied", "copied", "failed"):
        progress(FileDone(path=b"x\x1b[2J", size_bytes=1 << 20, outcome=outcome))
    progress(BytesMoved(count=1 << 20))


def ready(progress: Progress) -> Progress:
    """Wait until the bar can be drawn."""
    assert progress._tqdm_ready.wait(timeout=60)
    return progress


def test_events_add_up() -> None:
    """Counts follow the events; work that is undone is taken off; skipped files were never among those to copy."""
    tally = Tally()
    for event in (
        Found(files=2, size_bytes=100),
        Found(files=1, size_bytes=50, complete=True),
        BytesMoved(count=80),
        BytesMoved(count=-30),
        FileDone(path=b"a", size_bytes=50, outcome="copied"),
        FileDone(path=b"b", size_bytes=50, outcome="failed"),
        FileDone(path=b"c", size_bytes=9, outcome="skipped"),
        ChannelsChanged(channels=1, connections=1),
    ):
        tally.hear(event)
    assert (tally.bytes_moved, tally.total_bytes, tally.listed) == (50, 150, True)
    assert tally.words() == "2/3 files, 1 failed, 1 channel"


def test_the_total_never_lies_below_what_was_moved() -> None:
    """Resent bytes may exceed what was found; the bar then stands at its end, not beyond."""
    tally = Tally(bytes=10, bytes_moved=12)
    assert tally.total_bytes == 12


def test_a_terminal_shows_a_bar_and_leaves_no_trace(terminal: Terminal) -> None:
    """On a terminal bytes, rate and channels are shown, no name is, and at the end the line is empty again."""
    progress = ready(Progress(Console(), terminal.stream))
    a_copy(progress)
    assert progress._bar is not None
    progress._bar.refresh()
    shown = terminal.shown()
    assert "2.0 MiB of 4.0 MiB, " in shown
    assert "iB/s" in shown
    assert "3/3 files, 1 failed, 2 channels" in shown
    assert "\x1b[2J" not in shown
    progress.close()
    assert terminal.shown().rstrip("\r").rpartition("\r")[2].strip() == ""


def test_no_bar_while_logging_in(terminal: Terminal) -> None:
    """Before the first byte nothing is drawn: ssh may be asking for a password there."""
    progress = ready(Progress(Console(), terminal.stream))
    progress(PhaseBegan(phase="connect"))
    progress(Found(files=1, size_bytes=10))
    progress.close()
    assert terminal.shown() == ""


@pytest.mark.parametrize("what", ["no columns", "quiet", "file", "closed", "none"])
def test_elsewhere_nothing_is_drawn(what: str) -> None:
    """A terminal of no width, -q, a file, a closed or a missing stream: no bar and no error."""
    terminal = Terminal(0 if what == "no columns" else 80)
    stream: TextIO | None = terminal.stream
    if what in ("file", "closed"):
        stream = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if what == "closed" and stream is not None:
        stream.close()
    progress = Progress(Console(), None if what == "none" else stream, quiet=what == "quiet")
    a_copy(progress)
    progress.close()
    assert terminal.shown() == ""
    assert progress._bar is None
    if what == "file" and stream is not None:
        stream.close()
    terminal.close()


def test_has_width(terminal: Terminal) -> None:
    """Only a terminal with columns can hold a bar."""
    narrow = Terminal(0)
    assert (has_width(terminal.stream), has_width(narrow.stream), has_width(None)) == (True, False, False)
    narrow.close()


def test_a_warning_is_told_once_and_printable(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning appears when it comes, once, on stderr, with its control characters escaped."""
    progress = Progress(Console(), None)
    for _ in range(2):
        progress(Warned(message="going on\x1b[31m with 3 channels"))
    captured = capsys.readouterr()
    assert captured.err == "fastcopy: warning: going on\\x1b[31m with 3 channels\n"
    assert captured.out == ""


def test_quiet_tells_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """-q is silent about what stops nothing."""
    Progress(Console(), None, quiet=True)(Warned(message="going on"))
    assert capsys.readouterr().err == ""
