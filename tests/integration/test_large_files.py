"""Offsets beyond 2 and 4 GiB (case A26), with files that are mostly holes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.trees import sparse_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.route import Route

SIZE = (5 << 30) + 3
#: A mark across each boundary at which a program that counts in 31 or 32 bits goes wrong, one at each end.
MARKS = {
    0: b"first bytes",
    (1 << 31) - 9: b"around 2 GiB mark",
    (1 << 32) - 9: b"around 4 GiB mark",
    SIZE - 10: b"last bytes",
}
_BLOCK_BYTES = 8 << 20


@pytest.fixture
def disk() -> Iterator[Path]:
    """A directory on a disk, not in memory: the copy has no holes."""
    directory = Path(tempfile.mkdtemp(prefix="fastcopy-large-", dir="/var/tmp"))
    yield directory
    shutil.rmtree(directory)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_gibibytes_with_marks(each_direction: Route, disk: Path) -> None:
    """A26: 5 GiB in chunks over two logins: every mark and every byte between is where it was."""
    source = sparse_file(disk / "source", SIZE, MARKS)
    outcome = each_direction.copy(source, to=disk / "copy", options=("-n", 4, "--connections", 2), timeout_s=500)
    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.report["bytes"]["copied"] == SIZE
    assert (disk / "copy").stat().st_size == SIZE
    assert first_difference(source, disk / "copy") is None


def first_difference(left: Path, right: Path) -> int | None:
    """Return the offset of the first block in which two files differ; None when they are equal."""
    with left.open("rb") as one, right.open("rb") as other:
        while block := one.read(_BLOCK_BYTES):
            if block != other.read(_BLOCK_BYTES):
                return one.tell() - len(block)
        return None if not other.read(1) else one.tell()
