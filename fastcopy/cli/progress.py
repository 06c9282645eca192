"""The moving part of the display: one tqdm bar on stderr while bytes move, and warnings as they come.

A bar only on a terminal that has a width; elsewhere nothing moves. The bar shows counts, never names. tqdm is
imported in a thread, while the job logs in, and the bar waits for it rather than the job.
Invariant: a listener never raises and never blocks on anything but the terminal.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastcopy.events import BytesMoved, ChannelsChanged, FileDone, Found, PhaseBegan, Warned
from fastcopy.plan.sizes import format_bytes, format_rate

if TYPE_CHECKING:
    from typing import TextIO

    from fastcopy.cli.console import Console
    from fastcopy.events import Event

#: tqdm fills the braces; the words in capitals are ours.
_BAR = "{percentage:3.0f}%|{bar}| SIZES, RATE, {remaining} left, WORDS"
_BAR_WHILE_LISTING = "SIZES found so far, RATE, WORDS"


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the events said so far. `Found` counts what is to be copied; what is skipped is not among it."""

    files: int = 0
    files_copied: int = 0
    files_failed: int = 0
    files_skipped: int = 0
    bytes: int = 0
    bytes_moved: int = 0
    listed: bool = False
    channels: int = 0
    phase: str = ""

    def hear(self, event: Event) -> None:
        match event:
            case Found():
                self.files += event.files
                self.bytes += event.size_bytes
                self.listed = self.listed or event.complete
            case BytesMoved():
                self.bytes_moved += event.count
            case FileDone(outcome="copied"):
                self.files_copied += 1
            case FileDone(outcome="skipped"):
                self.files_skipped += 1
            case FileDone():
                self.files_failed += 1
            case ChannelsChanged():
                self.channels = event.channels
            case PhaseBegan():
                self.phase = event.phase
            case _:
                pass

    @property
    def total_bytes(self) -> int:
        """Bytes there are to move, never less than have been moved."""
        return max(self.bytes, self.bytes_moved, 0)

    def sizes(self) -> str:
        """Return how far it is: `1.5 GiB of 9.3 GiB`."""
        return f"{format_bytes(max(self.bytes_moved, 0))} of {format_bytes(self.total_bytes)}"

    def words(self) -> str:
        """Return what the bar says beside the bytes: `3/10 files, 1 failed, 4 channels`."""
        done = self.files_copied + self.files_failed
        parts = [f"{done}/{max(self.files, done)} files"]
        if self.files_failed:
            parts.append(f"{self.files_failed} failed")
        if self.channels:
            parts.append(f"{self.channels} channel{'' if self.channels == 1 else 's'}")
        if self.phase in ("verify", "commit"):
            parts.append(self.phase)
        return ", ".join(parts)


def has_width(stream: TextIO | None) -> bool:
    """Tell whether `stream` is a terminal on which a bar can be drawn."""
    try:
        return stream is not None and stream.isatty() and os.get_terminal_size(stream.fileno()).columns > 0
    except (OSError, ValueError):
        return False


class Progress:
    """The listener of the command line. Call it with events, `close` it before anything else is printed."""

    def __init__(self, console: Console, stream: TextIO | None, *, quiet: bool = False) -> None:
        """Prepare.

        Args:
            console: where warnings go.
            stream: where the bar goes, if it is a terminal with a width.
            quiet: neither bar nor warnings.
        """
        self.tally = Tally()
        self.told: set[str] = set()
        self._console = console
        self._quiet = quiet
        self._stream = stream if not quiet and has_width(stream) else None
        self._began_s = time.monotonic()
        self._bar: Any = None
        self._tqdm_ready = threading.Event()
        if self._stream is not None:
            threading.Thread(target=self._import_tqdm, name="fastcopy-import-tqdm", daemon=True).start()

    def __call__(self, event: Event) -> None:
        self.tally.hear(event)
        if isinstance(event, Warned):
            self._warn(event.message)
        elif self._stream is not None:
            self._draw()

    def close(self) -> None:
        """Take the bar off the screen. Idempotent."""
        bar, self._bar, self._stream = self._bar, None, None
        if bar is not None:
            bar.clear()  # tqdm's own close leaves a bar that was only refreshed
            bar.close()

    def _warn(self, message: str) -> None:
        if self._quiet or message in self.told:
            return
        self.told.add(message)
        if self._bar is not None:
            self._bar.clear()
        self._console.complain(f"warning: {message}")
        if self._bar is not None:
            self._bar.refresh()

    def _draw(self) -> None:
        if self._bar is None:
            # Not while logging in: ssh may be asking for a password on this terminal.
            if self.tally.bytes_moved <= 0 or not self._tqdm_ready.is_set():
                return
            self._bar = self._make_bar()
        bar, tally = self._bar, self.tally
        form = _BAR if tally.listed else _BAR_WHILE_LISTING
        average = tally.bytes_moved / max(time.monotonic() - self._began_s, 0.001)
        rate = format_rate(bar.format_dict["rate"] or average)
        bar.bar_format = form.replace("SIZES", tally.sizes()).replace("RATE", rate).replace("WORDS", tally.words())
        bar.total = tally.total_bytes
        bar.update(tally.bytes_moved - bar.n)

    def _make_bar(self) -> Any:
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # no thread of its own: events come several times a second
        tqdm.set_lock(threading.RLock())  # nor a semaphore of multiprocessing
        bar = tqdm(
            total=0,
            dynamic_ncols=True,
            leave=False,
            file=self._stream,
            delay=0.001,  # not before it has its first figures
        )
        bar.start_t = bar.last_print_t = time.time() - (time.monotonic() - self._began_s)
        return bar

    def _import_tqdm(self) -> None:
        import tqdm  # noqa: F401  (the import is the point: it fills sys.modules)

        self._tqdm_ready.set()
