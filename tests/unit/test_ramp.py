"""How further logins are brought up; no server, no clock: the connector and the pauses are the test's."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

import pytest

from fastcopy.connection.ramp import LONGEST_DROPS, LONGEST_PAUSE_S, PENDING_LOGINS, LoginRamp, Ramp
from fastcopy.errors import ConnectTimeout, LoginRefused, TooManyLogins

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from fastcopy.connection.base import Connection, Connector

DROPPED = TooManyLogins("too many logins are under way there", host="t")
REFUSED = LoginRefused("it accepts password", host="t")


def test_at_most_a_few_logins_are_begun_at_once() -> None:
    """Four pending, and one more for each that came up."""
    ramp = Ramp(10)
    assert (ramp.begin(), ramp.begin()) == (PENDING_LOGINS, 0)
    ramp.succeed()
    assert (ramp.begin(), ramp.granted, ramp.pending) == (1, 1, PENDING_LOGINS)


def test_no_more_logins_are_begun_than_wanted() -> None:
    """The last ones are not followed by others."""
    ramp = Ramp(2)
    assert ramp.begin() == 2
    ramp.succeed()
    ramp.succeed()
    assert (ramp.begin(), ramp.shortfall) == (0, None)


@pytest.mark.parametrize("error", [REFUSED, ConnectTimeout("no answer", host="t")])
def test_a_refused_login_is_the_last_one(error: LoginRefused | ConnectTimeout) -> None:
    """Nothing is retried; those under way may still come up."""
    ramp = Ramp(10)
    ramp.begin()
    ramp.fail(error)
    assert ramp.begin() == 0
    ramp.succeed()
    assert (ramp.begin(), ramp.granted, ramp.stopped_by) == (0, 1, error)


def test_after_a_dropped_login_they_go_one_at_a_time() -> None:
    """The server is short of places: no two are begun together any more."""
    ramp = Ramp(10)
    ramp.begin()
    ramp.fail(DROPPED)
    assert ramp.begin() == 0
    for _ in range(PENDING_LOGINS - 1):
        ramp.succeed()
    assert (ramp.begin(), ramp.begin()) == (1, 0)


def test_dropped_logins_are_retried_a_bounded_number_of_times() -> None:
    """After some drops in a row the server is taken at its word."""
    ramp = Ramp(1)
    tries = 0
    while count := ramp.begin():
        tries += count
        ramp.fail(DROPPED)
    assert (tries, ramp.stopped_by) == (LONGEST_DROPS + 1, DROPPED)


def test_pauses_grow_up_to_a_limit_and_are_jittered() -> None:
    """0.25, 0.5, 1, 2, 4, 4 s, times a half to one and a half."""
    ramp = Ramp(100)
    assert ramp.pause_s(1.0) == 0.0
    pauses = []
    for _ in range(LONGEST_DROPS):
        ramp.begin()
        ramp.fail(DROPPED)
        pauses.append(ramp.pause_s(0.5))
    assert pauses == [0.25, 0.5, 1.0, 2.0, LONGEST_PAUSE_S]
    assert (ramp.pause_s(0.0), ramp.pause_s(1.0)) == (LONGEST_PAUSE_S / 2, LONGEST_PAUSE_S * 1.5)


def test_a_granted_login_ends_the_row_of_drops() -> None:
    """Progress makes patience start over."""
    ramp = Ramp(100)
    ramp.begin()
    ramp.fail(DROPPED)
    ramp.succeed()
    assert ramp.pause_s(1.0) == 0.0


def test_a_shortfall_names_the_servers_setting() -> None:
    """The user learns how many were granted, and what to change where."""
    ramp = Ramp(3)
    ramp.begin()
    ramp.succeed()
    ramp.succeed()
    for _ in range(LONGEST_DROPS + 1):
        ramp.fail(DROPPED)
        ramp.begin()
    assert ramp.shortfall == (
        "2 of 3 further logins were granted: t dropped a login: too many logins are under way there "
        "(MaxStartups in its sshd_config). Ask for fewer with --connections"
    )


class _Connection:
    def __init__(self, number: int) -> None:
        self.number = number
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class _Connector:
    """Answers the n-th login with the n-th of `answers`: an error, or None for a connection."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.made: list[_Connection] = []
        self.interactive: list[bool] = []
        self.pending = 0
        self.most_pending = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.all_begun = asyncio.Event()

    async def connect(self, *, interactive: bool) -> Connection:
        self.interactive.append(interactive)
        self.pending += 1
        self.most_pending = max(self.most_pending, self.pending)
        try:
            answer = self.answers.pop(0)
            if not self.answers:
                self.all_begun.set()
            await self.gate.wait()
            await asyncio.sleep(0)
            if answer is not None:
                raise answer
            connection = _Connection(len(self.made))
            self.made.append(connection)
            return cast("Connection", connection)
        finally:
            self.pending -= 1

    async def close(self) -> None:
        pass


def _ramp(connector: _Connector, wanted: int, sleep: Callable[[float], Awaitable[object]] | None = None) -> LoginRamp:
    async def no_sleep(seconds: float) -> None:
        pass

    return LoginRamp(cast("Connector", connector), wanted, sleep=sleep or no_sleep, chance=lambda: 0.5)


async def _take(logins: AsyncIterator[Connection], seen: list[object]) -> None:
    async for connection in logins:
        seen.append(connection)  # noqa: PERF401 - what came before an error must not be lost


async def _all(logins: AsyncIterator[Connection]) -> int:
    return len([connection async for connection in logins])


async def test_all_logins_come_up_none_of_them_asking() -> None:
    """Further logins are never interactive and at most four at a time."""
    connector = _Connector(*[None] * 9)
    ramp = _ramp(connector, 9)
    assert (await _all(ramp.logins()), ramp.shortfall) == (9, None)
    assert (connector.interactive, connector.most_pending) == ([False] * 9, PENDING_LOGINS)


async def test_a_refusal_leaves_those_already_under_way() -> None:
    """Three of the first four come up; no fifth is tried."""
    connector = _Connector(None, REFUSED, None, None, *[None] * 9)
    ramp = _ramp(connector, 9)
    assert await _all(ramp.logins()) == 3
    assert ramp.shortfall == (
        "3 of 9 further logins were granted: t refused the login: it accepts password. "
        "Check the user, the key (-i) and what the server accepts (a further login cannot ask on the terminal)"
    )


async def test_dropped_logins_are_tried_again_after_a_pause() -> None:
    """Each retry sleeps first, longer each time."""
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    ramp = _ramp(_Connector(DROPPED, DROPPED, None), 1, sleep)
    assert (await _all(ramp.logins()), ramp.shortfall, pauses) == (1, None, [0.25, 0.5])


async def test_what_is_no_error_of_ours_comes_through() -> None:
    """A bug is not taken for a refusal, and nothing stays pending."""
    connector = _Connector(ValueError("bug"), None, None, None)
    seen: list[object] = []
    with pytest.raises(ValueError, match="bug"):
        await _take(_ramp(connector, 4).logins(), seen)
    assert connector.pending == 0
    assert [made.is_closed for made in connector.made] == [made not in seen for made in connector.made]


async def test_a_caller_who_stops_leaves_no_login_behind() -> None:
    """Those under way are given up, those that came up unseen are closed."""
    connector = _Connector(*[None] * 4)
    async with contextlib.aclosing(_ramp(connector, 4).logins()) as logins:
        first = await anext(logins)
    assert connector.pending == 0
    assert [connection.is_closed for connection in connector.made] == [
        cast("Connection", connection) is not first for connection in connector.made
    ]


async def test_cancelling_gives_up_the_logins_under_way() -> None:
    """A cancelled ramp waits for none of them."""
    connector = _Connector(*[None] * 4)
    connector.gate.clear()
    task = asyncio.create_task(_all(_ramp(connector, 4).logins()))
    await connector.all_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (connector.pending, connector.made) == (0, [])
