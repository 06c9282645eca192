"""How many channels and connections: the intent, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from fastcopy.model import Direction
from fastcopy.plan import tuning
from fastcopy.plan.tuning import Circumstances, choose, estimate_s

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
LAN: dict[str, Any] = {"rtt_s": 0.0001}
FAR: dict[str, Any] = {"rtt_s": 0.1}
ONE_FILE: dict[str, Any] = {"files": 1, "largest_bytes": 2 * GIB, "total_bytes": 2 * GIB}
DUMPS: dict[str, Any] = {"files": 40, "largest_bytes": 25 * GIB, "total_bytes": TIB}
SMALL: dict[str, Any] = {"files": 10_000, "largest_bytes": 4096, "total_bytes": 10_000 * 4096}


def chosen(*parts: dict[str, Any], **more: Any) -> tuple[int, int]:
    values: dict[str, Any] = {"local_cores": 2, "remote_cores": 2}
    for part in parts:
        values |= part
    choice = choose(Circumstances(**(values | more)))
    return choice.parallel, choice.connections


@pytest.mark.parametrize(
    ("cores", "expected"), [((1, 8), (1, 1)), ((2, 2), (2, 2)), ((8, 2), (2, 2)), ((4, 4), (4, 4)), ((64, 64), (4, 4))]
)
def test_on_a_lan_each_core_of_the_weaker_side_gets_a_connection(
    cores: tuple[int, int], expected: tuple[int, int]
) -> None:
    """Connections buy cores, up to four, with one channel each: windows do not matter."""
    assert chosen(LAN, DUMPS, local_cores=cores[0], remote_cores=cores[1]) == expected


def test_unknown_cores_are_no_reason_to_be_shy() -> None:
    """A server that runs no commands is taken to be as strong as this host."""
    assert chosen(LAN, DUMPS, local_cores=4, remote_cores=None) == (4, 4)


def test_on_a_far_host_windows_are_filled() -> None:
    """At 100 ms, 2 MiB a channel and 4 MiB a connection need about 20 and 10 for 400 MiB/s."""
    parallel, connections = chosen(FAR, DUMPS)
    assert 18 <= parallel <= 22
    assert 9 <= connections <= 11


@pytest.mark.parametrize(
    ("size", "low", "high"), [(1 * MIB, 1, 1), (16 * MIB, 1, 2), (600 * MIB, 6, 20), (10 * GIB, 16, 22)]
)
def test_a_small_total_asks_for_less(size: int, low: int, high: int) -> None:
    """Far away each login costs a second: it must bring more than that."""
    parallel, _ = chosen(FAR, files=1, largest_bytes=size, total_bytes=size)
    assert low <= parallel <= high


def test_a_small_total_on_a_lan_is_worth_no_second_login() -> None:
    """What is copied in less time than a login takes goes over the first."""
    assert chosen(LAN, files=1, largest_bytes=50 * MIB, total_bytes=50 * MIB) == (1, 1)


def test_many_small_files_on_a_lan_take_two_channels() -> None:
    """This process's own work per file is the limit there: two channels overlap it with the servers'."""
    assert chosen(LAN, SMALL) == (2, 1)
    assert chosen(LAN, SMALL, total_bytes=None) == (2, 1)


def test_many_small_files_far_away_overlap_their_round_trips() -> None:
    """Four round trips a file want many channels, if not many logins."""
    parallel, connections = chosen(FAR, SMALL)
    assert parallel >= 16
    assert connections <= parallel // 4


def test_a_scan_that_still_runs_counts_as_much() -> None:
    """An unknown total is treated as a large one."""
    assert chosen(LAN, ONE_FILE, total_bytes=None) == (2, 2)
    assert chosen(FAR, ONE_FILE, total_bytes=None) == chosen(FAR, DUMPS)


@pytest.mark.parametrize("reason", [{"login_is_typed": True}, {"reuse_master": True}])
def test_a_login_that_costs_typing_is_made_once(reason: dict[str, Any]) -> None:
    """One connection then, and as many channels as it can use."""
    assert chosen(LAN, DUMPS, reason) == (1, 1)
    parallel, connections = chosen(FAR, DUMPS, reason)
    assert (parallel, connections) == (8, 1)
    assert chosen(FAR, DUMPS, reason, connections=3)[1] == 3


def test_asyncssh_is_one_core() -> None:
    """In one Python process a second connection brings nothing on a LAN; far away it brings TCP buffers."""
    assert chosen(LAN, DUMPS, way="asyncssh", local_cores=8, remote_cores=8) == (1, 1)
    assert chosen(LAN, SMALL, way="asyncssh")[1] == 1
    put = chosen(FAR, DUMPS, way="asyncssh", direction=Direction.PUT)
    get = chosen(FAR, DUMPS, way="asyncssh", direction=Direction.GET)
    assert put[0] > get[0]  # our own window of 16 MiB needs fewer channels on a get
    assert put[1] == get[1]


@pytest.mark.parametrize(
    ("parallel", "connections", "expected"),
    [(8, 4, (8, 4)), (1, 1, (1, 1)), (4, 8, (4, 4)), (64, 1, (64, 1)), (256, 256, (256, 256))],
)
def test_explicit_values_win(parallel: int, connections: int, expected: tuple[int, int]) -> None:
    """What is asked for is what comes out, but never more logins than channels."""
    assert chosen(LAN, ONE_FILE, parallel=parallel, connections=connections) == expected


def test_explicit_channels_choose_their_connections() -> None:
    """--parallel alone: on a LAN a connection per core, never over MaxSessions; far away enough TCP buffers."""
    assert chosen(LAN, ONE_FILE, parallel=8) == (8, 2)
    assert chosen(LAN, ONE_FILE, parallel=1) == (1, 1)
    assert chosen(LAN, ONE_FILE, parallel=40) == (40, 4)
    assert chosen(FAR, DUMPS, parallel=8) == (8, 4)


def test_explicit_connections_choose_their_channels() -> None:
    """--connections alone: at least a channel each, more where windows want it."""
    assert chosen(LAN, ONE_FILE, connections=3) == (3, 3)
    assert chosen(FAR, DUMPS, connections=2) == (4, 2)


@pytest.mark.parametrize(
    ("circumstances", "why"),
    [
        (LAN | DUMPS, "2 cores"),
        (FAR | DUMPS, "100 ms"),
        (LAN | DUMPS | {"login_is_typed": True}, "typed"),
        (LAN | DUMPS | {"reuse_master": True}, "master"),
        (LAN | DUMPS | {"parallel": 3, "connections": 2}, "as asked for"),
        (FAR | {"files": 1, "largest_bytes": 1, "total_bytes": 1}, "pieces of work"),
        (LAN | DUMPS | {"local_cores": 1}, "cost more than it brings"),
    ],
)
def test_the_reason_is_told(circumstances: dict[str, Any], why: str) -> None:
    """The choice comes with the fact that decided it."""
    assert why in choose(Circumstances(**({"local_cores": 2} | circumstances))).why


def test_a_round_trip_must_be_a_time() -> None:
    """A failed measurement must not pass for one."""
    for rtt_s in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="round trip"):
            Circumstances(rtt_s=rtt_s, local_cores=1, files=1, largest_bytes=1)


def test_the_estimate_of_one_channel_adds_link_and_core() -> None:
    """Before anything further is up, a copy takes its bytes over the window's rate plus over one core's."""
    far = Circumstances(**FAR, local_cores=2, files=1, largest_bytes=600 * MIB, total_bytes=600 * MIB)
    expected = 600 * MIB / (tuning.OPENSSH_WINDOW_BYTES / 0.1) + 600 * MIB / tuning.CORE_BYTES_PER_S
    assert estimate_s(far, 1, 1) == pytest.approx(expected)


def test_the_estimate_goes_on_copying_while_the_rest_comes_up() -> None:
    """Two connections of two channels: first one channel, then the first connection's two, then all four."""
    size = 600 * MIB
    far = Circumstances(**FAR, local_cores=2, files=1, largest_bytes=size, total_bytes=size)
    window_rate, core_rate = tuning.OPENSSH_WINDOW_BYTES / 0.1, tuning.CORE_BYTES_PER_S
    one, two, four = (
        size / (windows * window_rate) + size / (cores * core_rate) for windows, cores in ((1, 1), (2, 1), (4, 2))
    )
    open_s = tuning.CHANNEL_ROUND_TRIPS * 0.1 + 2 * tuning.CHANNEL_S
    login_s = tuning.LOGIN_ROUND_TRIPS * 0.1 + tuning.LOGIN_S + open_s
    left = 1 - open_s / one - login_s / two
    assert estimate_s(far, 4, 2) == pytest.approx(tuning.LOGIN_PRICE_S + open_s + login_s + left * four)


def test_the_estimate_ends_when_the_work_does() -> None:
    """What is done before a login is up is not waited for, only charged for."""
    near = Circumstances(**LAN, local_cores=2, files=1, largest_bytes=MIB, total_bytes=MIB)
    assert estimate_s(near, 2, 2) == pytest.approx(estimate_s(near, 1, 1) + tuning.LOGIN_PRICE_S)


def test_the_estimate_of_small_files_is_their_round_trips() -> None:
    """Empty files cost this process's own time near by, and round trips far away."""
    near = Circumstances(**LAN, local_cores=2, files=1000, largest_bytes=0, total_bytes=0)
    far = Circumstances(rtt_s=1.0, local_cores=2, files=1000, largest_bytes=0, total_bytes=0)
    assert estimate_s(near, 1, 1) == pytest.approx(1000 * tuning.FILE_S)
    round_trips = 1000 / tuning.FILES_IN_FLIGHT * tuning.FILE_ROUND_TRIPS
    assert estimate_s(far, 1, 1) == pytest.approx(round_trips)
    big = Circumstances(**LAN, local_cores=2, files=1000, largest_bytes=2 * MIB, total_bytes=0)
    assert estimate_s(big, 1, 1) == 0
