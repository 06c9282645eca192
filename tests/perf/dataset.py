"""What is copied: files of random bytes in memory, written once and read once before anybody is timed.

Values that know how to make themselves. Invariant: nothing here compresses, repeats within a file, or is sparse.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """`files` files of `file_bytes`; with `directories`, spread over as many in one tree."""

    files: int
    file_bytes: int
    directories: int = 0

    @property
    def total_bytes(self) -> int:
        return self.files * self.file_bytes

    def make(self, root: Path) -> tuple[Path, ...]:
        """Write the files below `root`, read them, and return what a contestant is to copy."""
        if not self.directories:
            paths = [root / f"dump{number:02}.dmp" for number in range(self.files)]
        else:
            per_directory = self.files // self.directories
            paths = [
                root / "tree" / f"d{number // per_directory:03}" / f"f{number:05}.dat" for number in range(self.files)
            ]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, self.file_bytes)
            _read(path)
        return (root / "tree",) if self.directories else tuple(paths)


def _write(path: Path, count: int) -> None:
    with path.open("wb", buffering=0) as file:
        while count > 0:
            count -= file.write(os.urandom(min(count, _PIECE_BYTES)))


def _read(path: Path) -> None:
    buffer = bytearray(_PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
