"""The SFTP channels of one job: the first login and channel, then further ones while copying has begun already.

Owns connections and clients, and closes them. What to ask for is plan/tuning's business, what to copy the copier's.
Invariants: a refused channel or login never ends a job that has a channel; nothing is retried in parallel; every
shortfall is told once, naming the server's setting.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
from typing import TYPE_CHECKING, TypeVar

from fastcopy.config import SAFE_REQUEST_BYTES
from fastcopy.connection.ramp import LoginRamp
from fastcopy.errors import ChannelLost, FastcopyError, TooManyLogins, TooManySessions
from fastcopy.events import ChannelsChanged, Warned
from fastcopy.sftp.client import HandshakeFailed, SftpClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fastcopy.config import TransferOptions
    from fastcopy.connection.base import Connection, Connector
    from fastcopy.events import Listener
    from fastcopy.sftp.operation import Steps

T = TypeVar("T")


#: Seconds before a first login that was dropped (MaxStartups) is tried again; half to one and a half of each.
_DROPPED_PAUSES_S = (0.5, 1.0, 2.0)
#: Descriptors of one channel (pipes, log, wake), and those of everything else (kept folders, ssh masters, Python).
_CHANNEL_FDS = 6
_OTHER_FDS = 120
#: Seconds a channel for clearing up may take: a cancelled job ends within 2 s (law 12).
_SPARE_S = 0.6


class Channels:
    """All channels of a job. Used from one event loop."""

    def __init__(self, connector: Connector, options: TransferOptions, *, host: str, listener: Listener) -> None:
        self.host = host
        self.connections: list[Connection] = []
        #: Every channel ever opened, ended ones included.
        self.clients: list[SftpClient] = []
        #: Called with each further channel, on the loop.
        self.on_open: Callable[[SftpClient], None] = lambda client: None
        self._connector = connector
        self._options = options
        self._listener = listener
        self._growing: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._logged_in = asyncio.Event()
        self._opened = asyncio.Event()
        self._parallel = options.parallel or 1

    @property
    def alive(self) -> list[SftpClient]:
        return [client for client in self.clients if client.alive]

    @property
    def growing(self) -> bool:
        """Whether further channels may still come."""
        return self._growing is not None and not self._growing.done()

    @property
    def moved_bytes(self) -> int:
        """Bytes of file content moved by all channels so far."""
        return sum(client.moved_bytes for client in self.clients)

    def reason(self) -> FastcopyError:
        """Return why there is no channel any more: the most telling of what ended them."""
        reasons = [client.lost for client in self.clients if client.lost is not None]
        other = [reason for reason in reasons if not isinstance(reason, ChannelLost)]
        return next(iter(other + reasons), ChannelLost("every channel ended", host=self.host))

    def any(self) -> SftpClient:
        """Return a channel to ask on.

        Raises: the reason, when none is left.
        """
        alive = self.alive
        if not alive:
            raise self.reason()
        return alive[0]

    async def ask(self, make: Callable[[], Steps[T]]) -> T:
        """Run what `make` makes on any channel, and anew on another when that one is lost meanwhile.

        For questions, and for what may be done twice. Raises: as the steps do; the reason, when no channel is left.
        """
        outcome = (await self.ask_all([make]))[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def ask_all(self, makes: Iterable[Callable[[], Steps[T]]]) -> list[T | BaseException]:
        """Like `ask`, side by side; return each one's result, or what it raised, in order.

        Raises: the reason, when no channel is left.
        """
        outcomes: dict[int, T | BaseException] = {}
        waiting = dict(enumerate(makes))
        while waiting:
            results = await self.any().run_all(make() for make in waiting.values())
            outcomes |= zip(waiting, results, strict=True)
            waiting = {index: make for index, make in waiting.items() if isinstance(outcomes[index], ChannelLost)}
        return [outcomes[index] for index in range(len(outcomes))]

    async def first(self) -> SftpClient:
        """Log in, asking on the terminal if need be, and open the first channel.

        Raises: a ConnectError or UnsafePeer that says what to do.
        Cancellation: `close` frees what was opened.
        """
        for pause_s in (*_DROPPED_PAUSES_S, None):
            try:
                connection = await self._connector.connect(interactive=True)
                break
            except TooManyLogins:  # dropped at random, others of the host's users counted too
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
        self.connections.append(connection)
        self._logged_in.set()
        client = await self._open_channel(connection, learn=False)
        self._learning = asyncio.create_task(client.learn_limits())
        self._opened.set()
        return client

    async def ready(self) -> None:
        """Wait until the first channel knows the server's limits: to be called before content is moved."""
        if self._learning is not None:
            await self._learning

    def grow(self, parallel: int, connections: int) -> None:
        """Begin to open channels until there are `parallel` over `connections` logins; returns at once.

        May be called before `first`: the further logins then begin as soon as the first one is made. Does nothing
        when growing has begun already.
        """
        if self._growing is None:
            self._parallel = parallel
            for client in self.alive:
                client.limit_active(self._share())
            self._growing = asyncio.create_task(self._grow(parallel, connections), name="grow channels")

    async def grown(self) -> None:
        """Wait until no further channel will come."""
        if self._growing is not None:
            await asyncio.wait([self._growing])

    async def stop_growing(self) -> None:
        """Give up what is still being opened."""
        if self._growing is not None:
            self._growing.cancel()
            await asyncio.gather(self._growing, return_exceptions=True)

    async def spare(self) -> SftpClient | None:
        """Open one more channel for clearing up when all others have ended; None when that cannot be had quickly."""
        for connection in self.connections:
            with contextlib.suppress(FastcopyError, HandshakeFailed, TimeoutError):
                # wait_for: asyncio.timeout ends a task that is cancelled already with CancelledError before 3.11.4.
                return await asyncio.wait_for(self._open_channel(connection), _SPARE_S)
        return None

    async def close_channels(self) -> None:
        """End all channels; the logins stay, for the last questions (what did it cost?)."""
        await self.stop_growing()
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self.clients))

    async def close(self) -> None:
        """End everything. Idempotent. No process is left."""
        await self.close_channels()
        await asyncio.gather(*(connection.close() for connection in self.connections))

    async def _grow(self, parallel: int, connections: int) -> None:
        await self._logged_in.wait()
        shares = [parallel // connections + (index < parallel % connections) for index in range(connections)]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._open_more_beside_first(shares[0] - 1))
            if connections > 1:
                ramp = LoginRamp(self._connector, connections - 1)
                async for connection in ramp.logins():
                    self.connections.append(connection)
                    group.create_task(self._open_more(connection, shares[len(self.connections) - 1]))
                if ramp.shortfall:
                    self._warn(f"{ramp.shortfall}; going on with {len(self.connections)} connections")
        missing = parallel - len(self.alive)
        if missing > 0 and len(self.connections) < connections:
            await self._open_more(self.connections[0], missing)

    async def _open_more_beside_first(self, count: int) -> None:
        """Open the first connection's further channels, after its first: MaxSessions may allow just one."""
        await self._opened.wait()
        await self._open_more(self.connections[0], count)

    def _share(self) -> int:
        """Return how many files one channel may have under way: memory and descriptors are for all of them together."""
        channels = max(self._parallel, len(self.clients), 1)
        free_fds = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FDS - channels * _CHANNEL_FDS
        return max(1, min(self._options.memory_bytes // SAFE_REQUEST_BYTES, free_fds) // channels)

    async def _open_more(self, connection: Connection, count: int) -> None:
        """Open `count` channels side by side; those the server refuses are told and left out."""
        results = await asyncio.gather(*(self._open_channel(connection) for _ in range(count)), return_exceptions=True)
        refusals = [result for result in results if isinstance(result, Exception)]
        if refusals:
            self._warn(self._shortfall(refusals))

    def _shortfall(self, refusals: list[Exception]) -> str:
        have = len(self.alive)
        going_on = f"going on with {have} channel{'s' if have != 1 else ''}"
        if any(isinstance(refusal, TooManySessions) for refusal in refusals):
            return (
                f"{self.host} allows no more sessions on one connection (MaxSessions in its sshd_config); {going_on}. "
                "More --connections would allow more channels"
            )
        return f"{len(refusals)} further channels could not be opened ({refusals[0]}); {going_on}"

    async def _open_channel(self, connection: Connection, *, learn: bool = True) -> SftpClient:
        transport = await connection.open_sftp()
        try:
            client = await SftpClient.open(
                transport,
                host=self.host,
                request_bytes=self._options.request_bytes,
                queue_depth=self._options.queue_depth,
                timeout_s=self._options.timeout_s,
                limits=next((client.limits for client in self.clients if client.limits is not None), None),
                learn=learn,
            )
        except HandshakeFailed as exc:
            try:
                raise await connection.explain(transport, exc.received) from exc
            finally:
                transport.close()
        client.limit_active(self._share())
        self.clients.append(client)
        self._listener(ChannelsChanged(channels=len(self.alive), connections=len(self.connections)))
        self.on_open(client)
        return client

    def _warn(self, message: str) -> None:
        self._listener(Warned(message=message))
