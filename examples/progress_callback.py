"""Hear what happens while a copy runs. usage: progress_callback.py SRC... DST"""

import asyncio
import sys

import fastcopy
from fastcopy.events import BytesMoved, Event, FileDone, Found, Warned


class Printer:
    """A listener: called on the loop's thread, so it must be quick and must not raise."""

    def __init__(self) -> None:
        self.found = self.moved = 0

    def __call__(self, event: Event) -> None:
        match event:
            case Found():
                self.found += event.size_bytes
            case BytesMoved():
                self.moved += event.count
                sys.stdout.write(f"{self.moved} of {self.found} bytes\n")
            case FileDone():
                sys.stdout.write(f"{event.outcome}: {event.path!r}\n")
            case Warned():
                sys.stdout.write(f"warning: {event.message}\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.stderr.write("usage: progress_callback.py SRC... DST\n")
        sys.exit(2)
    try:
        report = asyncio.run(fastcopy.copy(sys.argv[1:-1], sys.argv[-1], listener=Printer()))
        sys.exit(report.exit_code)
    except fastcopy.FastcopyError as error:
        sys.exit(str(error))
