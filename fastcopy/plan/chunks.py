"""How large the next chunk of a file is: large while much is left, smaller and smaller towards the end.

Pure arithmetic (guided self-scheduling: Polychronopoulos and Kuck, 1987). Large chunks cost few opens and closes; the
small ones at the end let all channels end together. Invariant: chunks of a file tile it in order; none is empty.
"""

from __future__ import annotations

from fastcopy.model import Range

_MIB = 1 << 20
#: Bytes. Files up to this size travel in batches: their cost is round trips, not bytes. Source: our choice.
SMALL_FILE_BYTES = _MIB
#: Bytes. Two of OpenSSH's windows, what a channel moves in two round trips of a long link: less would buy nothing.
MIN_CHUNK_BYTES = 4 * _MIB
#: Bytes. What is lost at worst when a chunk starts over, and the step of the journal. Source: reliability.md, law 2.
MAX_CHUNK_BYTES = 64 * _MIB
#: A chunk is this part of a channel's share of all that is left. Each channel takes four at once (engine/copier), so
#: a third of what is left then stays to level out differences. Source: our choice.
CHUNKS_PER_SHARE = 6


def chunk_bytes(left_bytes: int, channels: int) -> int:
    """Return how many bytes the next chunk has when `channels` share `left_bytes` of work; a multiple of 1 MiB."""
    if channels <= 1:
        return MAX_CHUNK_BYTES
    share = -(-left_bytes // (CHUNKS_PER_SHARE * channels))
    rounded = -(-share // _MIB) * _MIB
    return min(max(rounded, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES)


def chunk_at(start: int, size: int, chunk: int) -> Range:
    """Return the chunk of a file of `size` bytes that begins at `start`; a rest of under 1 MiB behind it joins it."""
    stop = start + chunk
    return Range(start, size if size - stop < _MIB else stop)
