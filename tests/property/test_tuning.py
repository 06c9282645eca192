"""Whatever the circumstances, the choice keeps its bounds and follows them in the right direction."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fastcopy.model import Direction
from fastcopy.plan.tuning import (
    AS_GOOD,
    MAX_AUTO_CHANNELS,
    MAX_AUTO_CONNECTIONS,
    MAX_SESSIONS,
    Circumstances,
    choose,
    estimate_s,
)

COUNTS = st.one_of(st.none(), st.integers(1, 256))
CIRCUMSTANCES = st.builds(
    Circumstances,
    rtt_s=st.one_of(st.just(0.0), st.floats(1e-6, 2.0)),
    local_cores=st.integers(1, 128),
    remote_cores=st.one_of(st.none(), st.integers(1, 128)),
    files=st.integers(0, 1_000_000),
    largest_bytes=st.integers(0, 1 << 42),
    total_bytes=st.one_of(st.none(), st.integers(0, 1 << 44)),
    direction=st.sampled_from([Direction.PUT, Direction.GET]),
    way=st.sampled_from(["openssh", "asyncssh"]),
    login_is_typed=st.booleans(),
    reuse_master=st.booleans(),
    parallel=COUNTS,
    connections=COUNTS,
)
AUTO = CIRCUMSTANCES.map(
    lambda c: replace(c, parallel=None, connections=None, login_is_typed=False, reuse_master=False)
)


@given(CIRCUMSTANCES)
def test_a_choice_keeps_its_bounds(c: Circumstances) -> None:
    """Explicit values win; auto ones keep to MaxSessions, the work there is, one typed login and our own limits."""
    tuning = choose(c)
    assert 1 <= tuning.connections <= tuning.parallel
    assert tuning.why
    if c.parallel is not None:
        assert tuning.parallel == c.parallel
    if c.connections is not None:
        assert tuning.connections == min(c.connections, tuning.parallel)
    elif c.login_is_typed or c.reuse_master:
        assert tuning.connections == 1
    else:
        assert tuning.parallel <= MAX_SESSIONS * tuning.connections
        assert tuning.connections <= max(MAX_AUTO_CONNECTIONS, -(-tuning.parallel // MAX_SESSIONS))
    if c.parallel is None:
        assert tuning.parallel <= max(c.pieces, tuning.connections)
        assert tuning.parallel <= max(MAX_AUTO_CHANNELS, c.connections or 1)


@given(AUTO)
def test_no_plain_choice_is_much_faster(c: Circumstances) -> None:
    """By its own estimate the choice loses at most 5 % to one channel, and to one channel on each of a few logins."""
    tuning = choose(c)
    estimate = estimate_s(c, tuning.parallel, tuning.connections)
    for count in range(1, min(c.pieces, 8) + 1):
        assert estimate <= estimate_s(c, count, count) * AS_GOOD + 1e-9


@given(AUTO, st.integers(1, 128))
def test_more_cores_never_mean_fewer_connections(c: Circumstances, more: int) -> None:
    """A second core is never a reason for a login less."""
    stronger = replace(c, local_cores=c.local_cores + more, remote_cores=c.remote_cores and c.remote_cores + more)
    assert choose(stronger).connections >= choose(c).connections


@given(AUTO, st.floats(1.0, 100.0))
def test_a_longer_way_never_means_fewer_channels_for_an_endless_job(c: Circumstances, factor: float) -> None:
    """Where logins do not count, a longer round trip wants as many windows and buffers or more."""
    near = replace(c, total_bytes=None, largest_bytes=1 << 40)
    far = replace(near, rtt_s=near.rtt_s * factor)
    assert choose(far).parallel >= choose(near).parallel
    assert choose(far).connections >= choose(near).connections


@given(AUTO, st.integers(10, 1000))
def test_a_much_larger_job_never_means_fewer_connections(c: Circumstances, factor: int) -> None:
    """Ten times the bytes is never a reason for a login less."""
    if c.total_bytes is not None:
        large = replace(c, largest_bytes=1 << 40)
        assert choose(replace(large, total_bytes=c.total_bytes * factor)).connections >= choose(large).connections


@given(CIRCUMSTANCES)
def test_an_estimate_is_a_time(c: Circumstances) -> None:
    """No circumstances make it negative, infinite or nothing."""
    for parallel, connections in ((1, 1), (8, 3), (256, 256)):
        assert 0 <= estimate_s(c, parallel, connections) < float("inf")
