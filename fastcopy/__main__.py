"""Where the command `fastcopy` and `python -m fastcopy` begin.

`--version` is answered before anything heavy is imported. Invariant: fds 0, 1 and 2 are open from the first moment
on, so that no file of the user's ever gets such a number.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    from fastcopy.cli.console import Console, open_standard_streams

    open_standard_streams()
    words = sys.argv[1:]
    if words[:1] == ["--version"]:
        from fastcopy import __version__

        Console().result([f"fastcopy {__version__}"])
        return 0
    try:
        from fastcopy.cli.app import run

        return run(words)
    except KeyboardInterrupt:  # while still importing
        return 130


if __name__ == "__main__":
    sys.exit(main())
