"""CPU of the far side read from /proc over SFTP: the right processes, each once, or no figure."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fastcopy.measure.remote_cpu import RemoteSample
from fastcopy.measure.remote_procfs import MisreadError, ProcessStat, RemoteMeter, count_cores, parse_stat
from fastcopy.model import CpuUsage


def line(pid: int, name: str, parent: int, session: int, ticks: tuple[int, int, int, int], terminal: int = 0) -> bytes:
    """A line of /proc/PID/stat as Linux 6.1 writes it."""
    user, system, reaped_user, reaped_system = ticks
    times = f"{user} {system} {reaped_user} {reaped_system}"
    rest = f"-1 4194560 953 11 0 0 {times} 20 0 1 0 12345 17000000 1200 18446744073709551615 1 1 0"
    return f"{pid} ({name}) S {parent} {session} {session} {terminal} {rest}\n".encode()


def test_a_line_of_stat() -> None:
    """Times of reaped children are added to the process's own."""
    assert parse_stat(line(7, "sftp-server", 5, 7, (100, 20, 3, 4))) == ProcessStat(
        pid=7, name="sftp-server", parent=5, session=7, terminal=0, user_ticks=103, system_ticks=24
    )


@pytest.mark.parametrize("name", ["a b", "a) S 1 2 (b", ")", "((", ""])
def test_a_name_may_hold_anything(name: str) -> None:
    """A command name with spaces and parentheses does not shift the fields."""
    stat = parse_stat(line(7, name, 5, 6, (1, 2, 3, 4)))
    assert (stat.name, stat.parent, stat.session, stat.user_ticks) == (name, 5, 6, 4)


@pytest.mark.parametrize(
    "text",
    [b"", b"7 (sshd", b"7 (sshd) S 5 7", b"x (sshd) S " + b"1 " * 40, b"7 (sshd) S " + b"-5 " * 40, b"\xff" * 100],
)
def test_what_is_no_stat_is_refused(text: bytes) -> None:
    """Anything but a whole line raises the one error of this module."""
    with pytest.raises(MisreadError):
        parse_stat(text)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [(b"0\n", 1), (b"0-3\n", 4), (b"0-3,8-11\n", 8), (b"", None), (b"all", None), (b"3-0", None), (b"0-9999999", None)],
)
def test_cores(listed: bytes, expected: int | None) -> None:
    """A list of CPUs is counted; what is none gives no number."""
    assert count_cores(listed) == expected


ROOT_LOGIN = {
    b"/proc/self/stat": line(30, "sftp-server", 20, 30, (100, 50, 0, 0)),
    b"/proc/20/stat": line(20, "sshd", 10, 20, (200, 25, 1000, 0)),
    b"/proc/10/stat": line(10, "sshd", 1, 10, (9999, 9999, 9999, 9999)),  # the daemon
    b"/sys/devices/system/cpu/online": b"0-7\n",
}
#: For a plain user: 30 <- sshd: ann@notty 25 <- sshd: ann [priv] 20 <- the daemon 10.
USER_LOGIN = {
    **ROOT_LOGIN,
    b"/proc/self/stat": line(30, "sftp-server", 25, 30, (100, 50, 0, 0)),
    b"/proc/25/stat": line(25, "sshd-session", 20, 20, (200, 25, 1000, 0)),
    b"/proc/20/stat": line(20, "sshd-session", 10, 20, (8, 0, 0, 0)),
}


@dataclass(eq=False)
class Channel:
    """A channel to a server with these files; b"self" in /proc is the process behind this very channel."""

    files: dict[bytes, bytes]

    def __post_init__(self) -> None:
        own = self.files.get(b"/proc/self/stat", b"")
        self.files = {**self.files, b"/proc/" + own.partition(b" ")[0] + b"/stat": own}


@dataclass(frozen=True)
class Printed:
    stdout: bytes


class Connection:
    """A login on which a command answers `stdout`."""

    def __init__(self, stdout: bytes = b"") -> None:
        self.stdout = stdout
        self.asked = 0

    async def run(self, command: str, *, stdin: bytes, timeout_s: float, limit_bytes: int) -> Printed:
        self.asked += 1
        return Printed(self.stdout)


async def read(channel: Channel, path: bytes) -> bytes:
    if path not in channel.files:
        raise FileNotFoundError(path)
    return channel.files[path]


@pytest.mark.parametrize(
    ("files", "user_s", "system_s"), [(ROOT_LOGIN, 13.0, 0.75), (USER_LOGIN, 13.08, 0.75)], ids=["root", "user"]
)
async def test_one_login(files: dict[bytes, bytes], user_s: float, system_s: float) -> None:
    """sftp-server, its sshd and that one's privileged half count; the listening daemon never does; nothing is run."""
    meter: RemoteMeter[Channel] = RemoteMeter(read)
    channel, connection = Channel(files), Connection()
    assert await meter.begin(channel, connection) == RemoteSample(cores=8)
    assert await meter.sample([channel], [connection]) == RemoteSample(
        cpu=CpuUsage(user_s=user_s, system_s=system_s), cores=8, source="procfs"
    )
    assert connection.asked == 0


async def test_channels_of_one_login_share_its_sshd() -> None:
    """Two channels over one login: two sftp-servers and the sshd once."""
    second = Channel({**ROOT_LOGIN, b"/proc/self/stat": line(31, "sftp-server", 20, 31, (7, 0, 0, 0))})
    sample = await RemoteMeter(read).sample([Channel(ROOT_LOGIN), second], [Connection()])
    assert sample.cpu == CpuUsage(user_s=13.07, system_s=0.75)


async def test_a_wrapper_between_is_passed() -> None:
    """A login shell that did not exec stands between sftp-server and sshd."""
    files = {
        **ROOT_LOGIN,
        b"/proc/self/stat": line(30, "sftp-server", 29, 29, (100, 50, 0, 0)),
        b"/proc/29/stat": line(29, "tcsh", 20, 29, (5, 5, 5, 5)),
    }
    sample = await RemoteMeter(read).sample([Channel(files)], [Connection()])
    assert sample.cpu == CpuUsage(user_s=13.0, system_s=0.75)


async def test_internal_sftp() -> None:
    """Where SFTP is internal the process behind the channel is an sshd itself."""
    files = {**ROOT_LOGIN, b"/proc/self/stat": line(30, "sshd", 20, 30, (100, 50, 0, 0))}
    sample = await RemoteMeter(read).sample([Channel(files)], [Connection()])
    assert sample.cpu == CpuUsage(user_s=13.0, system_s=0.75)


SERVER_OF_ANOTHER_MAKE = line(30, "python3", 20, 30, (1, 1, 1, 1))
STARTED_BY_HAND = line(30, "sftp-server", 20, 30, (1, 1, 1, 1), terminal=34816)


@pytest.mark.parametrize(
    ("what", "files"),
    [
        ("no /proc", {}),
        ("another make", {**ROOT_LOGIN, b"/proc/self/stat": SERVER_OF_ANOTHER_MAKE}),
        ("on a terminal", {**ROOT_LOGIN, b"/proc/self/stat": STARTED_BY_HAND}),
        ("hidden sshd", {**ROOT_LOGIN, b"/proc/20/stat": b""}),
        ("hidden half", {**USER_LOGIN, b"/proc/20/stat": b""}),
        ("no sshd above", {**ROOT_LOGIN, b"/proc/20/stat": line(20, "init", 0, 20, (1, 1, 1, 1))}),
    ],
)
async def test_where_it_is_doubtful_a_command_is_asked(what: str, files: dict[bytes, bytes]) -> None:
    """No /proc, another make of server, a hidden or missing sshd: the login is asked by a command instead."""
    connection = Connection(b"\nfastcopy-cpu procfs 300 200 100 4.\n")
    sample = await RemoteMeter(read).sample([Channel(files)], [connection])
    assert sample == RemoteSample(cpu=CpuUsage(user_s=3.0, system_s=2.0), cores=4, source="procfs"), what
    assert connection.asked == 1


async def test_no_way_to_know() -> None:
    """Neither /proc nor a command: no figure, not 0."""
    assert await RemoteMeter(read).sample([Channel({})], [Connection()]) == RemoteSample()


async def test_a_login_without_a_channel_is_not_forgotten() -> None:
    """A login that was granted no channel cannot be read by SFTP: all are asked by a command, or none counts."""
    channel = Channel(ROOT_LOGIN)
    assert (await RemoteMeter(read).sample([channel], [Connection(), Connection()])).cpu is None
    answer = b"\nfastcopy-cpu procfs 100 0 100 4.\n"
    sample = await RemoteMeter(read).sample([channel], [Connection(answer), Connection(answer)])
    assert sample.cpu == CpuUsage(user_s=2.0)


async def test_what_a_shared_login_spent_before_is_taken_off() -> None:
    """A reused master: only what was spent since `begin` is the job's."""
    meter: RemoteMeter[Channel] = RemoteMeter(read)
    channel, connection = Channel(ROOT_LOGIN), Connection()
    await meter.begin(channel, connection, shared=True)
    channel.files[b"/proc/20/stat"] = line(20, "sshd", 10, 20, (250, 50, 1000, 0))
    sample = await meter.sample([channel], [connection])
    assert sample.cpu == CpuUsage(user_s=0.5, system_s=0.25)


async def test_a_shared_login_without_a_first_figure_has_no_last_one() -> None:
    """What a reused master had spent before is not known: then the job's own part is not known either."""
    meter: RemoteMeter[Channel] = RemoteMeter(read)
    channel, connection = Channel({}), Connection()
    await meter.begin(channel, connection, shared=True)
    connection.stdout = b"\nfastcopy-cpu procfs 300 200 100 4.\n"
    assert await meter.sample([channel], [connection]) == RemoteSample(cores=4)
