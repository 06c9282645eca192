"""What a channel is given next, by example."""

from __future__ import annotations

import tracemalloc

from fastcopy.model import Attributes, Entry, Range
from fastcopy.plan.schedule import BATCH_FILES, Batch, Chunk, Schedule, WholeFile

MIB = 1 << 20


def entry(name: str, size: int, link: bytes | None = None) -> Entry:
    return Entry(source=name.encode(), target=b"to/" + name.encode(), attributes=Attributes(size=size), link=link)


def drain(schedule: Schedule) -> list[Batch | WholeFile | Chunk]:
    units = []
    while (unit := schedule.take()) is not None:
        units.append(unit)
    return units


def test_an_empty_schedule_has_nothing_to_give() -> None:
    """Before anything is added, and after all is taken, there is no unit and every count is 0."""
    schedule = Schedule()
    assert schedule.take() is None
    assert (len(schedule), schedule.pending_bytes, schedule.pending_files) == (0, 0, 0)
    schedule.add([], 4)
    assert schedule.take() is None


def test_the_largest_goes_first_in_chunks_by_offset() -> None:
    """A window goes largest first: chunks of the biggest file in order, a medium file whole, small ones last."""
    big, medium, small = entry("big", 20 * MIB), entry("medium", 2 * MIB), entry("small", 5)
    schedule = Schedule()
    schedule.add([small, medium, big], 2)
    assert repr(schedule) == f"<Schedule 3 pieces, 3 files, {22 * MIB + 5} bytes>"
    assert drain(schedule) == [
        *(Chunk(big, Range(start * MIB, (start + 4) * MIB)) for start in range(0, 20, 4)),
        WholeFile(medium),
        Batch((small,)),
    ]


def test_a_larger_file_of_a_later_window_waits_for_the_one_being_cut() -> None:
    """A file that has been begun is finished first, so that few files are open; then the largest is next."""
    schedule = Schedule()
    schedule.add([entry("a", 20 * MIB), entry("b", 10 * MIB)], 2)
    schedule.take()
    schedule.add([entry("c", 30 * MIB)], 2)
    order = [unit.entry.source for unit in drain(schedule) if isinstance(unit, Chunk)]
    assert list(dict.fromkeys(order)) == [b"a", b"c", b"b"]
    assert order == sorted(order, key=[b"a", b"c", b"b"].index)


def test_lost_work_comes_first() -> None:
    """What is put back is handed out before anything else, the last put back first, and counts again."""
    schedule = Schedule()
    schedule.add([entry("a", 20 * MIB), entry("b", 1)], 2)
    before = (schedule.pending_files, schedule.pending_bytes)
    first, second = schedule.take(), schedule.take()
    assert first is not None
    assert second is not None
    schedule.put_back(first)
    schedule.put_back(second)
    assert (schedule.pending_files, schedule.pending_bytes) == before
    assert [schedule.take(), schedule.take()] == [second, first]


def test_a_rest_of_a_unit_may_be_put_back() -> None:
    """The part of a chunk, or one file of a batch, that a lost channel had not finished is a unit too."""
    big, small = entry("big", 20 * MIB), entry("small", 1)
    schedule = Schedule()
    schedule.add([big, small], 1)
    drain(schedule)
    schedule.put_back(Chunk(big, Range(5, 7)))
    schedule.put_back(WholeFile(small))
    assert (len(schedule), schedule.pending_files, schedule.pending_bytes) == (2, 2, 3)
    assert drain(schedule) == [WholeFile(small), Chunk(big, Range(5, 7))]
    assert (len(schedule), schedule.pending_files, schedule.pending_bytes) == (0, 0, 0)


def test_a_batch_is_bounded_in_files_and_bytes() -> None:
    """No batch has over 64 files or 4 MiB."""
    schedule = Schedule()
    schedule.add([entry(str(number), 0) for number in range(1000)], 2)
    first = schedule.take()
    assert isinstance(first, Batch)
    assert len(first.entries) == BATCH_FILES
    schedule = Schedule()
    schedule.add([entry(str(number), MIB) for number in range(1000)], 2)
    assert [len(unit.entries) for unit in drain(schedule) if isinstance(unit, Batch)][:240] == [4] * 240


def test_the_last_batches_are_spread_over_the_channels() -> None:
    """Towards the end batches shrink, so that no channel idles while another still has many files."""
    schedule = Schedule()
    schedule.add([entry(str(number), 1) for number in range(40)], 4)
    sizes = [len(unit.entries) for unit in drain(schedule) if isinstance(unit, Batch)]
    assert sizes[0] == 5
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-4:] == [1, 1, 1, 1]


def test_a_symlink_moves_no_bytes() -> None:
    """A link counts as an empty file whatever size its server claims."""
    link = entry("link", 1 << 60, link=b"to")
    schedule = Schedule()
    schedule.add([link], 2)
    assert schedule.pending_bytes == 0
    assert drain(schedule) == [Batch((link,))]


def test_the_size_of_a_file_costs_no_memory() -> None:
    """A file of 8 EiB (as a lying server may claim) is held as one cursor, not as its chunks."""
    tracemalloc.start()
    try:
        schedule = Schedule()
        schedule.add([entry("huge", 1 << 63)], 8)
        assert isinstance(schedule.take(), Chunk)
        assert len(schedule) == 1
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
