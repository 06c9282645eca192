"""How large the next chunk is, in round numbers."""

from __future__ import annotations

import pytest

from fastcopy.model import Range
from fastcopy.plan.chunks import chunk_at, chunk_bytes

MIB = 1 << 20


@pytest.mark.parametrize(
    ("left_bytes", "channels", "expected"),
    [
        (0, 4, 4 * MIB),
        (100 * MIB, 8, 4 * MIB),
        (600 * MIB, 8, 13 * MIB),
        (2048 * MIB, 2, 64 * MIB),
        (300 * MIB, 2, 25 * MIB),
        (1 << 40, 8, 64 * MIB),
        (100 * MIB, 1, 64 * MIB),
    ],
)
def test_a_chunk_is_a_sixth_of_a_channels_share(left_bytes: int, channels: int, expected: int) -> None:
    """A sixth of a channel's share of what is left, in whole MiB, 4 to 64; a lone channel shares with nobody."""
    assert chunk_bytes(left_bytes, channels) == expected


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [
        (0, 1, Range(0, 1)),
        (0, 8 * MIB, Range(0, 8 * MIB)),
        (0, 9 * MIB - 1, Range(0, 9 * MIB - 1)),
        (0, 9 * MIB, Range(0, 8 * MIB)),
        (8 * MIB, 9 * MIB, Range(8 * MIB, 9 * MIB)),
    ],
)
def test_a_rest_too_small_for_a_chunk_joins_the_last(start: int, size: int, expected: Range) -> None:
    """No chunk of under 1 MiB stands behind another."""
    assert chunk_at(start, size, 8 * MIB) == expected
