"""How a file is cut into chunks, the unit of work of a channel.

Pure arithmetic. Chunks are large enough that their ends cost nothing and small enough that all channels end together.
Invariant: the chunks of a file tile [0, size) exactly, in order; none is empty.
"""

from __future__ import annotations

from fastcopy.model import Range

_MIB = 1 << 20
#: Bytes. Files up to this size travel in batches: their cost is round trips, not bytes. Source: our choice.
SMALL_FILE_BYTES = _MIB
#: Bytes. At 400 MiB/s a chunk lasts 20 ms, many times the cost of handing it out. Source: our choice.
MIN_CHUNK_BYTES = 4 * _MIB
#: Bytes. What is lost at worst when a chunk starts over, and the step of the journal. Source: reliability.md, law 2.
MAX_CHUNK_BYTES = 64 * _MIB
#: Chunks each channel gets of one file: the last to end is then about an eighth of its share behind the first.
CHUNKS_PER_CHANNEL = 8


def chunk_bytes(size: int, channels: int) -> int:
    """Return how many bytes the chunks of a file of `size` bytes have when `channels` share it; a multiple of 1 MiB."""
    if channels <= 1:
        return MAX_CHUNK_BYTES
    share = -(-size // (CHUNKS_PER_CHANNEL * channels))
    rounded = -(-share // _MIB) * _MIB
    return min(max(rounded, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES)


def chunk_at(start: int, size: int, chunk: int) -> Range:
    """Return the chunk that begins at `start`. The last one also takes a rest of under 1 MiB behind it."""
    stop = start + chunk
    return Range(start, size if size - stop < _MIB else stop)


def chunk_count(size: int, chunk: int) -> int:
    """Return how many chunks of `chunk` bytes a file of `size` bytes makes."""
    whole, rest = divmod(size, chunk)
    return whole + 1 if rest >= _MIB or (rest and not whole) else whole


def cut(size: int, channels: int) -> list[Range]:
    """Return the chunks of a file of `size` bytes for `channels` channels; none for an empty file."""
    chunk = chunk_bytes(size, channels)
    chunks: list[Range] = []
    start = 0
    while start < size:
        chunks.append(chunk_at(start, size, chunk))
        start = chunks[-1].stop
    return chunks
