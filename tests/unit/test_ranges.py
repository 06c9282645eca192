"""A set of byte ranges, by example."""

from __future__ import annotations

from fastcopy.model import Range
from fastcopy.plan.ranges import RangeSet


def test_touching_ranges_become_one() -> None:
    """Ranges added in any order merge with their neighbours; an empty one changes nothing."""
    done = RangeSet([Range(20, 30), Range(0, 10), Range(5, 5)])
    assert list(done) == [Range(0, 10), Range(20, 30)]
    done.add(Range(10, 20))
    assert list(done) == [Range(0, 30)]
    assert (done.total, len(done)) == (30, 1)


def test_what_is_missing_of_a_file_or_a_span() -> None:
    """The gaps of a whole file, and of a part of it, are told in order."""
    done = RangeSet([Range(2, 4), Range(6, 8)])
    assert done.missing(10) == [Range(0, 2), Range(4, 6), Range(8, 10)]
    assert done.missing(Range(3, 7)) == [Range(4, 6)]
    assert done.missing(Range(6, 8)) == []
    assert done.missing(0) == []


def test_subtracting_splits() -> None:
    """Taking out the middle leaves two ranges; taking out all leaves none."""
    done = RangeSet([Range(0, 10)])
    done.subtract(Range(4, 6))
    assert done == RangeSet([Range(0, 4), Range(6, 10)])
    done.subtract(Range(0, 99))
    assert done == RangeSet()
    assert done != RangeSet([Range(0, 1)])
    assert RangeSet([Range(0, 1)]) != RangeSet([Range(0, 2)])
    assert RangeSet([Range(1, 2)]) != RangeSet([Range(0, 2)])
    assert RangeSet() != []


def test_covers_asks_for_every_byte() -> None:
    """One missing byte is not covered; an empty file always is."""
    assert RangeSet().covers(0)
    assert not RangeSet().covers(1)
    assert RangeSet([Range(0, 10)]).covers(10)
    assert not RangeSet([Range(0, 9)]).covers(10)
    assert not RangeSet([Range(1, 10)]).covers(10)


def test_it_shows_itself() -> None:
    """The repr tells the state, for failing tests."""
    assert repr(RangeSet([Range(0, 4), Range(6, 10)])) == "RangeSet([0..4, 6..10])"
