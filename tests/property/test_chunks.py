"""However a file is cut, the chunks are the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from fastcopy.plan.chunks import MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, chunk_at, chunk_bytes

if TYPE_CHECKING:
    from fastcopy.model import Range

MIB = 1 << 20
SIZES = st.one_of(
    st.integers(1, 300 * MIB),
    st.integers(1, 1 << 34),
    st.builds(lambda count, delta: max(1, count * MIB + delta), st.integers(0, 4096), st.integers(-2, 2)),
)


def cut(size: int, channels: int) -> list[Range]:
    """Cut a file that is all the work there is."""
    chunks: list[Range] = []
    start = 0
    while start < size:
        chunks.append(chunk_at(start, size, chunk_bytes(size - start, channels)))
        start = chunks[-1].stop
    return chunks


@given(SIZES, st.integers(1, 256))
def test_chunks_tile_the_file(size: int, channels: int) -> None:
    """Chunks follow each other from 0 to the size without gap, overlap or empty one."""
    chunks = cut(size, channels)
    assert [chunk.start for chunk in chunks] == [0, *(chunk.stop for chunk in chunks)][: len(chunks)]
    assert chunks[-1].stop == size
    assert all(len(chunk) > 0 for chunk in chunks)


@given(SIZES, st.integers(1, 256))
def test_chunks_shrink_within_bounds(size: int, channels: int) -> None:
    """No chunk but the last, which takes the rest, is larger than the one before it; all are whole MiB, 4 to 64."""
    lengths = [len(chunk) for chunk in cut(size, channels)[:-1]]
    assert lengths == sorted(lengths, reverse=True)
    assert all(length % MIB == 0 for length in lengths)
    assert all(MIN_CHUNK_BYTES <= length <= MAX_CHUNK_BYTES for length in lengths)


@given(SIZES, st.integers(1, 255))
def test_more_channels_never_mean_larger_chunks(size: int, channels: int) -> None:
    """One channel more cuts as fine or finer."""
    assert chunk_bytes(size, channels + 1) <= chunk_bytes(size, channels)
