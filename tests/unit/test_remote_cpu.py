"""The remote CPU probe: what its answer means, and that the script itself runs under the shells at hand."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

import pytest

from fastcopy.errors import ChannelLost, TooManySessions
from fastcopy.measure import remote_cpu
from fastcopy.measure.remote_cpu import UNKNOWN, RemoteProbe, RemoteSample, added, clock_time_s, parse
from fastcopy.model import CpuUsage


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            b"\nfastcopy-cpu procfs 120 34 100 8.\n",
            RemoteSample(cpu=CpuUsage(user_s=1.2, system_s=0.34), cores=8, source="procfs"),
        ),
        (
            b"Welcome!\nNo newline at the end\nfastcopy-cpu procfs 1 0 1024 -.\nbye\n",
            RemoteSample(cpu=CpuUsage(user_s=1 / 1024), cores=None, source="procfs"),
        ),
        (
            b"\r\nfastcopy-cpu procfs 1 2 100 4.\r\n",
            RemoteSample(cpu=CpuUsage(user_s=0.01, system_s=0.02), cores=4, source="procfs"),
        ),
        (b"\nfastcopy-cpu none 4.\n", RemoteSample(cores=4)),
        (b"", UNKNOWN),
        (b"This account is currently not available.\n", UNKNOWN),
        (b"\nfastcopy-cpu procfs 1 2 0 4.\n", UNKNOWN),
        (b"\nfastcopy-cpu procfs 1 -2 100 4.\n", UNKNOWN),
        (b"\nfastcopy-cpu procfs \xd9\xa1 2 100 4.\n", UNKNOWN),
        (b"\nfastcopy-cpu procfs 1 2 100\n", UNKNOWN),
        (b"\nfastcopy-cpu procfs " + b"9" * 5000 + b" 2 100 4.\n", UNKNOWN),
        (b"\nfastcopy-cpu ", UNKNOWN),
    ],
)
def test_an_answer_is_read_or_unknown(output: bytes, expected: RemoteSample) -> None:
    """The marked line is found in any text around it; whatever is not exactly its form is unknown, never 0."""
    assert parse(output) == expected


#: As macOS prints it: a monitor, the user's half, sftp-server, our shell; a stranger's login and the daemon beside.
_PS = b"""
fastcopy-cpu ps 900 10.
    1     0   9:59.99 /sbin/launchd
  100     1   5:00.00 /usr/sbin/sshd -D
  200   100   0:01.50 sshd: ann [priv]
  300   200   1:02.25 sshd: ann@notty
  400   300   0:03.00 /usr/libexec/sftp-server
  800   300   0:07.00 -zsh
  900   800   0:08.00 sh
  910   900   0:09.00 ps -S -A -o pid= -o ppid= -o time= -o args=
  500   100   0:44.00 sshd: bob [priv]
  600   500   0:44.00 sshd: bob@notty
fastcopy-cpu end.
"""


def test_ps_counts_this_login_alone() -> None:
    """From a table by ps: monitor, user's half and sftp-server; not the daemon, not another login, not the probe."""
    assert parse(_PS) == RemoteSample(cpu=CpuUsage(user_s=1.5 + 62.25 + 3.0), cores=10, source="ps")


@pytest.mark.parametrize(
    ("what", "broken"),
    [
        ("cut off", _PS.partition(b"fastcopy-cpu end")[0]),
        ("no sshd above", _PS.replace(b"sshd", b"python server.py")),
        ("our shell is not in it", _PS.replace(b"  900   800", b"  901   800")),
        ("a circle", _PS.replace(b"  800   300   0:07.00 -zsh", b"  800   900   0:07.00 -zsh")),
        ("empty", b"\nfastcopy-cpu ps 900 10.\nfastcopy-cpu end.\n"),
    ],
)
def test_a_doubtful_table_gives_no_figure(what: str, broken: bytes) -> None:
    """Where the right sshd cannot be found for sure the figure is unknown; the number of cores still counts."""
    assert parse(broken) == RemoteSample(cores=10), what


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:00.03", 0.03),
        ("1:02", 62.0),
        ("01:02:03", 3723.0),
        ("2-01:02:03", 176_523.0),
        ("100:00.50", 6000.5),
        ("TIME", None),
        ("7", None),
        ("-1:00", None),
        ("1:2:3:4", None),
        ("nan:nan", None),
        ("0:inf", None),
        ("", None),
    ],
)
def test_clock_times_of_ps(text: str, expected: float | None) -> None:
    """POSIX, BSD and macOS forms are read; anything else is refused."""
    assert clock_time_s(text) == expected


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    """Two connections, one of which could not tell: no figure, for half of it would mislead."""
    known = RemoteSample(cpu=CpuUsage(user_s=1.0), cores=2, source="procfs")
    assert added([known, known]) == RemoteSample(cpu=CpuUsage(user_s=2.0), cores=2, source="procfs")
    assert added([known, UNKNOWN]) == RemoteSample(cores=2)
    assert added([]) == UNKNOWN


@dataclass(frozen=True)
class Printed:
    stdout: bytes


class Connection:
    """Answers each command with the next of `answers`; an exception is raised."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self._answers = list(answers)

    async def run(self, command: str, *, stdin: bytes, timeout_s: float, limit_bytes: int) -> Printed:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Printed(answer)


@pytest.mark.parametrize(
    "error", [TooManySessions("x", host="h"), ChannelLost("gone", host="h"), TimeoutError(), OSError(5, "EIO")]
)
async def test_no_command_no_figure(error: Exception) -> None:
    """A server that gives no shell, no session or no answer costs the figure, never the job."""
    assert await RemoteProbe(Connection(error)).sample() == UNKNOWN


async def test_what_a_reused_master_spent_before_is_taken_off() -> None:
    """After `begin` only what was spent since counts; without its figure none can be given."""
    first, later = b"\nfastcopy-cpu procfs 50 10 10 2.\n", b"\nfastcopy-cpu procfs 75 15 10 2.\n"
    probe = RemoteProbe(Connection(first, later))
    await probe.begin()
    assert await probe.sample() == RemoteSample(cpu=CpuUsage(user_s=2.5, system_s=0.5), cores=2, source="procfs")
    blind = RemoteProbe(Connection(TimeoutError(), later))
    await blind.begin()
    assert await blind.sample() == RemoteSample(cores=2)


@pytest.mark.parametrize("shell", [name for name in ("sh", "bash", "dash", "ksh", "mksh", "zsh") if shutil.which(name)])
def test_the_script_runs_in_every_shell_at_hand(shell: str) -> None:
    """Each shell here runs the script without a complaint and prints an answer that is understood."""
    result = subprocess.run(
        [shell], input=remote_cpu._SCRIPT, capture_output=True, timeout=60, start_new_session=True, check=False
    )
    sample = parse(result.stdout)
    assert (result.returncode, result.stderr) == (0, b"")
    assert sample.cores is not None
