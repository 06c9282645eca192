"""Whatever is put back and when: every byte and every file is handed out exactly once until done."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fastcopy.model import Attributes, Entry, Range
from fastcopy.plan.ranges import RangeSet
from fastcopy.plan.schedule import BATCH_BYTES, BATCH_FILES, Batch, Chunk, Schedule, Unit, WholeFile

MIB = 1 << 20
SIZES = st.one_of(
    st.integers(0, 3),
    st.integers(0, 2 * MIB),
    st.integers(0, 200 * MIB),
    st.sampled_from([MIB, MIB + 1, 8 * MIB, 9 * MIB - 1, 9 * MIB]),
)


class ScheduleMachine(RuleBasedStateMachine):
    """Channels take, finish and lose work in any order while the scan adds."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = Schedule()
        self.entries: dict[bytes, Entry] = {}
        self.whole: set[bytes] = set()
        self.done: dict[bytes, RangeSet] = {}
        self.taken: list[Unit] = []

    @rule(sizes=st.lists(SIZES, max_size=80), channels=st.integers(1, 20), links=st.booleans())
    def add(self, sizes: list[int], channels: int, links: bool) -> None:
        window = []
        for size in sizes:
            name = b"%d" % len(self.entries)
            link = b"x" if links and size < 4 else None
            entry = Entry(source=name, target=name, attributes=Attributes(size=size), link=link)
            self.entries[name] = entry
            window.append(entry)
        self.schedule.add(window, channels)

    @rule()
    def take(self) -> None:
        waiting = len(self.schedule)
        unit = self.schedule.take()
        assert (unit is None) == (waiting == 0)
        if unit is None:
            return
        if isinstance(unit, Batch):
            assert 1 <= len(unit.entries) <= BATCH_FILES
            assert sum(entry.size for entry in unit.entries) <= BATCH_BYTES
        if isinstance(unit, Chunk):
            assert len(unit.range) > 0
        self.taken.append(unit)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self._finish(self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1))))

    def _finish(self, unit: Unit) -> None:
        if isinstance(unit, Chunk):
            done = self.done.setdefault(unit.entry.target, RangeSet())
            assert done.missing(unit.range) == [unit.range], "bytes handed out twice"
            done.add(unit.range)
        else:
            names = _names(unit)
            assert not names & self.whole, "file handed out twice"
            self.whole |= names

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        unit = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        for rest in self._rests(unit, data):
            self.schedule.put_back(rest)

    def _rests(self, unit: Unit, data: st.DataObject) -> list[Unit]:
        """Finish a part of `unit` and return what is left, in pieces as an engine may put them back."""
        if isinstance(unit, Batch):
            finished = data.draw(st.integers(0, len(unit.entries)))
            self.whole |= {entry.target for entry in unit.entries[:finished]}
            left = unit.entries[finished:]
            if data.draw(st.booleans()):
                return [WholeFile(entry) for entry in left]
            return [Batch(left)] if left else []
        if isinstance(unit, Chunk):
            middle = data.draw(st.integers(unit.range.start, unit.range.stop))
            self.done.setdefault(unit.entry.target, RangeSet()).add(Range(unit.range.start, middle))
            return [Chunk(unit.entry, Range(middle, unit.range.stop))] if middle < unit.range.stop else []
        return [unit]

    @invariant()
    def counts_tell_what_waits(self) -> None:
        """Whatever is neither finished nor taken waits, and the counts say how much that is."""
        waiting_bytes = sum(map(_bytes, self.entries.values()))
        waiting_bytes -= sum(_bytes(self.entries[name]) for name in self.whole)
        waiting_bytes -= sum(done.total for done in self.done.values())
        waiting_bytes -= sum(
            len(unit.range) if isinstance(unit, Chunk) else sum(_bytes(self.entries[name]) for name in _names(unit))
            for unit in self.taken
        )
        assert self.schedule.pending_bytes == waiting_bytes
        assert self.schedule.pending_files == len(self._waiting_files())
        assert self.schedule.pending_files <= len(self.schedule)

    def _waiting_files(self) -> set[bytes]:
        waiting = set(self.entries) - self.whole
        elsewhere = {name: RangeSet(done) for name, done in self.done.items()}
        for unit in self.taken:
            if isinstance(unit, Chunk):
                elsewhere.setdefault(unit.entry.target, RangeSet()).add(unit.range)
            else:
                waiting -= _names(unit)
        return waiting - {name for name, ranges in elsewhere.items() if ranges.covers(self.entries[name].size)}

    def teardown(self) -> None:
        """In the end, with no further loss, everything has been handed out and nothing twice."""
        self.take()
        while self.taken:
            self._finish(self.taken.pop())
            self.take()
        for name, entry in self.entries.items():
            assert (name in self.whole) != (name in self.done and self.done[name].covers(entry.size))
        assert (len(self.schedule), self.schedule.pending_bytes, self.schedule.pending_files) == (0, 0, 0)


def _names(unit: Batch | WholeFile) -> set[bytes]:
    return {entry.target for entry in (unit.entries if isinstance(unit, Batch) else (unit.entry,))}


def _bytes(entry: Entry) -> int:
    return 0 if entry.link is not None else entry.size


ScheduleMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSchedule = ScheduleMachine.TestCase
