"""CPU the far side spends on this job, read as files of its /proc over the SFTP channels the job has anyway.

`/proc/self/stat` is the sftp-server's own; its parent is the sshd that serves us, and that one's privileged half is
its session leader. So no command is run, no login shell started and no second channel opened: three small reads. Where
a server shows no /proc, or is not OpenSSH, `remote_cpu` asks by a command instead. Imports only the values.
Invariant: where anything is doubtful there is no figure; no process that serves others is ever counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from fastcopy.measure.remote_cpu import PROBE_TIMEOUT_S, RemoteProbe, RemoteSample, sample_all
from fastcopy.model import CpuUsage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from fastcopy.measure.remote_cpu import Runner

#: Clock ticks per second in /proc. Source: USER_HZ, include/asm-generic/param.h of Linux; 100 on x86, ARM, POWER, s390.
_TICKS_PER_S = 100
#: Processes between an sftp-server and its sshd: a login shell that did not exec, a wrapper.
_MOST_WRAPPERS = 3
#: Bytes a reader needs to return at most: a line of stat, a list of CPUs.
READ_BYTES = 4096
_CORES_PATH = b"/sys/devices/system/cpu/online"

Channel = TypeVar("Channel")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """What one line of /proc/PID/stat says. `ticks` are user and system time, those of reaped children included."""

    pid: int
    name: str
    parent: int
    session: int
    terminal: int
    user_ticks: int
    system_ticks: int

    @property
    def serves_ssh(self) -> bool:
        return self.name.startswith(("sshd", "dropbear"))

    @property
    def serves_sftp(self) -> bool:
        """sftp-server and its like, or sshd itself where SFTP is internal."""
        return "sftp" in self.name or self.serves_ssh


class MisreadError(Exception):
    """Not what /proc of Linux looks like."""


def parse_stat(line: bytes) -> ProcessStat:
    """Read one line of /proc/PID/stat. Raises: MisreadError for anything else."""
    try:
        head, _, tail = line.rpartition(b") ")
        pid, _, name = head.partition(b" (")
        fields = [int(field) for field in tail.split()[1:15]]
        parent, _, session, terminal, *_ = fields
        user, system, reaped_user, reaped_system = fields[10:14]
        values = (int(pid), parent, session, user, system, reaped_user, reaped_system)
    except ValueError as exc:
        raise MisreadError("not a line of /proc/PID/stat") from exc
    if min(values) < 0:
        raise MisreadError("a negative number")
    return ProcessStat(
        pid=int(pid),
        name=name.decode("utf-8", "replace"),
        parent=parent,
        session=session,
        terminal=terminal,
        user_ticks=user + reaped_user,
        system_ticks=system + reaped_system,
    )


def count_cores(listed: bytes) -> int | None:
    """Return how many CPUs a list like `0-3,8-11` names; None where it is no such list."""
    count = 0
    try:
        for part in listed.strip().split(b","):
            first, _, last = part.partition(b"-")
            count += int(last or first) - int(first) + 1
    except ValueError:
        return None
    return count if 0 < count <= 1 << 16 else None


def _stat_path(process: bytes) -> bytes:
    return b"/proc/" + process + b"/stat"


class RemoteMeter(Generic[Channel]):
    """Measures all logins of one job to one host. Used from the event loop."""

    def __init__(
        self,
        read: Callable[[Channel, bytes], Awaitable[bytes]],
        *,
        keep: Callable[[Channel, bytes], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare.

        Args:
            read: returns the first READ_BYTES of a file over a channel; raises whatever it likes where it cannot.
            keep: told of each file that will be read once more at the end: opened now, it costs one round trip then.
        """
        self._read_file = read
        self._keep = keep
        #: The processes behind each channel: its sftp-server, the sshd, perhaps the privileged half.
        self._known: dict[Channel, tuple[int, ...]] = {}
        self._before: CpuUsage | None = CpuUsage()
        self._cores: int | None = None

    async def begin(self, channel: Channel, connection: Runner, *, shared: bool = False) -> RemoteSample:
        """Look at the first channel: which processes serve it, how many cores they have.

        Args:
            shared: the login was there before the job (a reused master): what it has spent so far is not the job's.
        Returns: cores, and the CPU so far. Never raises for a server that does not tell.
        """
        listed, _ = await asyncio.gather(self._quietly(self._read_file(channel, _CORES_PATH)), self.learn([channel]))
        self._cores = count_cores(listed) if listed is not None else None
        if not shared and self._known:
            return RemoteSample(cores=self._cores)
        sample = await self.sample([channel], [connection])
        if shared:
            self._before = sample.cpu
        return sample

    async def learn(self, channels: Iterable[Channel]) -> None:
        """Find out which processes serve `channels`, so that `sample` is one round trip. Never raises."""
        new = [channel for channel in channels if channel not in self._known]
        for channel, pids in zip(new, await asyncio.gather(*map(self._find, new)), strict=True):
            if pids:
                self._known[channel] = pids
        if self._keep is not None:
            kept = [(channel, pid) for channel in new for pid in self._known.get(channel, ())]
            await asyncio.gather(*(self._quietly(self._keep(to, _stat_path(b"%d" % pid))) for to, pid in kept))

    async def sample(self, channels: Sequence[Channel], connections: Sequence[Runner]) -> RemoteSample:
        """Return what the far side has spent on the job.

        Args:
            channels: all that live; what ended ones cost stands in their sshd's figures. Two round trips.
            connections: all logins of the job; asked by a command each where /proc is not to be had, or where a
                login has no channel to read it over.
        Returns: `cpu` None where one of the logins could not tell. Never raises for a server that does not.
        """
        await self.learn(channels)
        chains = [self._known[channel] for channel in channels if channel in self._known]
        if len(chains) == len(channels) and len({chain[1] for chain in chains}) == len(connections):
            cpu = await self._quietly(self._sum(channels))
            if cpu is not None:
                return self._since_begin(RemoteSample(cpu=cpu, source="procfs"))
        return self._since_begin(await sample_all([RemoteProbe(connection) for connection in connections]))

    def _since_begin(self, sample: RemoteSample) -> RemoteSample:
        cores = self._cores or sample.cores
        if sample.cpu is None or self._before is None:
            return RemoteSample(cores=cores)
        return RemoteSample(cpu=sample.cpu - self._before, cores=cores, source=sample.source)

    async def _sum(self, channels: Sequence[Channel]) -> CpuUsage:
        """Add up every process once. Raises: when one of them cannot be read."""
        readers = {pid: channel for channel in channels for pid in self._known[channel]}
        stats = await asyncio.gather(*(self._stat(channel, b"%d" % pid) for pid, channel in readers.items()))
        return CpuUsage(
            user_s=sum(stat.user_ticks for stat in stats) / _TICKS_PER_S,
            system_s=sum(stat.system_ticks for stat in stats) / _TICKS_PER_S,
        )

    async def _find(self, channel: Channel) -> tuple[int, ...]:
        """Return the processes that serve `channel`; () where that cannot be told for sure."""
        return await self._quietly(self._chain(channel)) or ()

    async def _chain(self, channel: Channel) -> tuple[int, ...]:
        server = await self._stat(channel, b"self")
        # A server of another make may serve others too, and somebody's own sshd may stand far above it.
        if not server.serves_sftp or server.terminal:
            return ()
        above = await self._stat(channel, b"%d" % server.parent)
        for _ in range(_MOST_WRAPPERS):
            if above.serves_ssh or above.terminal:
                break
            above = await self._stat(channel, b"%d" % above.parent)
        if not above.serves_ssh:
            return ()
        # sshd calls setsid() once per login, so its privileged half leads the session and the listening daemon never
        # does. Source: main() in openssh-portable's sshd.c; seen with 9.2.
        if above.session != above.parent:
            return server.pid, above.pid
        leader = await self._stat(channel, b"%d" % above.parent)
        return (server.pid, above.pid, leader.pid) if leader.serves_ssh else ()

    async def _stat(self, channel: Channel, process: bytes) -> ProcessStat:
        return parse_stat(await self._read_file(channel, _stat_path(process)))

    async def _quietly(self, answer: Awaitable[Answer]) -> Answer | None:
        """Return the answer; None for any failure: whatever is wrong with /proc there, the copy goes on."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return await answer
        except Exception:
            return None
