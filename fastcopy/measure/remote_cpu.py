"""CPU the far side spends on one connection, asked for by a small shell script over that same connection.

The script finds the sshd that serves it (an ancestor of its own shell) and sums that process, its privileged monitor
and all their descendants: this job's work and nobody else's. /proc where there is one, else `ps`. It needs no
privilege and leaves nothing behind. Imports only the values; `parse` is pure.
Invariant: where anything is doubtful the figure is None, never 0 and never another login's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fastcopy.errors import FastcopyError
from fastcopy.model import CpuUsage

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds a probe may take before the job goes on without its figure.
PROBE_TIMEOUT_S = 5.0
#: Bytes of answer; a process table by ps takes about 100 bytes a process.
_ANSWER_LIMIT_BYTES = 1 << 20
#: Processes from our shell up to, not including, sshd: this shell, a login shell, wrappers of a forced command.
_MOST_SHELLS = 5
_MARK = b"fastcopy-cpu "

#: Every login shell (csh, fish and restricted ones too) can run plain `sh`; the script goes in by stdin, so there is
#: nothing to quote.
COMMAND = "sh"

# How the right processes are found, on Linux:
# - Walk up from this shell ($PPID may be a login shell or a wrapper) to the first sshd or dropbear: it serves us. At
#   most four steps and never through a terminal: behind a server of another make we would else climb into the sshd
#   of whoever started that server by hand.
# - For a user other than root that one has a privileged half, its parent, which works for this login too. sshd calls
#   setsid() once per login, so the half is the session leader, and the listening daemon, also an sshd, never is
#   (Source: openssh-portable sshd.c main(), session.c do_exec_no_pty; seen with 9.2).
# - Descendants by /proc/PID/task/TID/children, a handful of reads; on a kernel without it, by passes over the table.
# - Fields 14-17 of stat hold the process and what it has reaped: sftp-servers that have ended are in there.
# This shell and the login shell above it are the probe's own cost, not the job's: left out.
# Fields are counted from behind the last ")": a command name may hold spaces and parentheses.
_SCRIPT = rb"""{
stat() {
  line=
  { read -r line < "/proc/$1/stat"; } 2>/dev/null || return 1
  name=${line#*\(}; name=${name%\)*}
  set -f; set -- ${line##*\) }; set +f
  [ $# -ge 15 ] || return 1
  parent=$2 session=$4 terminal=$5 user=${12} system=${13} reaped_user=${14} reaped_system=${15}
  case $parent$session$user$system$reaped_user$reaped_system in *[!0-9]*) return 1;; esac
}
serves() { case $name in sshd*|dropbear*) return 0;; esac; return 1; }
children() {
  found=
  for file in /proc/$1/task/*/children; do
    kids=
    { read -r kids < "$file"; } 2>/dev/null
    found="$found $kids"
  done
}
scan() {
  grown=1
  while [ $grown = 1 ]; do
    grown=0
    for file in /proc/[0-9]*/stat; do
      pid=${file#/proc/}; pid=${pid%/stat}
      case "$all " in *" $pid "*) continue;; esac
      stat $pid || continue
      case "$all " in *" $parent "*) all="$all $pid"; grown=1;; esac
    done
  done
}
cores=`nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo -`
if [ -r /proc/$$/stat ]; then
  root= own=" $$" pid=$PPID steps=0
  while [ $steps -le 4 ] && stat $pid; do
    if serves; then
      root=$pid
      if [ $session = $parent ] && stat $session && serves; then root=$session; fi
      break
    fi
    [ $terminal = 0 ] || break
    own="$own $pid" pid=$parent steps=$((steps + 1))
  done
  if [ -n "$root" ]; then
    all=" $root" todo=$root
    if [ -r /proc/$$/task/$$/children ]; then
      while [ -n "$todo" ]; do
        set -- $todo; pid=$1; shift; todo=$*
        children $pid
        all="$all $found" todo="$todo$found"
        todo=${todo# }
      done
    else
      scan
    fi
    u=0 s=0
    for pid in $all; do
      case "$own " in *" $pid "*) continue;; esac
      stat $pid || continue
      u=$((u + user + reaped_user)) s=$((s + system + reaped_system))
    done
    ticks=`getconf CLK_TCK 2>/dev/null || echo 100`
    echo; echo "fastcopy-cpu procfs $u $s $ticks $cores."
  else
    echo; echo "fastcopy-cpu none $cores."
  fi
else
  echo; echo "fastcopy-cpu ps $$ $cores."
  { ps -S -A -o pid= -o ppid= -o time= -o args= 2>/dev/null || ps -A -o pid= -o ppid= -o time= -o args=; } | cut -c1-100
  echo "fastcopy-cpu end."
fi
exit 0
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSample:
    """What one probe told. `cpu` is None where it could not tell (source "none"); `cores` too.

    With source "ps" only the sum is known: it stands in `cpu.user_s`.
    """

    cpu: CpuUsage | None = None
    cores: int | None = None
    source: str = "none"


UNKNOWN = RemoteSample()


class Answer(Protocol):
    """What a command printed."""

    @property
    def stdout(self) -> bytes: ...


class Runner(Protocol):
    """The one method of a connection that the probe needs (connection/base.py has its contract)."""

    async def run(self, command: str, *, stdin: bytes, timeout_s: float, limit_bytes: int) -> Answer: ...


class RemoteProbe:
    """Measures one connection. For a login that was there before the job, call `begin` first."""

    def __init__(self, connection: Runner) -> None:
        self._connection = connection
        self._before = CpuUsage()
        self._usable = True

    async def begin(self) -> RemoteSample:
        """Take the figures so far as zero: what a reused master has spent for others is not this job's."""
        sample = await self._ask()
        self._before = sample.cpu or CpuUsage()
        self._usable = sample.cpu is not None
        return sample

    async def sample(self) -> RemoteSample:
        """Return what the far side has spent on this connection since it began, or since `begin`.

        Never raises for a server that gives no shell, refuses a session or does not answer in time: UNKNOWN then.
        Costs one round trip on the connection, and about 10 ms of CPU there.
        """
        sample = await self._ask()
        if sample.cpu is None or not self._usable:
            return RemoteSample(cores=sample.cores)
        return RemoteSample(cpu=sample.cpu - self._before, cores=sample.cores, source=sample.source)

    async def _ask(self) -> RemoteSample:
        try:
            answer = await self._connection.run(
                COMMAND, stdin=_SCRIPT, timeout_s=PROBE_TIMEOUT_S, limit_bytes=_ANSWER_LIMIT_BYTES
            )
        except (FastcopyError, TimeoutError, OSError):
            return UNKNOWN
        return parse(answer.stdout)


async def sample_all(probes: Sequence[RemoteProbe]) -> RemoteSample:
    """Ask all connections at once and add up. One that cannot tell makes the sum unknown: part of it would mislead."""
    return added(await asyncio.gather(*(probe.sample() for probe in probes)))


def added(samples: Sequence[RemoteSample]) -> RemoteSample:
    """Return the sum over the connections of one job to one host."""
    cores = next((sample.cores for sample in samples if sample.cores is not None), None)
    known = [sample.cpu for sample in samples if sample.cpu is not None]
    if not known or len(known) < len(samples):
        return RemoteSample(cores=cores)
    source = "ps" if any(sample.source == "ps" for sample in samples) else samples[0].source
    return RemoteSample(cpu=sum(known, CpuUsage()), cores=cores, source=source)


def parse(output: bytes) -> RemoteSample:
    """Read what the script printed; UNKNOWN for anything that is not its answer. Text around it is ignored."""
    lines = output.split(b"\n")
    for number, line in enumerate(lines):
        if line.startswith(_MARK):
            words = line.rstrip(b"\r").removeprefix(_MARK).removesuffix(b".").decode("ascii", "replace").split()
            match words:
                case ["procfs", user, system, ticks, cores] if (per_s := _count(ticks)) is not None and per_s > 0:
                    spent = _count(user), _count(system)
                    if spent[0] is None or spent[1] is None:
                        return UNKNOWN
                    usage = CpuUsage(user_s=spent[0] / per_s, system_s=spent[1] / per_s)
                    return RemoteSample(cpu=usage, cores=_cores(cores), source="procfs")
                case ["ps", pid, cores]:
                    total_s = _sum_of_tree(lines[number + 1 :], pid)
                    if total_s is None:
                        return RemoteSample(cores=_cores(cores))
                    return RemoteSample(cpu=CpuUsage(user_s=total_s), cores=_cores(cores), source="ps")
                case ["none", cores]:
                    return RemoteSample(cores=_cores(cores))
            return UNKNOWN
    return UNKNOWN


def _count(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 18 else None


def _cores(word: str) -> int | None:
    return _count(word) or None


def _sum_of_tree(lines: Sequence[bytes], shell: str) -> float | None:
    """Sum a table of `pid ppid time args` over the sshd that serves process `shell` and its descendants."""
    rows: dict[str, tuple[str, float, str]] = {}
    for line in lines:
        if line.startswith(_MARK + b"end"):
            break
        words = line.decode("utf-8", "replace").split(None, 3)
        if len(words) == 4 and (spent_s := clock_time_s(words[2])) is not None:
            rows[words[0]] = words[1], spent_s, words[3]
    else:
        return None  # cut off
    root, own = shell, set[str]()
    while root in rows and root not in own and not _is_sshd(rows[root][2]):
        own.add(root)
        root = rows[root][0]
    if root not in rows or root in own or not 1 <= len(own) <= _MOST_SHELLS:
        return None
    parent = rows[root][0]
    if parent in rows and _is_sshd(rows[parent][2]) and "[priv]" in rows[parent][2]:
        root = parent
    children: dict[str, list[str]] = {}
    for pid, (above, _, _) in rows.items():
        children.setdefault(above, []).append(pid)
    total_s, todo, seen = 0.0, [root], own
    while todo:
        pid = todo.pop()
        if pid not in seen:
            seen.add(pid)
            total_s += rows[pid][1]
            todo += children.get(pid, [])
    return total_s


def _is_sshd(args: str) -> bool:
    """Tell sshd from others by its title: `sshd: user [priv]`, `/usr/sbin/sshd -D`, `sshd-session: user@notty`."""
    return args.split(None, 1)[0].rpartition("/")[2].startswith(("sshd", "dropbear"))


def clock_time_s(text: str) -> float | None:
    """Read ps's CPU time, `[[days-]hours:]minutes:seconds[.fraction]`, as seconds; None for anything else."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    try:
        seconds = float(parts[-1])
        for weight, part in zip((60, 3600), reversed(parts[:-1]), strict=False):
            seconds += weight * int(part)
        seconds += 86_400 * int(days) if dash else 0
    except ValueError:
        return None
    return seconds if len(parts) in (2, 3) and 0 <= seconds < 1e12 else None
