"""The client whole: one channel from its handshake to its end, over servers that are right, odd, mute or dead."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from fastcopy.config import DEFAULT_REQUEST_BYTES, SAFE_REQUEST_BYTES
from fastcopy.errors import ChannelLost, FastcopyError, NoProgress, ProtocolError, UnsafePeer
from fastcopy.model import Attributes, Range
from fastcopy.sftp import operations, packets
from fastcopy.sftp.client import HandshakeFailed, SftpClient, clamp
from fastcopy.sftp.operation import StatusError
from fastcopy.sftp.packets import Limits
from fastcopy.sftp.streams import ReadRange, WriteRange
from fastcopy.transport.memory import memory_pair
from tests.support.sftp_channels import in_memory, send_all
from tests.support.sftp_server import READ, STAT, WRITE, Server, string

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from fastcopy.sftp.operation import Steps

#: Seconds. Longer than anything here takes: what runs into it hangs.
PATIENCE_S = 20.0

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Every test leaves no thread and no descriptor behind."""
    gc.collect()
    threads, fds = set(threading.enumerate()), descriptors()
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(PATIENCE_S)
    assert set(threading.enumerate()) - threads == set()
    assert descriptors() - fds == set()


def descriptors() -> set[str]:
    listed = set(os.listdir("/dev/fd"))
    return {fd for fd in listed if os.path.exists(f"/dev/fd/{fd}")}


@contextlib.asynccontextmanager
async def opened(server: Server, *, capacity_bytes: int = 64 << 10, **settings: Any) -> AsyncIterator[SftpClient]:
    with in_memory(server, capacity_bytes=capacity_bytes) as serving:
        client = await SftpClient.open(serving.transport, host="srv002", **settings)
        try:
            yield client
        finally:
            await client.close()


class Mute(Server):
    """Answers the handshake and nothing of one kind after that."""

    extensions: ClassVar[dict[bytes, bytes]] = {}
    kind = STAT

    def replies_to(self, packet: bytes) -> list[bytes]:
        return [] if packet[0] == self.kind else super().replies_to(packet)


class Dies(Server):
    """Ends the channel at the first STAT, or as `says` has it."""

    extensions: ClassVar[dict[bytes, bytes]] = {}
    says = b""

    def replies_to(self, packet: bytes) -> list[bytes]:
        if packet[0] != STAT:
            return super().replies_to(packet)
        if self.says:
            return [self.says]
        raise ChannelLost("the server dies")


def outcome_of(done: asyncio.Future[Any]) -> str:
    """Return what a future ended with, as a word."""
    error = done.exception()
    return "done" if error is None else type(error).__name__


# --- the handshake ---


async def test_the_handshake_learns_extensions_and_limits() -> None:
    """What the server announces is known, and its limits bound the sizes and the operations under way."""

    class Small(Server):
        limits = (100_000, 50_000, 40_000, 10)

    async with opened(Small()) as client:
        assert client.announces(packets.POSIX_RENAME)
        assert not client.announces(packets.EXPAND_PATH)
        assert client.limits == Limits(100_000, 50_000, 40_000, 10)
        assert (client.read_size.request_bytes, client.write_size.request_bytes) == (50_000, 40_000)
        assert client._multiplexer.active_limit == 8
        assert client.alive


async def test_a_server_without_limits_gets_small_writes() -> None:
    """Where nothing is announced large reads are tried, for they come back short; writes stay at 32 KiB."""

    class Plain(Server):
        extensions: ClassVar[dict[bytes, bytes]] = {}

    async with opened(Plain()) as client:
        assert client.limits == Limits()
        assert (client.read_size.request_bytes, client.write_size.request_bytes) == (
            DEFAULT_REQUEST_BYTES,
            SAFE_REQUEST_BYTES,
        )


async def test_limits_that_are_refused_are_none() -> None:
    """A server that announces limits and then refuses to tell them is one without."""

    class Shy(Server):
        def extended(self, fields: Any) -> bytes:
            return self.status(4)

    async with opened(Shy()) as client:
        assert client.limits == Limits()


@pytest.mark.parametrize(
    ("asked", "limit", "packet_bytes", "large_is_safe", "expected"),
    [
        (None, 0, 0, True, DEFAULT_REQUEST_BYTES),
        (None, 0, 0, False, SAFE_REQUEST_BYTES),
        (1 << 20, 0, 0, False, 1 << 20),
        (1 << 20, 261_120, 262_144, True, 261_120),
        (None, 1 << 63, 1 << 63, True, DEFAULT_REQUEST_BYTES),
        (None, 0, 34_000, True, 34_000 - 1024),
        (None, 1, 1, True, SAFE_REQUEST_BYTES),
        (1000, 1, 0, True, 1000),
        (None, 600, 0, True, 600),
        (512, 261_120, 262_144, True, 512),
    ],
)
def test_request_sizes_are_clamped(
    asked: int | None, limit: int, packet_bytes: int, large_is_safe: bool, expected: int
) -> None:
    """The size is the one asked for, within what the server says, and nonsense limits mean 32 KiB."""
    assert clamp(asked, limit, packet_bytes, large_is_safe) == expected


@pytest.mark.parametrize(
    ("said", "received"),
    [
        (b"", b""),
        (b"hi", b"hi"),
        (b"Welcome to srv002\n", b"Welcome to srv002\n"),
        (string(bytes([2]) + struct.pack(">I", 2)), string(bytes([2]) + struct.pack(">I", 2))),
        (string(bytes([101]) + bytes(8)), string(bytes([101]) + bytes(8))),
        (struct.pack(">I", 9) + b"cut", struct.pack(">I", 9) + b"cut"),
    ],
    ids=["nothing", "two letters", "a greeting", "version 2", "another packet", "half a packet"],
)
async def test_what_comes_instead_of_a_version_is_kept(said: bytes, received: bytes) -> None:
    """A channel that does not begin with VERSION gives HandshakeFailed with the bytes that came; it is open still."""
    transport, far_end = memory_pair()
    send_all(far_end, said)
    far_end.close()
    with pytest.raises(HandshakeFailed) as caught:
        await SftpClient.open(transport, host="srv002")
    assert caught.value.received == received
    assert isinstance(caught.value.reason, ChannelLost | ProtocolError)
    assert transport.diagnosis() == ""
    transport.close()


async def test_a_server_that_never_greets_is_told_by_the_deadline() -> None:
    """A handshake without an answer ends with NoProgress after `timeout_s`; the transport can still be asked why."""
    transport, far_end = memory_pair()
    with pytest.raises(HandshakeFailed) as caught:
        await SftpClient.open(transport, host="srv002", timeout_s=0.01)
    assert isinstance(caught.value.reason, NoProgress)
    assert far_end.read(100) == packets.init()
    assert far_end.read(100) is None
    transport.close()
    assert far_end.read(100) == b""


async def test_a_cancelled_handshake_closes_its_transport_when_nobody_uses_it() -> None:
    """Cancelling `open` ends its thread first and closes the transport from there: no other thread touches it."""
    transport, far_end = memory_pair()
    closed_by: list[threading.Thread] = []
    close = transport.close

    def note_and_close() -> None:
        closed_by.append(threading.current_thread())
        close()

    transport.close = note_and_close  # type: ignore[method-assign]  # to see which thread calls it
    opening = asyncio.create_task(SftpClient.open(transport, host="srv002"))
    await asyncio.to_thread(far_end.wait, readable=True, writable=False, timeout_s=PATIENCE_S)
    assert far_end.read(100) == packets.init()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert [thread.name for thread in closed_by] == ["sftp srv002"]
    assert far_end.read(100) == b""


async def test_many_handshakes_wait_side_by_side() -> None:
    """Mute servers hold up neither each other's handshakes nor the loop's own threads."""
    pairs = [memory_pair() for _ in range(40)]
    opening = [asyncio.create_task(SftpClient.open(transport, host="srv002")) for transport, _ in pairs]
    greeted = 0
    async with asyncio.timeout(PATIENCE_S):
        while greeted < len(pairs):
            greeted += sum(far_end.read(100) is not None for _, far_end in pairs)
            await asyncio.to_thread(lambda: None)
    for task in opening:
        task.cancel()
    await asyncio.gather(*opening, return_exceptions=True)


# --- operations ---


async def test_operations_run_side_by_side(tmp_path: Path) -> None:
    """`run_all` gives each operation's result or error in the order given, however many there are."""
    for index in range(0, 500, 2):
        (tmp_path / str(index)).write_bytes(bytes(index))
    async with opened(Server()) as client:
        outcomes = await client.run_all(operations.stat(os.fsencode(tmp_path / str(index))) for index in range(500))
    for index, outcome in enumerate(outcomes):
        if index % 2:
            assert isinstance(outcome, StatusError)
            assert outcome.code == packets.NO_SUCH_FILE
        else:
            assert isinstance(outcome, Attributes)
            assert outcome.size == index


async def test_cancelling_an_operation_leaves_it_to_its_end(tmp_path: Path) -> None:
    """A cancelled `run` drops the result; the steps go on, so that what they began is finished."""
    ended = threading.Event()

    def steps() -> Steps[None]:
        yield packets.mkdir(os.fsencode(tmp_path / "made"), 0o755)
        yield packets.stat(os.fsencode(tmp_path))
        ended.set()

    async with opened(Server()) as client:
        running = asyncio.create_task(client.run(steps()))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await client.run(operations.stat(os.fsencode(tmp_path)))
        await asyncio.to_thread(ended.wait, PATIENCE_S)
        assert ended.is_set()
        assert (tmp_path / "made").is_dir()
        assert client.alive


async def test_many_operations_that_are_cancelled_go_on(tmp_path: Path) -> None:
    """Cancelling `run_all` drops the results of all; each of its operations still comes to its end."""
    async with opened(Server(), queue_depth=2) as client:
        paths = [os.fsencode(tmp_path / str(index)) for index in range(20)]
        running = asyncio.create_task(client.run_all(operations.mkdir(path, 0o755) for path in paths))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await client.run(operations.stat(b"/"))  # begins after them
        await client.run(operations.stat(b"/"))
        assert sorted(os.listdir(tmp_path)) == sorted(str(index) for index in range(20))


async def test_nothing_to_run_is_done_at_once() -> None:
    """`run_all` of nothing gives nothing."""
    async with opened(Mute()) as client:
        assert await client.run_all([]) == []


# --- how a channel ends ---


class Noted:
    """Steps that stat a path and count how often they end."""

    def __init__(self) -> None:
        self.ends = 0

    def steps(self, path: bytes = b"/") -> Steps[None]:
        try:
            yield packets.stat(path)
        finally:
            self.ends += 1


async def test_the_death_of_a_channel_ends_every_operation_once() -> None:
    """All that is under way and all that still waits ends with ChannelLost, once; what comes later too."""
    noted = Noted()
    async with opened(Dies(), queue_depth=4) as client:
        futures = [client.start(noted.steps()) for _ in range(100)]
        await asyncio.wait(futures)
        assert {outcome_of(future) for future in futures} == {"ChannelLost"}
        await client.ended.wait()
        assert isinstance(client.lost, ChannelLost)
        assert not client.alive
        with pytest.raises(ChannelLost):
            await client.run(noted.steps())
        assert [type(outcome) for outcome in await client.run_all([noted.steps()] * 2)] == [ChannelLost] * 2
    assert noted.ends <= 4  # the others never began


async def test_operations_run_together_are_lost_one_by_one() -> None:
    """Of operations run side by side those that ended before the channel keep their results, the others are lost."""
    async with opened(Dies()) as client:
        outcomes = await client.run_all([operations.realpath(b"/"), operations.stat(b"/"), operations.stat(b"/")])
        assert [type(outcome) for outcome in outcomes] == [bytes, ChannelLost, ChannelLost]


@pytest.mark.parametrize(
    ("says", "error"),
    [
        (bytes([105, 0, 0, 0, 99]), ProtocolError),
        (bytes([105, 0, 0, 0, 0, 0]), ProtocolError),
        (bytes([1]), ProtocolError),
    ],
    ids=["wrong id", "cut attributes", "no id"],
)
async def test_operations_of_a_broken_channel_are_lost_not_failed(says: bytes, error: type[FastcopyError]) -> None:
    """The channel tells the protocol error; its operations end with ChannelLost, for another channel may do them."""
    server = Dies()
    server.says = says
    noted = Noted()
    async with opened(server) as client:
        futures = [client.start(noted.steps()) for _ in range(3)]
        await asyncio.wait(futures)
        late = client.start(noted.steps())  # the loop may not have heard of the end yet
        await asyncio.wait([late])
        assert [outcome_of(future) for future in (*futures, late)] == ["ChannelLost"] * 4
        assert type(client.lost) is error
        after = client.start(noted.steps())
        assert outcome_of(after) == "ChannelLost"
    assert noted.ends == 3


async def test_more_payload_than_asked_is_an_unsafe_peer(tmp_path: Path) -> None:
    """A server that sends more than asked ends its channel as UnsafePeer, and nothing is written beyond the range."""

    class LongReads(Server):
        def read(self, fields: Any) -> bytes:
            reply = super().read(fields)
            return bytes([reply[0]]) + string(reply[5:] + b"!")

    source = tmp_path / "source"
    source.write_bytes(b"x" * 1000)
    with (tmp_path / "sink").open("wb") as sink:
        async with opened(LongReads()) as client:
            handle = await client.run(operations.open_handle(os.fsencode(source), packets.READ_FLAG))
            with pytest.raises(ChannelLost, match="sent 1001 bytes where 1000 were asked for"):
                await client.run(moving(ReadRange(handle, sink.fileno(), Range(0, 1000), client.read_size)))
            await client.ended.wait()
            assert isinstance(client.lost, UnsafePeer)
    assert (tmp_path / "sink").stat().st_size == 0


def moving(stream: ReadRange | WriteRange) -> Steps[int]:
    moved: int = yield stream
    return moved


def impatient(client: SftpClient) -> None:
    """From now on the channel counts as lost after a moment; what came before had all the time it needed."""
    client._pump._timeout_s = 0.05


async def test_no_answer_is_no_progress() -> None:
    """While an answer is owed and nothing moves for `timeout_s`, the channel counts as lost."""
    async with opened(Mute()) as client:
        impatient(client)
        with pytest.raises(NoProgress, match=r"answered nothing for 0\.05 s"):
            await client.run(operations.stat(b"/"))
        await client.ended.wait()
        assert isinstance(client.lost, NoProgress)


async def test_an_idle_channel_owes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel without requests lives on, however often its deadline passes."""
    passed = threading.Event()
    with in_memory(Server()) as serving:
        client = await SftpClient.open(serving.transport, host="srv002")
        looks: list[float] = []

        def look(*, readable: bool, writable: bool, timeout_s: float) -> None:
            wait(readable=readable, writable=writable, timeout_s=0.01)
            looks.append(time.monotonic())
            if looks[-1] - looks[0] > 0.2 and len(looks) > 10:
                passed.set()

        wait = serving.transport.wait
        monkeypatch.setattr(serving.transport, "wait", look)
        impatient(client)
        serving.transport.wake()
        assert await asyncio.to_thread(passed.wait, PATIENCE_S)
        assert client.alive
        client._pump._timeout_s = PATIENCE_S
        assert (await client.run(operations.stat(b"/"))).kind.value == "directory"
        await client.close()


async def test_a_server_that_takes_nothing_more_is_no_progress(tmp_path: Path) -> None:
    """Payload that finds no room counts as owed too: a peer that stops reading does not hang the job."""

    class Deaf(Server):
        """Reads nothing more after the first WRITE."""

        def replies_to(self, packet: bytes) -> list[bytes]:
            if packet[0] == WRITE:
                release.wait(PATIENCE_S)
            return super().replies_to(packet)

    release = threading.Event()
    with (tmp_path / "source").open("wb+") as source:
        source.truncate(1 << 20)
        async with opened(Deaf()) as client:
            handle = await client.run(operations.open_handle(os.fsencode(tmp_path / "target"), 26))
            impatient(client)
            with pytest.raises(NoProgress):
                await client.run(moving(WriteRange(handle, source.fileno(), Range(0, 1 << 20), client.write_size)))
            release.set()


async def test_close_while_busy_ends_what_is_under_way() -> None:
    """Closing a busy channel ends its operations with ChannelLost at once, and closing again does nothing."""
    noted = Noted()
    async with opened(Mute()) as client:
        futures = [client.start(noted.steps()) for _ in range(10)]
        await client.run(operations.realpath(b"."))  # so the others are on the wire
        await client.close()
        assert [outcome_of(future) for future in futures] == ["ChannelLost"] * 10
        assert client.lost is None
        assert not client.alive
        await client.close()
        with pytest.raises(ChannelLost):
            await client.run(operations.realpath(b"."))
    assert noted.ends == 10


async def test_close_does_not_wait_for_a_disk_that_never_answers() -> None:
    """A pump that hangs in a system call is left behind; everybody who waits is told."""
    release = threading.Event()

    def steps() -> Steps[None]:
        release.wait(PATIENCE_S)
        yield packets.stat(b"/")

    async with opened(Server()) as client:
        future = client.start(steps())
        async with asyncio.timeout(PATIENCE_S / 2):
            await client.close()
        assert outcome_of(future) == "ChannelLost"
        release.set()


async def test_a_defect_in_steps_fails_its_operation_only() -> None:
    """An exception nobody foresaw inside one operation's steps is that operation's; the channel lives."""

    def steps() -> Steps[None]:
        yield packets.stat(b"/")
        raise ZeroDivisionError

    async with opened(Server()) as client:
        with pytest.raises(ZeroDivisionError):
            await client.run(steps())
        await client.run(operations.stat(b"/"))


async def test_requests_go_out_while_replies_pour_in(tmp_path: Path) -> None:
    """Of many replies that wait, the pump takes a turn's worth before it asks for more: the server never runs dry."""

    class Gathers(Server):
        """Holds back its replies to READ until there are 200, then gives them all at once."""

        held: ClassVar[list[bytes]] = []
        asked_again = threading.Event()

        def replies_to(self, packet: bytes) -> list[bytes]:
            if packet[0] != READ:
                return super().replies_to(packet)
            self.held.extend(super().replies_to(packet))
            if len(self.held) > 200:
                self.asked_again.set()
            return self.held[:] if len(self.held) == 200 else []

    source = tmp_path / "source"
    source.write_bytes(os.urandom(512 * 400))
    calls: list[str] = []
    with (tmp_path / "sink").open("wb") as sink, in_memory(Gathers(), capacity_bytes=1 << 20) as serving:
        client = await SftpClient.open(serving.transport, host="srv002", request_bytes=512, queue_depth=200)
        for name in ("write", "receive_file"):
            setattr(serving.transport, name, noted(calls, name, getattr(serving.transport, name)))
        handle = await client.run(operations.open_handle(os.fsencode(source), packets.READ_FLAG))
        future = client.start(moving(ReadRange(handle, sink.fileno(), Range(0, 512 * 400), client.read_size)))
        assert await asyncio.to_thread(Gathers.asked_again.wait, PATIENCE_S)
        await client.close()
        assert outcome_of(future) == "ChannelLost"
    first = calls.index("receive_file")
    assert "write" in calls[first : first + 64]


def noted(calls: list[str], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `method`, which also writes its name down when it is called."""

    def call(*args: Any) -> Any:
        calls.append(name)
        return method(*args)

    return call


async def test_what_is_submitted_as_the_channel_ends_is_lost() -> None:
    """Between the end of the pump and the loop's hearing of it an operation can still be started: it is lost, too."""
    noted_ = Noted()
    server = Dies()
    server.says = bytes([105, 0, 0, 0, 99])
    async with opened(server) as client:
        first = client.start(noted_.steps())
        assert client._pump.join(PATIENCE_S)
        assert client.alive  # the loop did not get its turn
        late = client.start(noted_.steps())
        await asyncio.wait([first, late])
        assert [outcome_of(future) for future in (first, late)] == ["ChannelLost", "ChannelLost"]
        assert type(client.lost) is ProtocolError
    assert noted_.ends == 1
