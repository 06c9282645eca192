"""A RangeSet does what a set of ints does."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fastcopy.model import Range
from fastcopy.plan.ranges import RangeSet

SPANS = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda ends: Range(min(ends), max(ends)))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "subtract"]), SPANS), max_size=30)


def built(steps: list[tuple[str, Range]]) -> tuple[RangeSet, set[int]]:
    ranges, model = RangeSet(), set[int]()
    for step, span in steps:
        numbers = range(span.start, span.stop)
        if step == "add":
            ranges.add(span)
            model.update(numbers)
        else:
            ranges.subtract(span)
            model.difference_update(numbers)
    return ranges, model


def numbers_of(spans: list[Range]) -> list[int]:
    return [number for span in spans for number in range(span.start, span.stop)]


@given(STEPS)
def test_adding_and_subtracting_is_set_arithmetic(steps: list[tuple[str, Range]]) -> None:
    """After any steps the same bytes are in, in ranges that are ascending, not empty and never touch."""
    ranges, model = built(steps)
    spans = list(ranges)
    assert numbers_of(spans) == sorted(model)
    assert all(len(span) > 0 for span in spans)
    assert all(left.stop < right.start for left, right in pairwise(spans))
    assert (ranges.total, len(ranges)) == (len(model), len(spans))
    assert ranges == RangeSet(reversed(spans))


@given(STEPS, SPANS)
def test_missing_is_the_complement(steps: list[tuple[str, Range]], span: Range) -> None:
    """What is in and what is missing make up any span, and a file is covered when nothing of it is missing."""
    ranges, model = built(steps)
    assert numbers_of(ranges.missing(span)) == sorted(set(range(span.start, span.stop)) - model)
    assert ranges.missing(span.stop) == ranges.missing(Range(0, span.stop))
    assert ranges.covers(span.stop) == (not ranges.missing(span.stop))
    gaps = ranges.missing(span)
    assert all(left.stop < right.start for left, right in pairwise(gaps))
    for gap in gaps:
        ranges.add(gap)
    assert ranges.missing(span) == []
