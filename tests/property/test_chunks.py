"""However a file is cut, the chunks are the file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastcopy.plan.chunks import MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, chunk_bytes, chunk_count, cut

MIB = 1 << 20
SIZES = st.one_of(
    st.integers(0, 300 * MIB),
    st.integers(0, 1 << 36),
    st.builds(lambda count, delta: max(0, count * MIB + delta), st.integers(0, 4096), st.integers(-2, 2)),
)


@given(SIZES, st.integers(1, 256))
def test_chunks_tile_the_file(size: int, channels: int) -> None:
    """Chunks follow each other from 0 to the size without gap, overlap or empty one, as many as were counted."""
    chunks = cut(size, channels)
    assert [chunk.start for chunk in chunks] == [0, *(chunk.stop for chunk in chunks)][: len(chunks)]
    assert (chunks[-1].stop if chunks else 0) == size
    assert all(len(chunk) > 0 for chunk in chunks)
    assert chunk_count(size, chunk_bytes(size, channels)) == len(chunks)


@given(SIZES, st.integers(1, 256))
def test_chunks_are_of_one_size_within_bounds(size: int, channels: int) -> None:
    """All but the last have the same whole number of MiB between 8 and 64; no later one has under 1 MiB."""
    chunk = chunk_bytes(size, channels)
    assert chunk % MIB == 0
    assert MIN_CHUNK_BYTES <= chunk <= MAX_CHUNK_BYTES
    chunks = cut(size, channels)
    assert {len(piece) for piece in chunks[:-1]} <= {chunk}
    assert all(MIB <= len(piece) < chunk + MIB for piece in chunks[1:])


@given(SIZES, st.integers(1, 255))
def test_more_channels_never_mean_larger_chunks(size: int, channels: int) -> None:
    """One channel more cuts as fine or finer."""
    assert chunk_bytes(size, channels + 1) <= chunk_bytes(size, channels)
