"""The tests' own servers do what the other tests rely on: measured with OpenSSH's sftp and plain sockets."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.delay_proxy import DelayProxy
from tests.support.evil_sftp import FAULTS, subsystem
from tests.support.trees import build, leftovers, random_tree, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import SshdFactory
    from tests.support.sshd import Sshd


def sftp(sshd: Sshd, *lines: str) -> str:
    """Run lines of a batch through OpenSSH's sftp; return what it printed."""
    command = ["sftp", "-q", "-F", str(sshd.client_config), "-b", "-", "t"]
    done = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True, check=False, timeout=30)
    return done.stdout + done.stderr


def test_a_login_is_counted_and_leaves_no_session(sshd_with: SshdFactory) -> None:
    """One sftp run counts as one login, and its processes are gone afterwards."""
    sshd = sshd_with()
    sftp(sshd, "pwd")
    assert (sshd.logins(), sshd.wait_idle(), sshd.session_pids()) == (1, [], [])


def test_the_plain_server_serves_openssh(sshd_with: SshdFactory, tmp_path: Path) -> None:
    """OpenSSH's client copies a tree up and down through our own server without a fault in it."""
    source = build(tmp_path / "source", {b"0": 0, b"one": 1, b"d/many": 1_000_001, b"d/e/request": 261_120})
    sshd = sshd_with(Subsystem=subsystem("server"))
    said = sftp(sshd, f"put -pR {source} {tmp_path}/up", f"get -pR {tmp_path}/up {tmp_path}/down", f"ls {tmp_path}/up")
    assert snapshot(tmp_path / "down") == snapshot(source), said


@pytest.mark.parametrize("fault", ["reordered", "one-reply-at-a-time", "short-reads-at-random", "small-limits"])
def test_a_harmless_fault_leaves_openssh_right(fault: str, sshd_with: SshdFactory, tmp_path: Path) -> None:
    """OpenSSH's client copes with the faults that break no rule, so a client of ours must."""
    source = build(tmp_path / "source", {b"file": 1_000_001})
    sshd = sshd_with(Subsystem=subsystem(fault))
    said = sftp(sshd, f"put -p {source}/file {tmp_path}/up", f"get -p {tmp_path}/up {tmp_path}/down")
    assert snapshot(tmp_path / "down") == snapshot(source / "file"), said


def test_every_fault_says_what_it_does() -> None:
    """Each faulty server has a docstring of its own."""
    assert [name for name, kind in FAULTS.items() if not kind.__dict__.get("__doc__")] == []


def test_modes_bind_sessions_of_root_too(sshd_with: SshdFactory, tmp_path: Path) -> None:
    """A server started with obey_modes refuses what permission bits forbid, also to root."""
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0)
    said = sftp(sshd_with(obey_modes=True), f"get {tmp_path}/secret {tmp_path}/copy")
    assert ("Permission denied" in said, (tmp_path / "copy").exists()) == (True, False)


def test_part_files_are_found(tmp_path: Path) -> None:
    """A part file at any depth is a leftover, and nothing else is."""
    build(tmp_path, {b"a/.f.fastcopy-0a1b2c3d.part": 1, b"a/f.part": 1, b"fastcopy": 1})
    assert leftovers(tmp_path) == [bytes(tmp_path / "a" / ".f.fastcopy-0a1b2c3d.part")]


def test_a_seed_makes_the_same_tree_again(tmp_path: Path) -> None:
    """random_tree is reproducible from the seed it prints."""
    assert snapshot(random_tree(tmp_path / "1", seed=5)) == snapshot(random_tree(tmp_path / "2", seed=5))


@pytest.fixture
def counting_port() -> Iterator[int]:
    """A TCP server that reads to the end and answers with the count; it answers 'e' with an echo."""

    def serve(peer: socket.socket) -> None:
        with peer, contextlib.suppress(ConnectionError):
            count = len(first := peer.recv(1))
            while data := peer.recv(1 << 20):
                count += len(data)
                if first == b"e":
                    peer.sendall(data)
            peer.sendall(b"%d" % count)

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(peer,)))
            threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join()
    for thread in threads:
        thread.join()


def _push(port: int, size: int) -> int:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"u" + bytes(size - 1))
        peer.shutdown(socket.SHUT_WR)
        return int(b"".join(iter(lambda: peer.recv(100), b"")))


def test_the_proxy_delays_both_ways(counting_port: int) -> None:
    """A byte there and back takes twice the delay, never less."""
    with (
        DelayProxy("127.0.0.1", counting_port, delay_s=0.02) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as peer,
    ):
        peer.sendall(b"e")
        began = time.monotonic()
        peer.sendall(b"x")
        assert peer.recv(1) == b"x"
        assert time.monotonic() - began >= 0.039


def test_the_proxy_bounds_the_bytes_in_flight(counting_port: int) -> None:
    """A connection carries its bytes in flight once a round trip and no more, and loses none."""
    with DelayProxy("127.0.0.1", counting_port, delay_s=0.02, inflight_bytes=100_000) as proxy:
        began = time.monotonic()
        assert _push(proxy.port, 1_000_000) == 1_000_000
        assert time.monotonic() - began >= 10 * 0.038


def test_the_proxy_slices(counting_port: int) -> None:
    """Bytes that are handed on one by one all arrive."""
    with DelayProxy("127.0.0.1", counting_port, delay_s=0, slice_bytes=1) as proxy:
        assert _push(proxy.port, 5000) == 5000


def test_the_proxy_resets(counting_port: int) -> None:
    """After the given number of bytes the connection is reset."""
    with (
        DelayProxy("127.0.0.1", counting_port, delay_s=0, reset_after_bytes=1000) as proxy,
        pytest.raises(ConnectionError),
    ):
        _push(proxy.port, 50_000_000)


def test_the_proxy_stalls(counting_port: int) -> None:
    """After the given number of bytes nothing moves, and the connection stays open."""
    with (
        DelayProxy("127.0.0.1", counting_port, delay_s=0, stall_after_bytes=3) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as peer,
    ):
        peer.settimeout(0.2)
        peer.sendall(b"ex")
        assert peer.recv(1) == b"x"
        peer.sendall(b"y")
        with pytest.raises(TimeoutError):
            peer.recv(1)
