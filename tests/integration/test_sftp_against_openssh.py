"""Every SFTP operation against OpenSSH's own sftp-server, compared with what this system's calls say of the same files.

The server runs as a child behind two pipes: `sftp-server -e` speaks SFTP on stdin and stdout, no ssh in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import pwd
import random
import resource
import signal
import stat
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from fastcopy.errors import ChannelLost, SourceChanged
from fastcopy.model import Attributes, Range
from fastcopy.plan.ranges import RangeSet
from fastcopy.sftp import operations, packets
from fastcopy.sftp.client import SftpClient
from fastcopy.sftp.operation import StatusError
from fastcopy.sftp.streams import ReadRange, WriteRange
from tests.conftest import NO_SSHD
from tests.support.sftp_channels import RealServer, real_server, sftp_server_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from typing import Protocol

    from fastcopy.sftp.operation import Steps

    class Open(Protocol):
        def __call__(
            self, *, splice: bool = True, **settings: Any
        ) -> AbstractAsyncContextManager[tuple[SftpClient, RealServer]]: ...


pytestmark = [pytest.mark.timeout(60), pytest.mark.skipif(sftp_server_path() is None, reason=NO_SSHD)]

#: A name of bytes that are no UTF-8, with what shells and servers trip over.
ODD = b"\xff\xfe \\ \n -\xe4"
GIB = 1 << 30
NEW_FILE = packets.WRITE_FLAG | packets.CREATE_FLAG | packets.EXCLUSIVE_FLAG


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Every test leaves no thread and no descriptor behind."""
    gc.collect()
    threads, fds = set(threading.enumerate()), len(os.listdir("/dev/fd"))
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(20)
    assert (set(threading.enumerate()) - threads, len(os.listdir("/dev/fd"))) == (set(), fds)


@pytest.fixture
def open_client(tmp_path: Path) -> Open:
    @contextlib.asynccontextmanager
    async def open_(*, splice: bool = True, **settings: Any) -> AsyncIterator[tuple[SftpClient, RealServer]]:
        with real_server(tmp_path, splice=splice) as server:
            client = await SftpClient.open(server.transport, host="srv002", **settings)
            try:
                yield client, server
            finally:
                await client.close()

    return open_


@pytest.fixture
def here(tmp_path: Path) -> bytes:
    """A directory with an odd name."""
    path = os.path.join(os.fsencode(tmp_path), b"folder " + ODD)
    os.mkdir(path)
    return path


@pytest.fixture
def login_folder(tmp_path: Path) -> bytes:
    """Where the server starts."""
    return os.fsencode(tmp_path.resolve())


@contextlib.contextmanager
def file(path: bytes, content: bytes = b"") -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, content)
    try:
        yield fd
    finally:
        os.close(fd)


def moving(stream: ReadRange | WriteRange) -> Steps[int]:
    moved: int = yield stream
    return moved


def as_told(status: os.stat_result) -> Attributes:
    """Return what SFTP tells of a file the system says `status` of."""
    return Attributes(
        size=status.st_size,
        mode=status.st_mode,
        uid=status.st_uid,
        gid=status.st_gid,
        atime_s=int(status.st_atime),
        mtime_s=int(status.st_mtime),
    )


# --- names and attributes -----------------------------------------------------------------------------------------


async def test_stat_and_lstat(open_client: Open, here: bytes) -> None:
    """stat follows a link and lstat does not; both say what the system says, and nothing there is None."""
    target, link = os.path.join(here, ODD), os.path.join(here, b"link")
    with file(target, b"12345"):
        os.utime(target, (1_000_000_001, 2_000_000_002))
        os.symlink(ODD, link)
    async with open_client() as (client, _):
        assert await client.run(operations.stat(link)) == as_told(os.stat(link))
        assert await client.run(operations.lstat(link)) == as_told(os.lstat(link))
        assert await client.run(operations.lstat_if_there(target)) == as_told(os.stat(target))
        for look in (operations.lstat_if_there, operations.stat_if_there):
            assert await client.run(look(target + b"x")) is None
        with pytest.raises(StatusError) as caught:
            await client.run(operations.stat(target + b"x"))
        assert caught.value.code == packets.NO_SUCH_FILE


async def test_setstat_and_lsetstat(open_client: Open, here: bytes) -> None:
    """setstat changes what is behind a link, lsetstat the link itself; size, mode and times are taken."""
    target, link = os.path.join(here, ODD), os.path.join(here, b"link")
    with file(target, b"12345"):
        os.symlink(ODD, link)
    async with open_client() as (client, _):
        await client.run(operations.setstat(link, Attributes(size=3, mode=0o640, atime_s=11, mtime_s=0xFFFFFFFF)))
        status = os.stat(target)
        assert (status.st_size, stat.S_IMODE(status.st_mode)) == (3, 0o640)
        assert (int(status.st_atime), int(status.st_mtime)) == (11, 0xFFFFFFFF)
        assert client.announces(packets.LSETSTAT)
        await client.run(operations.lsetstat(link, Attributes(atime_s=21, mtime_s=22)))
        assert (int(os.lstat(link).st_mtime), int(os.stat(link).st_mtime)) == (22, 0xFFFFFFFF)


async def test_directories(open_client: Open, here: bytes) -> None:
    """mkdir gives the mode asked for, rmdir takes an empty folder away and refuses a full one."""
    made = os.path.join(here, ODD)
    async with open_client() as (client, _):
        await client.run(operations.mkdir(made, 0o750))
        assert stat.S_IMODE(os.stat(made).st_mode) == 0o750
        os.mkdir(os.path.join(made, b"in it"))
        for path, steps in ((made, operations.rmdir), (made + b"/x", operations.rmdir), (made, operations.remove)):
            with pytest.raises(StatusError):
                await client.run(steps(path))
        with pytest.raises(StatusError):
            await client.run(operations.mkdir(made, 0o750))
        await client.run(operations.rmdir(os.path.join(made, b"in it")))
        await client.run(operations.rmdir(made))
        assert os.listdir(here) == []


async def test_renames(open_client: Open, here: bytes) -> None:
    """The plain rename refuses to replace, the atomic one replaces; remove takes the rest away."""
    one, two = os.path.join(here, ODD), os.path.join(here, b"two")
    with file(one, b"one"), file(two, b"two"):
        pass
    async with open_client() as (client, _):
        with pytest.raises(StatusError) as caught:
            await client.run(operations.rename(one, two, atomic=False))
        assert caught.value.code == packets.FAILURE
        await client.run(operations.rename(one, two, atomic=True))
        assert sorted(os.listdir(here)) == [b"two"]
        assert await client.run(operations.stat(two)) == as_told(os.stat(two))
        assert os.stat(two).st_size == 3
        await client.run(operations.rename(two, one, atomic=False))
        assert os.listdir(here) == [ODD]
        await client.run(operations.remove(one))
        assert os.listdir(here) == []


async def test_links(open_client: Open, here: bytes) -> None:
    """symlink keeps the text byte for byte, readlink gives it back, hardlink makes a second name."""
    target, link, second = (os.path.join(here, name) for name in (ODD, b"link", b"second"))
    with file(target, b"x"):
        pass
    async with open_client() as (client, _):
        await client.run(operations.symlink(b"../" + ODD, link))
        assert os.readlink(link) == b"../" + ODD
        assert await client.run(operations.readlink(link)) == b"../" + ODD
        with pytest.raises(StatusError):
            await client.run(operations.readlink(target))
        await client.run(operations.hardlink(target, second))
        assert os.stat(target).st_ino == os.stat(second).st_ino


async def test_paths(open_client: Open, here: bytes, login_folder: bytes) -> None:
    """realpath leads to the end of links and of `.`; expand-path knows the login folder and other users' homes."""
    os.symlink(here, os.path.join(login_folder, b"link"))
    user = pwd.getpwuid(os.getuid())
    async with open_client() as (client, _):
        assert await client.run(operations.realpath(b".")) == login_folder
        assert await client.run(operations.realpath(b"link/../.")) == login_folder
        assert await client.run(operations.realpath(b"link")) == os.path.join(login_folder, os.path.basename(here))
        assert client.announces(packets.EXPAND_PATH)
        assert await client.run(operations.expand_path(b"~/" + ODD)) == os.path.join(login_folder, ODD)
        home = os.path.join(os.fsencode(user.pw_dir), b"x")
        assert await client.run(operations.expand_path(b"~%s/x" % os.fsencode(user.pw_name))) == home


async def test_file_system_and_limits(open_client: Open, here: bytes) -> None:
    """statvfs tells total and free space, limits what OpenSSH serves."""
    async with open_client() as (client, _):
        there = await client.run(operations.file_system(here))
        asked = os.statvfs(here)
        assert there.total_bytes == asked.f_blocks * asked.f_frsize
        assert 0 <= there.free_bytes <= there.total_bytes
        assert client.limits is not None
        assert (client.limits.read_bytes, client.limits.write_bytes) == (261_120, 261_120)
        assert client.read_size.request_bytes == client.write_size.request_bytes == 261_120
        assert client.limits.open_handles > 0


async def test_fsync_and_close(open_client: Open, here: bytes) -> None:
    """A handle can be synced and closed once; after that it is no handle."""
    async with open_client() as (client, _):
        handle = await client.run(operations.open_handle(os.path.join(here, ODD), NEW_FILE, Attributes(mode=0o600)))
        assert stat.S_IMODE(os.stat(os.path.join(here, ODD)).st_mode) == 0o600
        await client.run(operations.fsync(handle))
        await client.run(operations.close(handle))
        for steps in (operations.close, operations.fsync):
            with pytest.raises(StatusError):
                await client.run(steps(handle))
        with pytest.raises(StatusError):
            await client.run(operations.open_handle(os.path.join(here, ODD), NEW_FILE))


@pytest.mark.parametrize("queue_depth", [1, 3, 64])
async def test_a_large_listing(open_client: Open, here: bytes, queue_depth: int) -> None:
    """3,000 odd names are listed once each with their attributes, `.` and `..` left out, whatever the depth."""
    expected = {b"%d " % index + ODD for index in range(3000)}
    for name in expected:
        os.mkdir(os.path.join(here, name))
    async with open_client(queue_depth=queue_depth) as (client, _):
        listed = await client.run(operations.list_directory(here))
        assert len(listed) == 3000
        assert {name.filename for name in listed} == expected
        a_name = listed[1234]
        assert a_name.attributes == as_told(os.stat(os.path.join(here, a_name.filename)))
        with pytest.raises(StatusError):
            await client.run(operations.list_directory(os.path.join(here, b"not there")))


async def test_read_small(open_client: Open, here: bytes) -> None:
    """The first bytes of a file, also of one that tells no size."""
    with file(os.path.join(here, ODD), b"hello world"):
        pass
    async with open_client() as (client, _):
        assert await client.run(operations.read_small(os.path.join(here, ODD), 5)) == b"hello"
        if sys.platform == "linux":
            assert b"sftp-server" in await client.run(operations.read_small(b"/proc/self/stat", 4096))


# --- ranges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splice", [True, False])
@pytest.mark.parametrize("request_bytes", [None, 32_768, 1000])
async def test_a_file_goes_and_comes_byte_for_byte(
    open_client: Open, here: bytes, splice: bool, request_bytes: int | None
) -> None:
    """A file written in several ranges at once and read back is the same, whatever the request size, splice or not."""
    size = 3_000_001
    content = random.Random(7).randbytes(size)
    names = [os.path.join(here, name) for name in (b"source", ODD, b"back")]
    with file(names[0], content) as source, file(names[2]) as sink:
        async with open_client(splice=splice, request_bytes=request_bytes) as (client, _):
            flags = packets.READ_FLAG | packets.WRITE_FLAG | packets.CREATE_FLAG
            handle = await client.run(operations.open_handle(names[1], flags))
            spans = [Range(0, 1_000_000), Range(1_000_000, 1_000_001), Range(1_000_001, size)]
            written = await client.run_all(
                moving(WriteRange(handle, source, span, client.write_size)) for span in spans
            )
            assert written == [len(span) for span in spans]
            read = await client.run_all(moving(ReadRange(handle, sink, span, client.read_size)) for span in spans)
            assert read == [len(span) for span in spans]
            assert client.moved_bytes == 2 * size
        for name in names[1:]:
            with file(name) as arrived:
                assert os.pread(arrived, size + 1, 0) == content


async def test_offsets_beyond_4_gib(open_client: Open, here: bytes) -> None:
    """Ranges around 2^31, 2^32 and at 5 GiB of a sparse file land where they belong, both ways."""
    names = [os.path.join(here, name) for name in (b"source", ODD, b"back")]
    marks = [2 * GIB - 3, 4 * GIB - 3, 5 * GIB]
    with file(names[0]) as source, file(names[2]) as sink:
        for mark in marks:
            os.pwrite(source, b"mark at %d" % mark, mark)
        async with open_client() as (client, _):
            handle = await client.run(operations.open_handle(names[1], NEW_FILE | packets.READ_FLAG))
            spans = [Range(mark - 1000, mark + 1000) for mark in marks[:2]] + [Range(5 * GIB - 1000, 5 * GIB + 18)]
            for stream, fd in ((WriteRange, source), (ReadRange, sink)):
                sizes = client.write_size if stream is WriteRange else client.read_size
                moved = await client.run_all(moving(stream(handle, fd, span, sizes)) for span in spans)
                assert moved == [2000, 2000, 1018]
        for mark in marks:
            with file(names[1]) as remote:
                assert os.pread(remote, 18, mark) == b"mark at %d" % mark
            assert os.pread(sink, 18, mark) == b"mark at %d" % mark
        assert os.fstat(sink).st_size == 5 * GIB + 18


# --- local trouble ------------------------------------------------------------------------------------------------


async def still_works(client: SftpClient, here: bytes) -> None:
    """Write and read a file on the channel."""
    with file(os.path.join(here, b"after"), bytes(300_000)) as fd:
        handle = await client.run(operations.open_handle(os.path.join(here, b"after it"), NEW_FILE))
        assert await client.run(moving(WriteRange(handle, fd, Range(0, 300_000), client.write_size))) == 300_000
        await client.run(operations.close(handle))
    assert os.stat(os.path.join(here, b"after it")).st_size == 300_000


async def test_a_source_that_shrinks_while_it_is_sent(open_client: Open, here: bytes) -> None:
    """A local file that ends inside its range is SourceChanged; `done` holds real bytes only, and the channel lives."""
    content = random.Random(8).randbytes(1_000_000)
    with file(os.path.join(here, b"source"), content[:600_000]) as source:
        async with open_client() as (client, _):
            handle = await client.run(operations.open_handle(os.path.join(here, ODD), NEW_FILE))
            done = RangeSet()
            stream = WriteRange(handle, source, Range(0, 1_000_000), client.write_size, done)
            with pytest.raises(SourceChanged):
                await client.run(moving(stream))
            assert repr(done) == "RangeSet([0..522240])"  # two whole requests; the third was filled with zeros
            with file(os.path.join(here, ODD)) as target:
                assert os.pread(target, 522_240, 0) == content[:522_240]
            await still_works(client, here)


async def test_a_source_that_cannot_be_read(open_client: Open, here: bytes) -> None:
    """An error of the local file fails its own operation, while others on the channel go on."""
    with file(os.path.join(here, b"source"), bytes(1_000_000)) as source:
        unreadable = os.open(os.path.join(here, b"source"), os.O_WRONLY)
        async with open_client() as (client, _):
            handle = await client.run(operations.open_handle(os.path.join(here, ODD), NEW_FILE))
            done = RangeSet()
            outcomes = await client.run_all(
                moving(WriteRange(handle, fd, Range(start, start + 500_000), client.write_size, done))
                for fd, start in ((source, 0), (unreadable, 500_000))
            )
            assert outcomes[0] == 500_000
            assert isinstance(outcomes[1], OSError)
            assert (outcomes[1].errno, repr(done)) == (errno.EBADF, "RangeSet([0..500000])")
            await still_works(client, here)
        os.close(unreadable)


@pytest.mark.parametrize("splice", [True, False])
async def test_a_sink_that_takes_no_more(open_client: Open, here: bytes, splice: bool) -> None:
    """A local file that refuses bytes fails its read with the system's error, others on the channel go on."""
    content = random.Random(9).randbytes(1_500_000)
    names = [os.path.join(here, name) for name in (ODD, b"sink", b"other")]
    with file(names[0], content), file(names[1]) as sink, file(names[2]) as other:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        async with open_client(splice=splice) as (client, _):
            handle = await client.run(operations.open_handle(names[0], packets.READ_FLAG))
            done = RangeSet()
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
            try:
                refused, read = await client.run_all(
                    [
                        moving(ReadRange(handle, sink, Range(0, 1_500_000), client.read_size, done)),
                        moving(ReadRange(handle, other, Range(0, 900_000), client.read_size)),
                    ]
                )
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert isinstance(refused, OSError)
            assert (refused.errno, read) == (errno.EFBIG, 900_000)
            assert repr(done) == "RangeSet([0..1000000])"
            assert os.pread(sink, 2_000_000, 0) == content[:1_000_000]
            assert os.pread(other, 2_000_000, 0) == content[:900_000]
            await still_works(client, here)


async def test_a_remote_file_that_is_shorter_than_asked(open_client: Open, here: bytes) -> None:
    """EOF inside the range is SourceChanged, and the channel's requests stay as large as before."""
    with file(os.path.join(here, ODD), b"x" * 700_000), file(os.path.join(here, b"sink")) as sink:
        async with open_client() as (client, _):
            handle = await client.run(operations.open_handle(os.path.join(here, ODD), packets.READ_FLAG))
            done = RangeSet()
            with pytest.raises(SourceChanged):
                await client.run(moving(ReadRange(handle, sink, Range(0, 2_000_000), client.read_size, done)))
            assert (repr(done), client.read_size.request_bytes) == ("RangeSet([0..700000])", 261_120)


# --- the end of the channel ---------------------------------------------------------------------------------------


async def test_a_killed_server_costs_unacknowledged_requests_only(open_client: Open, here: bytes) -> None:
    """SIGKILL in the middle of two transfers: both end with ChannelLost, and `done` is what is in the files."""
    content = random.Random(10).randbytes(30_000_000)
    names = [os.path.join(here, name) for name in (b"source", ODD, b"sink")]
    with file(names[0], content) as source, file(names[2]) as sink:
        async with open_client(queue_depth=4) as (client, server):
            target = await client.run(operations.open_handle(names[1], NEW_FILE))
            origin = await client.run(operations.open_handle(names[0], packets.READ_FLAG))
            written, read = RangeSet(), RangeSet()
            futures = [
                client.start(moving(WriteRange(target, source, Range(0, 30_000_000), client.write_size, written))),
                client.start(moving(ReadRange(origin, sink, Range(0, 30_000_000), client.read_size, read))),
            ]
            while client.moved_bytes < 3_000_000:  # noqa: ASYNC110 -- the pump counts in its thread, without an event
                await asyncio.sleep(0)
            server.kill()
            await asyncio.wait(futures)
            assert [type(future.exception()) for future in futures] == [ChannelLost, ChannelLost]
            assert written.total + read.total >= 3_000_000 - 4 * 261_120
        with file(names[1]) as remote:
            for done, fd in ((written, remote), (read, sink)):
                for span in done:
                    assert os.pread(fd, len(span), span.start) == content[span.start : span.stop]


async def test_a_stopped_server_is_no_progress(open_client: Open, here: bytes) -> None:
    """A server that stands still is lost by the deadline; its process ends once it runs again."""
    async with open_client() as (client, server):
        client._pump._timeout_s = 0.1  # not before: the start of a process may take longer
        server.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(ChannelLost, match=r"answered nothing for 0\.1 s"):
                await client.run(operations.stat(here))
        finally:
            server.process.send_signal(signal.SIGCONT)
