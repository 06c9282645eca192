"""SIGINT, SIGTERM and SIGHUP: end the job cleanly within 2 s, or at once when asked twice.

The first signal cancels the job's task, which cleans up by itself. A second SIGINT, or the end of the grace, ends
this process and all it started without waiting for anyone. Signals that were ignored when we started (nohup, a
background job) stay ignored. Imports asyncio, and measure/ to find the children.
Invariant: from the first signal on, this process lives 2 s at most, whatever a disk, a thread or a peer does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import FrameType

#: Seconds from the first signal to the hard end. Source: law 12 (2 s), less what ending takes.
GRACE_S = 1.7
#: Seconds the children get between SIGTERM and SIGKILL at a hard end.
_CHILD_GRACE_S = 0.1
_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Result = TypeVar("Result")


class Interrupted(Exception):
    """The job was ended by `signal`."""

    def __init__(self, caught: signal.Signals) -> None:
        super().__init__(caught.name)
        self.signal = caught

    @property
    def exit_code(self) -> int:
        return 128 + self.signal


def run(job: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run `job()` in a new event loop until it ends or a signal ends it. From the main thread only.

    Returns: what the job returned; also when a signal came too late to stop it.
    Raises: Interrupted when a signal ended it, after its clean-up; whatever the job raised.
    """
    guard = _Guard()
    guard.install()

    async def watched() -> Result:
        guard.watch(asyncio.get_running_loop(), asyncio.current_task())
        return await job()

    try:
        with asyncio.Runner() as runner:
            return runner.run(watched())
    except asyncio.CancelledError:
        if guard.caught is None:
            raise
        raise Interrupted(guard.caught) from None
    finally:
        guard.remove()


class _Guard:
    """The handlers, and what they have seen."""

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._terminal = _terminal_state()

    def install(self) -> None:
        for number in _CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)

    def remove(self) -> None:
        """Put the old handlers back; after a signal they stay, so that nothing can disturb the rest of the way out."""
        self._loop = self._task = None
        if self.caught is None:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def watch(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any] | None) -> None:
        self._loop, self._task = loop, task
        if self.caught is not None and task is not None:
            task.cancel()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Runs between two bytecodes of the main thread, in the middle of anything: it only takes note and wakes others.
        if self.caught is not None:
            if number == signal.SIGINT:
                self._end_at_once()
            return
        self.caught = signal.Signals(number)
        threading.Thread(target=self._wait_for_the_end, name="fastcopy-grace", daemon=True).start()
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _wait_for_the_end(self) -> None:
        threading.Event().wait(GRACE_S)
        self._end_at_once()

    def _end_at_once(self) -> None:
        with contextlib.suppress(Exception):
            from fastcopy.measure import process_tree

            process_tree.end_descendants(grace_s=_CHILD_GRACE_S)
        _restore_terminal(self._terminal)
        with contextlib.suppress(Exception):
            os.write(2, b"\n" if sys.stderr.isatty() else b"")
        os._exit(128 + (self.caught or signal.SIGINT))


def _terminal_state() -> list[Any] | None:
    """Return the terminal's settings, for an end in which nobody else puts the echo back."""
    import termios

    with contextlib.suppress(termios.error, OSError, ValueError):
        return termios.tcgetattr(0)
    return None


def _restore_terminal(state: list[Any] | None) -> None:
    if state is not None:
        import termios

        with contextlib.suppress(Exception):
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])  # or a background job would stop here
            termios.tcsetattr(0, termios.TCSANOW, state)
