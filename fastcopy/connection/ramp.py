"""Bringing up the further logins after the first: a few at a time, and none that the server does not want.

`Ramp` decides and is pure; `LoginRamp` makes the logins. Must not open channels. Invariants: never more than
PENDING_LOGINS are under way; after a refusal none is begun; after a dropped one, one at a time, later and later.
Source: design section 6. sshd's MaxStartups (10:30:100) drops logins at random, and since 9.8 it penalises an address
for failed ones.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from fastcopy.errors import FastcopyError, LoginRefused, TooManyLogins

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from fastcopy.connection.base import Connection, Connector

#: Logins under way at once. Source: design section 6; MaxStartups drops from 10 on, all users of a host counted.
PENDING_LOGINS = 4
#: Dropped logins in a row after which the server is taken at its word.
LONGEST_DROPS = 5
#: Seconds before the first retry of a dropped login; doubled for each further one, up to the longest.
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 4.0


class Ramp:
    """How many logins to begin now, and after which pause. No I/O, no clock."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._drops = 0
        self._is_careful = False
        self.granted = 0
        self.pending = 0
        #: Why no further login is begun; None while they are.
        self.stopped_by: FastcopyError | None = None

    def __repr__(self) -> str:
        return f"<Ramp {self.granted} of {self._wanted}, {self.pending} pending, stopped by {self.stopped_by!r}>"

    def begin(self) -> int:
        """Return how many logins to begin now, and count them as pending."""
        if self.stopped_by is not None:
            return 0
        limit = 1 if self._is_careful else PENDING_LOGINS
        count = max(0, min(limit - self.pending, self._wanted - self.granted - self.pending))
        self.pending += count
        return count

    def succeed(self) -> None:
        """A pending login was granted."""
        self.pending -= 1
        self.granted += 1
        self._drops = 0

    def fail(self, error: FastcopyError) -> None:
        """A pending login failed: a dropped one may be tried again, any other failure stops the ramp."""
        self.pending -= 1
        if isinstance(error, TooManyLogins):
            self._is_careful = True
            self._drops += 1
            if self._drops <= LONGEST_DROPS:
                return
        if self.stopped_by is None or isinstance(self.stopped_by, TooManyLogins):
            self.stopped_by = error

    def pause_s(self, chance: float) -> float:
        """Return the seconds to wait before the next login is begun.

        Args:
            chance: 0 to 1, at random: half to one and a half of the pause, so that several jobs do not march in step.
        """
        if not self._drops:
            return 0.0
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self._drops - 1)) * (0.5 + chance)

    @property
    def shortfall(self) -> str | None:
        """Say why fewer logins were granted than wanted; None when all were, or some may still be."""
        if self.stopped_by is None or self.granted >= self._wanted:
            return None
        reason = str(self.stopped_by).rstrip(".")
        if isinstance(self.stopped_by, LoginRefused):
            reason += " (a further login cannot ask on the terminal)"
        return f"{self.granted} of {self._wanted} further logins were granted: {reason}"


class LoginRamp:
    """Makes up to `wanted` further logins."""

    def __init__(
        self,
        connector: Connector,
        wanted: int,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._connector = connector
        self._ramp = Ramp(wanted)
        self._sleep = sleep
        self._chance = chance

    def __repr__(self) -> str:
        return f"<LoginRamp {self._ramp!r}>"

    @property
    def shortfall(self) -> str | None:
        """See Ramp.shortfall; of use once `logins` has ended."""
        return self._ramp.shortfall

    async def logins(self) -> AsyncGenerator[Connection, None]:
        """Yield each connection as it comes up; it is the caller's from then on. To be iterated once.

        Raises: nothing of the server's doing (`shortfall` tells); what is no FastcopyError comes through.
        Cancellation: the logins under way are given up, and one that came up meanwhile is closed. A caller whose
            loop awaits should iterate under contextlib.aclosing, so that this happens at once.
        """
        ramp = self._ramp
        pending: set[asyncio.Task[Connection]] = set()
        try:
            while True:
                for _ in range(ramp.begin()):
                    pending.add(asyncio.create_task(self._log_in(ramp.pause_s(self._chance()))))
                if not pending:
                    return
                done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                while done:
                    task = done.pop()
                    try:
                        connection = task.result()
                    except FastcopyError as error:
                        pending.discard(task)
                        ramp.fail(error)
                    else:
                        ramp.succeed()
                        pending.discard(task)
                        yield connection
        finally:
            await _give_up(pending)

    async def _log_in(self, pause_s: float) -> Connection:
        if pause_s:
            await self._sleep(pause_s)
        return await self._connector.connect(interactive=False)


async def _give_up(pending: set[asyncio.Task[Connection]]) -> None:
    for task in pending:
        task.cancel()
    for outcome in await asyncio.gather(*pending, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            await outcome.close()
