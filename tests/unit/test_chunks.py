"""How files are cut, in round numbers."""

from __future__ import annotations

import pytest

from fastcopy.model import Range
from fastcopy.plan.chunks import chunk_bytes, chunk_count, cut

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "channels", "expected"),
    [
        (0, 4, 8 * MIB),
        (100 * MIB, 8, 8 * MIB),
        (600 * MIB, 8, 19 * MIB),
        (2048 * MIB, 4, 64 * MIB),
        (1 << 40, 8, 64 * MIB),
        (100 * MIB, 1, 64 * MIB),
    ],
)
def test_each_channel_gets_about_four_chunks(size: int, channels: int, expected: int) -> None:
    """A quarter of a channel's share, in whole MiB, between 8 and 64; a lone channel has no one to share with."""
    assert chunk_bytes(size, channels) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, []),
        (1, [Range(0, 1)]),
        (8 * MIB, [Range(0, 8 * MIB)]),
        (8 * MIB + 1, [Range(0, 8 * MIB + 1)]),
        (9 * MIB - 1, [Range(0, 9 * MIB - 1)]),
        (9 * MIB, [Range(0, 8 * MIB), Range(8 * MIB, 9 * MIB)]),
        (17 * MIB, [Range(0, 8 * MIB), Range(8 * MIB, 16 * MIB), Range(16 * MIB, 17 * MIB)]),
    ],
)
def test_a_rest_too_small_for_a_chunk_joins_the_last(size: int, expected: list[Range]) -> None:
    """No chunk of under 1 MiB stands behind another."""
    assert cut(size, 2) == expected
    assert chunk_count(size, 8 * MIB) == len(expected)
