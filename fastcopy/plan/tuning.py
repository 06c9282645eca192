"""How many channels over how many connections a copy should use: one choice from what is known at its start.

Pure arithmetic on values; climbing while the copy runs may call `choose` again with better ones. Connections buy
cores and TCP buffers, channels buy SSH windows, and each login costs round trips: so every candidate's time is
estimated and the cheapest wins. Invariant: what was asked for explicitly is what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastcopy.model import Direction
from fastcopy.plan.chunks import MIN_CHUNK_BYTES, SMALL_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_MIB = 1 << 20
_INFINITE = float("inf")

#: Bytes in flight per channel through OpenSSH at either end. Source: OpenSSH's channels.h, CHAN_SES_WINDOW_DEFAULT.
OPENSSH_WINDOW_BYTES = 2 * _MIB
#: Bytes in flight per channel on a get through asyncssh: the window we offer. Source: connection/.
ASYNCSSH_GET_WINDOW_BYTES = 16 * _MIB
#: Bytes in flight per connection. Source: the usual maximum of Linux' net.ipv4.tcp_wmem.
TCP_BUFFER_BYTES = 4 * _MIB
#: Bytes per second one core at each end encrypts and moves. Source: our measurement, design.md section 6.
CORE_BYTES_PER_S = 400 * _MIB
#: Bytes per second a long link is supposed to carry; windows are filled up to this. Source: our choice.
LINK_BYTES_PER_S = 400 * _MIB
#: Cores, and so connections, that are of use where only cores count. Source: our choice.
USEFUL_CORES = 4
#: Channels whose small files this process can drive at once before its own Python is the limit. Source: measurement.
USEFUL_FILE_CHANNELS = 2
#: Seconds of this process per small file. Source: 10,000 files of 4 KiB in 0.9 s, design.md section 6.
FILE_S = 80e-6
#: Round trips of one small file: open, write, set times, close, rename partly overlapped. Source: sftp/.
FILE_ROUND_TRIPS = 4
#: Small files whose round trips overlap on one channel. Source: BATCH_FILES of plan/schedule.py.
FILES_IN_FLIGHT = 64
#: Round trips and seconds until a further login is of use. Source: measurement, design.md sections 3 and 6.
LOGIN_ROUND_TRIPS = 7
LOGIN_S = 0.2
#: Logins that may be pending at once. Source: issue 2; MaxStartups 10:30:100 of sshd_config(5).
PENDING_LOGINS = 4
#: Seconds of copying that one login's key exchange takes from the cores of both sides. Source: our estimate.
LOGIN_PRICE_S = 0.05
#: Round trips and seconds until a further channel is of use. Source: measurement, design.md sections 3 and 6.
CHANNEL_ROUND_TRIPS = 3
CHANNEL_S = 0.007
#: Channels one connection may have. Source: MaxSessions of sshd_config(5).
MAX_SESSIONS = 10
#: Channels we put on one connection unasked: MaxSessions less room for commands (CPU probe, hashes).
AUTO_CHANNELS_PER_CONNECTION = 8
#: Connections and channels we make unasked. Source: our choice; a guest's manners on somebody's sshd.
MAX_AUTO_CONNECTIONS = 16
MAX_AUTO_CHANNELS = 32
#: Seconds. Under this round trip no window matters and the report speaks of cores. Source: 2 MiB / 2 ms is 1 GiB/s.
LAN_RTT_S = 0.002
#: Bytes supposed to be there while the scan still runs. Source: our choice; it only has to dwarf the logins.
UNKNOWN_TOTAL_BYTES = 100 << 30
#: A candidate within this factor of the best is as good, if it needs fewer logins or channels. Source: our choice.
AS_GOOD = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What is known when the first channel is up.

    `remote_cores` is None where the server runs no commands. `files` and `largest_bytes` are of what was scanned so
    far; `total_bytes` is None while the scan runs. `way` is "openssh" or "asyncssh". `parallel` and
    `connections` are what was asked for, None for auto.
    """

    rtt_s: float
    local_cores: int
    files: int
    largest_bytes: int
    remote_cores: int | None = None
    total_bytes: int | None = None
    direction: Direction = Direction.PUT
    way: str = "openssh"
    login_is_typed: bool = False
    reuse_master: bool = False
    parallel: int | None = None
    connections: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rtt_s < _INFINITE:
            raise ValueError(f"not a round trip time: {self.rtt_s}")

    @property
    def one_login(self) -> bool:
        """Whether further logins are out of the question, unless they were asked for."""
        return self.connections is None and (self.login_is_typed or self.reuse_master)

    @property
    def cores(self) -> int:
        """Cores of the weaker side; a side that does not tell is taken to be no weaker."""
        return max(1, min(self.local_cores, self.remote_cores or self.local_cores))

    @property
    def window_bytes(self) -> int:
        """Bytes in flight per channel."""
        ours = self.way == "asyncssh" and self.direction is Direction.GET
        return ASYNCSSH_GET_WINDOW_BYTES if ours else OPENSSH_WINDOW_BYTES

    @property
    def bytes_to_move(self) -> int:
        return UNKNOWN_TOTAL_BYTES if self.total_bytes is None else self.total_bytes

    @property
    def small_files(self) -> int:
        """How many files cost round trips rather than bytes; while the scan runs, as many as make the total."""
        if self.largest_bytes > SMALL_FILE_BYTES:
            return 0
        if self.total_bytes is None:
            return max(self.files, UNKNOWN_TOTAL_BYTES // max(self.largest_bytes, 1 << 12))
        return self.files

    @property
    def pieces(self) -> int:
        """How many channels can have something to do at once, at most."""
        if self.total_bytes is None:
            return MAX_AUTO_CHANNELS
        return max(1, self.files, self.total_bytes // MIN_CHUNK_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The choice: `parallel` channels over `connections` logins, and the reason in a few words."""

    parallel: int
    connections: int
    why: str


def choose(circumstances: Circumstances) -> Tuning:
    """Return the fewest connections and channels that are as fast as any, and the reason.

    Explicit values come out as they went in, but that there are never more connections than channels. Auto values
    keep to: 10 channels per connection, no more channels than pieces of work, one connection where a login is typed
    or the user's own master is used.
    """
    c = circumstances
    timed = [(estimate_s(c, parallel, connections), connections, parallel) for parallel, connections in _candidates(c)]
    limit = min(timed)[0] * AS_GOOD
    _, connections, parallel = min((t for t in timed if t[0] <= limit), key=lambda t: (t[1], t[2], t[0]))
    return Tuning(parallel=parallel, connections=connections, why=_why(c, parallel, connections))


def _candidates(c: Circumstances) -> Iterator[tuple[int, int]]:
    """Yield (parallel, connections) that may be chosen; never none."""
    if c.parallel is not None and c.connections is not None:
        yield c.parallel, min(c.connections, c.parallel)
        return
    for connections in _connection_counts(c):
        if c.parallel is not None:
            yield c.parallel, connections
            continue
        for each in range(1, AUTO_CHANNELS_PER_CONNECTION + 1):
            parallel = connections * each
            if each == 1 or parallel <= min(c.pieces, MAX_AUTO_CHANNELS):
                yield parallel, connections


def _connection_counts(c: Circumstances) -> range:
    if c.connections is not None:
        return range(c.connections, c.connections + 1)
    if c.one_login:
        return range(1, 2)
    if c.parallel is None:
        return range(1, min(c.pieces, MAX_AUTO_CONNECTIONS) + 1)
    needed = -(-c.parallel // MAX_SESSIONS)
    return range(needed, max(needed, min(c.parallel, MAX_AUTO_CONNECTIONS)) + 1)


def estimate_s(circumstances: Circumstances, parallel: int, connections: int) -> float:
    """Return the seconds the copy is expected to take from its first channel on.

    Copying goes on while the rest comes up: first the further channels of the first connection, then connections,
    a few at a time. A job that ends before its last login is up has been charged for that login all the same.
    """
    c = circumstances
    each = -(-parallel // connections)
    elapsed_s = LOGIN_PRICE_S * (connections - 1)
    left = 1.0
    for seconds, channels, logins in _ramp(c, parallel, connections, each):
        whole_s = _work_s(c, channels, logins)
        if left * whole_s <= seconds:
            return elapsed_s + left * whole_s
        left -= seconds / whole_s
        elapsed_s += seconds
    return elapsed_s + left * _work_s(c, parallel, connections)


def _ramp(c: Circumstances, parallel: int, connections: int, each: int) -> Iterator[tuple[float, int, int]]:
    """Yield (seconds, channels, connections) of every stage before all are up."""
    open_s = CHANNEL_ROUND_TRIPS * c.rtt_s + CHANNEL_S * each
    if each > 1:
        yield open_s, 1, 1
    for logins in range(1, connections, PENDING_LOGINS):
        yield LOGIN_ROUND_TRIPS * c.rtt_s + LOGIN_S + open_s, min(parallel, logins * each), logins


def _work_s(c: Circumstances, channels: int, connections: int) -> float:
    """Return the seconds the whole copy takes with all these up.

    Cores, files and their waits overlap, so the slowest counts. Link and cores are added, not the slower one taken:
    nobody knows beforehand which it will be, so that each keeps its value.
    """
    used_cores = 1 if c.way == "asyncssh" else min(connections, c.cores, USEFUL_CORES)  # one Python process: one core
    bytes_s = c.bytes_to_move / (used_cores * CORE_BYTES_PER_S)
    files_s = c.small_files * FILE_S / min(channels, 1 if c.way == "asyncssh" else USEFUL_FILE_CHANNELS)
    waits_s = c.small_files * FILE_ROUND_TRIPS * c.rtt_s / (FILES_IN_FLIGHT * channels)
    return max(bytes_s, files_s, waits_s) + c.bytes_to_move / _link_bytes_per_s(c, channels, connections)


def _link_bytes_per_s(c: Circumstances, channels: int, connections: int) -> float:
    in_flight: float = channels * c.window_bytes
    if not c.one_login:  # with one, TCP's buffers cannot be helped, and may be larger: channels are cheap, so fill them
        in_flight = min(in_flight, connections * TCP_BUFFER_BYTES)
    return min(in_flight / c.rtt_s if c.rtt_s else _INFINITE, LINK_BYTES_PER_S)


def _why(c: Circumstances, parallel: int, connections: int) -> str:
    if c.parallel is not None and c.connections is not None:
        return "as asked for"
    if c.one_login:
        return "one login, because it is typed" if c.login_is_typed else "one login: your own ssh master"
    if c.parallel is None and parallel >= c.pieces:
        return "no more channels than pieces of work"
    rtt = f"a round trip takes {c.rtt_s * 1000:.3g} ms"
    if parallel == connections == 1:
        return f"{rtt}: a further login would cost more than it brings"
    if c.rtt_s < LAN_RTT_S:
        return f"{rtt}, and the weaker side has {c.cores} {'core' if c.cores == 1 else 'cores'}"
    return f"{rtt}, so windows have to be filled"
