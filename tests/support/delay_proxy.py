"""A TCP proxy that makes a long road: one-way delay, and a bound on the bytes in flight as a kernel's buffer sets it.

Runs as a process of its own (`python -m tests.support.delay_proxy`), because a delay line inside the measured process
would be measured too; ends when its stdin closes. Not modelled: loss and slow start. Imports nothing of fastcopy.
Invariant: per connection and direction at most `inflight_bytes` are on the road or not yet acknowledged, where an
acknowledgement takes one delay back; so one connection carries at most inflight_bytes / RTT.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Self

#: Bytes. Source: the usual max of net.ipv4.tcp_wmem on Linux.
DEFAULT_INFLIGHT_BYTES = 4 << 20
#: Bytes taken with one recv. Source: our measurement; larger ones no longer gain.
_RECV_BYTES = 256 << 10
#: Seconds by which a piece may leave early: poll() cannot sleep more finely than 1 ms.
_SLACK_S = 0.0005


class DelayProxy:
    """A running proxy in front of host:port. A context manager; `.port` is where it listens on 127.0.0.1."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        delay_s: float = 0.05,
        inflight_bytes: int = DEFAULT_INFLIGHT_BYTES,
        slice_bytes: int = _RECV_BYTES,
        reset_after_bytes: int = 0,
        stall_after_bytes: int = 0,
    ) -> None:
        """Start the proxy.

        Args:
            delay_s: seconds each way; the RTT is twice that.
            inflight_bytes: per connection and direction.
            slice_bytes: at most this many bytes are handed on at once (1: every byte arrives alone).
            reset_after_bytes: reset a connection after it has carried this many bytes, both ways counted; 0: never.
            stall_after_bytes: carry nothing more after this many bytes, but keep the connection open; 0: never.
        """
        numbers = (delay_s, inflight_bytes, slice_bytes, reset_after_bytes, stall_after_bytes)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, host, str(port), *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,  # Ctrl-C is for whoever started it
        )
        assert self._process.stdout is not None
        self.host = "127.0.0.1"
        self.port = int(self._process.stdout.readline())

    def close(self) -> None:
        """End the proxy and every connection through it. Idempotent."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


# --- inside the proxy's process -----------------------------------------------------------------------------------


class _Lane:
    """One direction of one connection: what is on the road, and what the sender may not forget yet."""

    __slots__ = ("closing", "road", "road_bytes", "source", "target", "unacked", "unacked_bytes")

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.road: deque[tuple[float, memoryview]] = deque()  # (due, bytes); b"" is the end of the stream
        self.unacked: deque[tuple[float, int]] = deque()  # (due, count) of deliveries the sender has not heard of
        self.road_bytes = 0
        self.unacked_bytes = 0
        self.closing = False  # the source has ended

    @property
    def ended(self) -> bool:
        return self.closing and not self.road


class _Link:
    """One proxied connection, and when to look at it again (None: when one of its sockets stirs)."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.lanes = (_Lane(client, server), _Lane(server, client))
        self.carried_bytes = 0
        self.due: float | None = None


class _Proxy:
    """The loop: poll, take what came, hand on what is due."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._delay_s: float = arguments.delay_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._poll = select.poll()
        self._watched: dict[int, int] = {}  # fd: events; an fd without any is not watched, else POLLHUP would spin
        self._links: dict[int, _Link] = {}  # by either socket's fd
        self._opening: deque[tuple[float, socket.socket]] = deque()
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        """Serve until stdin closes."""
        self._watch(sys.stdin.fileno(), select.POLLIN)
        self._watch(self._listener.fileno(), select.POLLIN)
        wait_ms: float | None = None
        while True:
            for fd, events in self._poll.poll(wait_ms):
                if fd == sys.stdin.fileno():
                    return
                if fd == self._listener.fileno():
                    # The client's connect has returned already; on a real road it would take one round trip.
                    self._opening.append((time.monotonic() + 2 * self._delay_s, self._listener.accept()[0]))
                elif link := self._links.get(fd):
                    self._move(link, readable_fd=fd if events & ~select.POLLOUT else -1)
            soon = time.monotonic() + _SLACK_S
            while self._opening and self._opening[0][0] <= soon:
                self._open(self._opening.popleft()[1])
            for link in set(self._links.values()):
                if link.due is not None and link.due <= soon:
                    self._move(link)
            dues = [link.due for link in self._links.values() if link.due is not None]
            dues += [due for due, _ in self._opening]
            wait_ms = max(0.0, (min(dues) - time.monotonic()) * 1000) if dues else None

    def _open(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((self._arguments.host, self._arguments.port))
        except OSError:
            _reset(client)
            return
        link = _Link(client, server)
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._links[end.fileno()] = link
        self._listen(link)

    def _move(self, link: _Link, readable_fd: int = -1) -> None:
        """Take, hand on and acknowledge what can be, and note when to look again."""
        stall_after, reset_after = self._arguments.stall_after_bytes, self._arguments.reset_after_bytes
        if stall_after and link.carried_bytes >= stall_after:
            link.due = None
            for lane in link.lanes:
                self._watch(lane.source.fileno(), 0)
            return
        dues: list[float] = []
        try:
            for lane in link.lanes:
                if lane.source.fileno() == readable_fd:
                    self._take(lane)
                now = time.monotonic()
                link.carried_bytes += self._hand_on(lane, now)
                while lane.unacked and lane.unacked[0][0] <= now + _SLACK_S:
                    lane.unacked_bytes -= lane.unacked.popleft()[1]
                if lane.road and lane.road[0][0] > now + _SLACK_S:
                    dues.append(lane.road[0][0])
                if lane.unacked:
                    dues.append(lane.unacked[0][0])
        except OSError:
            self._drop(link)
            return
        if all(lane.ended for lane in link.lanes) or (reset_after and link.carried_bytes >= reset_after):
            self._drop(link)
            return
        link.due = min(dues, default=None)
        self._listen(link)

    def _take(self, lane: _Lane) -> None:
        room = self._arguments.inflight_bytes - lane.road_bytes - lane.unacked_bytes
        if lane.closing or room <= 0:
            return
        try:
            data = lane.source.recv(min(room, _RECV_BYTES))
        except BlockingIOError:
            return
        lane.closing = not data
        lane.road.append((time.monotonic() + self._delay_s, memoryview(data)))
        lane.road_bytes += len(data)

    def _hand_on(self, lane: _Lane, now: float) -> int:
        carried = 0
        while lane.road and lane.road[0][0] <= now + _SLACK_S:
            due, data = lane.road[0]
            if not data:
                lane.target.shutdown(socket.SHUT_WR)
                lane.road.popleft()
                continue
            try:
                sent = lane.target.send(data[: self._arguments.slice_bytes])
            except BlockingIOError:
                break
            if sent == len(data):
                lane.road.popleft()
            else:
                lane.road[0] = (due, data[sent:])
            lane.road_bytes -= sent
            lane.unacked_bytes += sent
            lane.unacked.append((now + self._delay_s, sent))
            carried += sent
        return carried

    def _listen(self, link: _Link) -> None:
        """Watch what can move: a source with room on its road, a target whose next piece is overdue."""
        soon = time.monotonic() + _SLACK_S
        for lane, back in (link.lanes, link.lanes[::-1]):
            room = self._arguments.inflight_bytes - lane.road_bytes - lane.unacked_bytes
            events = select.POLLIN if not lane.closing and room > 0 else 0
            if back.road and back.road[0][0] <= soon:
                events |= select.POLLOUT
            self._watch(lane.source.fileno(), events)

    def _watch(self, fd: int, events: int) -> None:
        if events == self._watched.get(fd, 0):
            return
        if events:
            self._poll.register(fd, events)
            self._watched[fd] = events
        else:
            self._poll.unregister(fd)
            del self._watched[fd]

    def _drop(self, link: _Link) -> None:
        for lane in link.lanes:
            self._watch(lane.source.fileno(), 0)
            del self._links[lane.source.fileno()]
        for lane in link.lanes:
            if all(lane.ended for lane in link.lanes):
                lane.source.close()
            else:
                _reset(lane.source)


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def _main() -> None:
    parser = argparse.ArgumentParser(description="Delay TCP connections to HOST PORT; prints the port it listens on.")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("delay_s", type=float)
    for name in ("inflight_bytes", "slice_bytes", "reset_after_bytes", "stall_after_bytes"):
        parser.add_argument(name, type=int)
    proxy = _Proxy(parser.parse_args())
    sys.stdout.write(f"{proxy.port}\n")
    sys.stdout.flush()
    proxy.run()


if __name__ == "__main__":
    _main()
