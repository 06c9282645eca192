"""The contract of Transport, over every implementation in transports.py, the fake included.

The test's thread is the pump; the peer runs in threads of its own where both must move at once.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fastcopy.errors import ChannelLost, SourceChanged
from tests.contract.transports import TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from fastcopy.transport.base import Transport
    from tests.contract.transports import Peer

    Pair = tuple[Transport, Peer]

#: A wait that is not ended by what the test does lasts until the test's own time is up: a failure, never a pass.
FOREVER_S = 3600.0
#: Bytes. More than any implementation takes without a reader.
MORE_THAN_FITS = 64 << 20

pytestmark = [pytest.mark.timeout(60)]


@pytest.fixture(params=TRANSPORTS, ids=lambda name: name.replace(" ", "-"))
def make_pair(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[Pair]]:
    return TRANSPORTS[request.param]


@pytest.fixture
def pair(make_pair: Callable[[], AbstractContextManager[Pair]]) -> Iterator[Pair]:
    with make_pair() as made:
        yield made


@pytest.fixture
def random_bytes(request: pytest.FixtureRequest) -> random.Random:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 -- pytest shows it when the test fails
    return random.Random(seed)


@contextmanager
def open_file(path: Path, data: bytes = b"") -> Iterator[int]:
    """A file with `data`, open for reading and writing."""
    path.write_bytes(data)
    fd = os.open(path, os.O_RDWR)
    try:
        yield fd
    finally:
        os.close(fd)


class InThread(threading.Thread):
    """Runs one blocking call of the peer; `result` joins and gives what it returned or raised."""

    def __init__(self, call: Callable[[], bytes | None]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._result: bytes | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as exc:
            self._error = exc

    def result(self) -> bytes | None:
        self.join()
        if self._error is not None:
            raise self._error
        return self._result


def write_all(transport: Transport, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        taken = transport.write(rest)
        rest = rest[taken:]
        if not taken:
            transport.wait(readable=False, writable=True, timeout_s=FOREVER_S)


def send_all_of_file(transport: Transport, fd: int, offset: int, length: int) -> None:
    stop = offset + length
    while offset < stop:
        taken = transport.send_file(fd, offset, stop - offset)
        offset += taken
        if not taken:
            transport.wait(readable=False, writable=True, timeout_s=FOREVER_S)


def read_exactly(transport: Transport, count: int) -> bytes:
    """Read `count` bytes, or up to the peer's end."""
    got = bytearray()
    while len(got) < count:
        piece = transport.read(count - len(got))
        if piece is None:
            transport.wait(readable=True, writable=False, timeout_s=FOREVER_S)
        elif piece:
            got += piece
        else:
            break
    return bytes(got)


def receive_all_of_file(transport: Transport, fd: int, offset: int, length: int) -> None:
    stop = offset + length
    while offset < stop:
        put = transport.receive_file(fd, offset, stop - offset)
        offset += put
        if not put:
            transport.wait(readable=True, writable=False, timeout_s=FOREVER_S)


def write_forever(transport: Transport) -> None:
    """Write until that fails; a peer's death may take a moment to be known."""
    while True:
        transport.wait(readable=False, writable=True, timeout_s=FOREVER_S)
        transport.write(bytes(1000))


def fill(transport: Transport) -> int:
    """Write until there is no room, and return how many bytes were taken."""
    piece = bytes(1 << 16)
    total = 0
    while total < MORE_THAN_FITS:
        taken = transport.write(piece)
        if not taken:
            return total
        total += taken
    raise AssertionError(f"took {total} bytes that nobody reads")


def test_written_bytes_arrive(pair: Pair) -> None:
    """What is written arrives at the peer."""
    transport, peer = pair
    write_all(transport, b"hello")
    assert peer.receive_exactly(5) == b"hello"


def test_write_takes_a_memoryview(pair: Pair) -> None:
    """A slice of a larger buffer can be written without a copy by the caller."""
    transport, peer = pair
    assert transport.write(memoryview(b"..hello..")[2:7]) == 5
    assert peer.receive_exactly(5) == b"hello"


def test_writing_nothing_takes_nothing(pair: Pair, tmp_path: Path) -> None:
    """Empty requests are no error and move nothing, in all four methods that move."""
    transport, peer = pair
    with open_file(tmp_path / "file", b"data") as fd:
        assert transport.write(b"") == 0
        assert transport.send_file(fd, 0, 0) == 0
        assert transport.receive_file(fd, 0, 0) == 0
    write_all(transport, b"!")
    assert peer.receive_exactly(1) == b"!"


def test_mixed_ways_of_sending_keep_the_order(pair: Pair, tmp_path: Path, random_bytes: random.Random) -> None:
    """Writes and file pieces of random sizes arrive byte for byte in the order they were given."""
    transport, peer = pair
    data = random_bytes.randbytes(3_000_000)
    with open_file(tmp_path / "file", data) as fd:
        pieces = [
            (random_bytes.random() < 0.5, random_bytes.choice([1, 29, 4095, 4096, 32768, 261_120])) for _ in range(60)
        ]
        starts = [random_bytes.randrange(len(data) - length) for _, length in pieces]
        expected = b"".join(data[start : start + length] for start, (_, length) in zip(starts, pieces, strict=True))
        receiver = InThread(lambda: peer.receive_exactly(len(expected)))
        for start, (of_file, length) in zip(starts, pieces, strict=True):
            if of_file:
                send_all_of_file(transport, fd, start, length)
            else:
                write_all(transport, data[start : start + length])
        assert receiver.result() == expected
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0


def test_mixed_ways_of_receiving_keep_the_order(pair: Pair, tmp_path: Path, random_bytes: random.Random) -> None:
    """Bytes that are read and bytes put into a file, in turns of random sizes, are the peer's, each exactly once."""
    transport, peer = pair
    data = random_bytes.randbytes(3_000_000)
    sender = InThread(lambda: peer.send_all(data))
    got = bytearray()
    with open_file(tmp_path / "file") as fd:
        while len(got) < len(data):
            length = min(random_bytes.choice([1, 13, 4096, 32768, 261_120]), len(data) - len(got))
            if random_bytes.random() < 0.5:
                receive_all_of_file(transport, fd, len(got), length)
                got += os.pread(fd, length, len(got))
            else:
                got += read_exactly(transport, length)
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
    sender.result()
    assert bytes(got) == data


def test_both_directions_at_once(pair: Pair, tmp_path: Path, random_bytes: random.Random) -> None:
    """A pump that always waits for both directions moves a file out and another in without a deadlock."""
    transport, peer = pair
    out, back = random_bytes.randbytes(2_000_000), random_bytes.randbytes(2_000_000)
    receiver = InThread(lambda: peer.receive_exactly(len(out)))
    sender = InThread(lambda: peer.send_all(back))
    with open_file(tmp_path / "out", out) as out_fd, open_file(tmp_path / "back") as back_fd:
        sent = received = 0
        while sent < len(out) or received < len(back):
            moved = 0
            if sent < len(out):
                moved += (taken := transport.send_file(out_fd, sent, len(out) - sent))
                sent += taken
            if received < len(back):
                moved += (put := transport.receive_file(back_fd, received, len(back) - received))
                received += put
            if not moved:
                transport.wait(readable=received < len(back), writable=sent < len(out), timeout_s=FOREVER_S)
    sender.result()
    assert receiver.result() == out
    assert (tmp_path / "back").read_bytes() == back


def test_offsets_beyond_four_gib(pair: Pair, tmp_path: Path) -> None:
    """Offsets past 2^32 are kept, both ways."""
    transport, peer = pair
    far = (1 << 32) + 12_345
    with open_file(tmp_path / "file") as fd:
        os.pwrite(fd, b"far away", far)
        send_all_of_file(transport, fd, far, 8)
        assert peer.receive_exactly(8) == b"far away"
        peer.send_all(b"farther")
        receive_all_of_file(transport, fd, far + 100, 7)
        assert os.pread(fd, 200, far) == b"far away" + bytes(92) + b"farther"


def test_read_keeps_to_its_limit(pair: Pair) -> None:
    """A read returns no more than asked for; the rest stays for the next."""
    transport, peer = pair
    peer.send_all(b"abcdef")
    assert read_exactly(transport, 2) == b"ab"
    piece = transport.read(3)
    assert piece is not None
    assert 1 <= len(piece) <= 3
    assert piece + read_exactly(transport, 4 - len(piece)) == b"cdef"


def test_nothing_there_is_not_the_end(pair: Pair, tmp_path: Path) -> None:
    """None and 0 mean "not now"; b"" only comes once the peer has ended, and after all it sent."""
    transport, peer = pair
    with open_file(tmp_path / "file") as fd:
        assert transport.read(10) is None
        assert transport.receive_file(fd, 0, 10) == 0
    peer.send_all(b"last")
    peer.close()
    assert read_exactly(transport, 100) == b"last"
    assert transport.read(10) == b""
    assert transport.read(10) == b""


def test_file_bytes_sent_before_the_end_still_arrive(pair: Pair, tmp_path: Path) -> None:
    """What the peer sent before it ended is put into the file; only then the channel is lost."""
    transport, peer = pair
    peer.send_all(b"last")
    peer.close()
    with open_file(tmp_path / "file") as fd:
        receive_all_of_file(transport, fd, 0, 4)
        assert os.pread(fd, 10, 0) == b"last"
        with pytest.raises(ChannelLost):
            receive_all_of_file(transport, fd, 4, 1)


def test_a_full_transport_takes_nothing_until_it_is_read(pair: Pair, tmp_path: Path) -> None:
    """Without room both ways of sending return 0; a wait ends once the peer has read, and sending goes on."""
    transport, peer = pair
    with open_file(tmp_path / "file", b"more") as fd:
        taken = fill(transport)
        assert taken > 0
        assert transport.send_file(fd, 0, 4) == 0
        receiver = InThread(lambda: peer.receive_exactly(taken + 4))
        send_all_of_file(transport, fd, 0, 4)
        assert receiver.result() == bytes(taken) + b"more"


def test_wait_ends_when_bytes_arrive(pair: Pair) -> None:
    """A wait for reading ends when the peer sends, with no wake."""
    transport, peer = pair
    sender = InThread(lambda: peer.send_all(b"x"))
    assert read_exactly(transport, 1) == b"x"
    sender.result()


def test_wait_ends_after_its_timeout(pair: Pair) -> None:
    """A wait for what does not come ends by its timeout; asking for no direction is allowed."""
    transport, _ = pair
    transport.wait(readable=True, writable=False, timeout_s=0.001)
    transport.wait(readable=False, writable=False, timeout_s=0.001)
    transport.wait(readable=True, writable=False, timeout_s=0)
    assert transport.read(1) is None


@pytest.mark.parametrize("streaming", [False, True])
def test_wake_ends_a_wait(pair: Pair, tmp_path: Path, streaming: bool) -> None:
    """A wake from another thread ends the wait it meets or the next one, after file bytes have streamed too."""
    transport, peer = pair
    woken = threading.Event()

    def wake() -> None:
        woken.set()
        transport.wake()

    with open_file(tmp_path / "file", bytes(50_000)) as fd:
        for _ in range(50):
            if streaming:
                receiver = InThread(lambda: peer.receive_exactly(50_000))
                send_all_of_file(transport, fd, 0, 50_000)
                receiver.result()
            woken.clear()
            waker = threading.Thread(target=wake)
            waker.start()
            while not woken.is_set():
                transport.wait(readable=True, writable=False, timeout_s=FOREVER_S)
            waker.join()


def test_wake_before_a_wait_ends_it(pair: Pair) -> None:
    """However many wakes came while nobody waited, the next wait ends at once."""
    transport, _ = pair
    for _ in range(3):
        transport.wake()
    transport.wait(readable=True, writable=False, timeout_s=FOREVER_S)
    assert transport.read(1) is None


def test_file_that_ends_early_has_changed(pair: Pair, tmp_path: Path) -> None:
    """A source shorter than it was said to be is SourceChanged, with the offset where it ended."""
    transport, peer = pair
    with open_file(tmp_path / "file", b"short") as fd:
        send_all_of_file(transport, fd, 0, 5)
        assert peer.receive_exactly(5) == b"short"
        for offset in (5, 6):
            with pytest.raises(SourceChanged) as caught:
                transport.send_file(fd, offset, 10)
            assert caught.value.offset == offset
    write_all(transport, b"!")
    assert peer.receive_exactly(1) == b"!"


def test_unreadable_source_is_an_error_of_the_file(pair: Pair, tmp_path: Path) -> None:
    """An error of the source comes as OSError; the channel is well."""
    transport, peer = pair
    (tmp_path / "file").write_bytes(b"data")
    fd = os.open(tmp_path / "file", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            transport.send_file(fd, 0, 4)
    finally:
        os.close(fd)
    write_all(transport, b"!")
    assert peer.receive_exactly(1) == b"!"


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="needs Linux")
def test_source_that_refuses_splice(pair: Pair) -> None:
    """A file whose file system does not splice is sent all the same (Linux refuses it for /proc/PID/environ)."""
    transport, peer = pair
    fd = os.open("/proc/self/environ", os.O_RDONLY)
    try:
        expected = os.pread(fd, 100, 0)
        send_all_of_file(transport, fd, 0, len(expected))
    finally:
        os.close(fd)
    assert peer.receive_exactly(len(expected)) == expected


def test_target_that_refuses_splice(pair: Pair, tmp_path: Path, random_bytes: random.Random) -> None:
    """A target that does not splice is filled all the same (Linux refuses it for a file open for appending)."""
    transport, peer = pair
    data = random_bytes.randbytes(200_000)
    sender = InThread(lambda: peer.send_all(data + b"!"))
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        receive_all_of_file(transport, fd, 0, len(data))
    finally:
        os.close(fd)
    assert read_exactly(transport, 1) == b"!"
    sender.result()
    assert (tmp_path / "file").read_bytes() == data


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
def test_full_target_loses_no_byte_of_the_stream(pair: Pair, tmp_path: Path) -> None:
    """ENOSPC comes as OSError and everything is still there to be read, or put elsewhere."""
    transport, peer = pair
    peer.send_all(b"0123456789")
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            receive_all_of_file(transport, fd, 0, 10)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            transport.receive_file(fd, 0, 4)
    finally:
        os.close(fd)
    transport.wait(readable=True, writable=False, timeout_s=FOREVER_S)  # what was kept counts as readable
    assert read_exactly(transport, 3) == b"012"
    with open_file(tmp_path / "file") as good_fd:
        receive_all_of_file(transport, good_fd, 0, 5)
        assert os.pread(good_fd, 10, 0) == b"34567"
    assert read_exactly(transport, 2) == b"89"


def test_target_that_fills_up_half_way(pair: Pair, tmp_path: Path, random_bytes: random.Random) -> None:
    """A target that stops taking bytes at a limit has all up to there; the rest is still in the stream."""
    transport, peer = pair
    data = random_bytes.randbytes(40_000)
    limit = 10_000
    sender = InThread(lambda: peer.send_all(data))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_file(tmp_path / "file") as fd:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # Python ignores SIGXFSZ
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                receive_all_of_file(transport, fd, 0, len(data))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert os.pread(fd, len(data), 0) == data[:limit]
    assert read_exactly(transport, len(data) - limit) == data[limit:]
    sender.result()


def test_dead_peer_is_a_lost_channel(pair: Pair, tmp_path: Path) -> None:
    """After the peer's death each way of sending fails as ChannelLost, also in a pump that waits only to write."""
    transport, peer = pair
    peer.close()
    with open_file(tmp_path / "file", bytes(1000)) as fd:
        with pytest.raises(ChannelLost):
            write_forever(transport)
        with pytest.raises(ChannelLost):
            transport.send_file(fd, 0, 1000)
        with pytest.raises(ChannelLost):
            transport.receive_file(fd, 0, 1000)


def test_peer_that_dies_ends_a_wait(pair: Pair) -> None:
    """A pump that waits for room, or for bytes, learns of the peer's death without a timeout."""
    transport, peer = pair
    fill(transport)
    closer = InThread(lambda: peer.close())
    with pytest.raises(ChannelLost):
        write_forever(transport)
    closer.result()
    assert read_exactly(transport, 1) == b""


def test_close_is_final_and_may_be_repeated(pair: Pair, tmp_path: Path) -> None:
    """After close nothing moves and nothing waits, a wake does no harm, and the peer sees the end."""
    transport, peer = pair
    transport.close()
    transport.close()
    transport.wake()
    transport.wait(readable=True, writable=True, timeout_s=FOREVER_S)
    assert transport.read(1) == b""
    with open_file(tmp_path / "file", b"data") as fd:
        with pytest.raises(ChannelLost):
            transport.write(b"x")
        with pytest.raises(ChannelLost):
            transport.send_file(fd, 0, 4)
        with pytest.raises(ChannelLost):
            transport.receive_file(fd, 0, 4)
    assert peer.receive_exactly(1) == b""


def test_wake_after_close_touches_no_other_file(
    make_pair: Callable[[], AbstractContextManager[Pair]], tmp_path: Path
) -> None:
    """Wakes that come late write into no file that got the closed transport's numbers."""
    with make_pair() as (transport, _):
        transport.close()
        fds = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(8)]
        try:
            transport.wake()
            assert [os.fstat(fd).st_size for fd in fds] == [0] * 8
        finally:
            for fd in fds:
                os.close(fd)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux")
def test_no_descriptor_is_left_open(make_pair: Callable[[], AbstractContextManager[Pair]], tmp_path: Path) -> None:
    """Made, used, lost and closed, a transport leaves no descriptor open."""
    with make_pair():
        pass  # what is opened once per process is open now
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with make_pair() as (transport, peer), open_file(tmp_path / "file", b"data") as fd:
            send_all_of_file(transport, fd, 0, 4)
            peer.receive_exactly(4)
            peer.close()
            assert read_exactly(transport, 1) == b""
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_diagnosis_is_an_empty_text(pair: Pair) -> None:
    """A carrier that said nothing has an empty diagnosis."""
    assert pair[0].diagnosis() == ""
