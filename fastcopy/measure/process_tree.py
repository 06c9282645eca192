"""This process and all it started, seen through psutil: CPU, memory, and their end.

The only importer of psutil, and only inside functions: its import costs 6 to 10 ms, which a short copy would feel.
Invariant: a process that vanishes while it is looked at is left out, never an error.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from fastcopy.model import CpuUsage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil


def _descendants(pid: int) -> Iterator[psutil.Process]:
    import psutil

    with contextlib.suppress(psutil.Error):
        yield from psutil.Process(pid).children(recursive=True)


def descendants(pid: int) -> frozenset[psutil.Process]:
    """Return what `pid` has started and is alive (or not yet reaped) now, however deep."""
    return frozenset(_descendants(pid))


def usage_of_descendants(pid: int, *, apart_from: frozenset[psutil.Process] = frozenset()) -> CpuUsage:
    """CPU of all living descendants of `pid`, and of what those have reaped; `pid` itself is not counted."""
    return sum((_usage(process) for process in _descendants(pid) if process not in apart_from), CpuUsage())


def usage_of_tree(pid: int) -> CpuUsage:
    """CPU of the process `pid`, of its living descendants, and of what all of these have reaped; 0 when it is gone."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return _usage(psutil.Process(pid)) + usage_of_descendants(pid)
    return CpuUsage()


def _usage(process: psutil.Process) -> CpuUsage:
    import psutil

    with contextlib.suppress(psutil.Error):
        spent = process.cpu_times()
        return CpuUsage(user_s=spent.user + spent.children_user, system_s=spent.system + spent.children_system)
    return CpuUsage()


def pss_bytes_of_tree(pid: int) -> int:
    """Memory of `pid` and its descendants with shared pages counted once (PSS; Linux only, 0 where not told)."""
    import psutil

    total = 0
    with contextlib.suppress(psutil.Error):
        for process in (psutil.Process(pid), *_descendants(pid)):
            with contextlib.suppress(psutil.Error, OSError):
                total += getattr(process.memory_full_info(), "pss", 0)
    return total


def end_descendants(*, grace_s: float) -> None:
    """End all that this process has started: SIGTERM, then after `grace_s` SIGKILL for what is left.

    For an exit that cannot wait for an orderly one. Never raises for a process that is gone or not ours.
    """
    import psutil

    processes = list(_descendants(os.getpid()))
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    for process in psutil.wait_procs(processes, timeout=grace_s)[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()
