"""CPU seconds this side spends on one job: this process, what it started, and what of that has ended.

Two users, two ways to count the dead. The command is a process of its own, so the kernel's sum over every child it
ever reaped is exact. A program that uses the library may run children of its own: there, only what the connections
reaped themselves counts. Imports only the values; psutil comes in by process_tree, late.
Invariant: no process is counted twice.
"""

from __future__ import annotations

import os
import resource
import threading
from typing import TYPE_CHECKING

from fastcopy.model import CpuUsage

if TYPE_CHECKING:
    import psutil

SOURCE = "psutil"


def _spent(who: int) -> CpuUsage:
    usage = resource.getrusage(who)
    return CpuUsage(user_s=usage.ru_utime, system_s=usage.ru_stime)


class LocalMeter:
    """Measure from construction to `usage`, or from the start of the process."""

    def __init__(self, *, whole_process: bool = False) -> None:
        """Begin to measure.

        Args:
            whole_process: this process exists for the job alone: count it from its first instruction, the start of
                the interpreter included. Else count from now on, and leave out children that are there already
                (which looks at the process table now: about 10 ms). Two jobs at once in one process are not told
                apart: each counts the process's own CPU and the other's living children.
        """
        self._whole_process = whole_process
        self._before = CpuUsage() if whole_process else _spent(resource.RUSAGE_SELF)
        self._strangers: frozenset[psutil.Process] = frozenset()
        if not whole_process:
            from fastcopy.measure import process_tree

            self._strangers = process_tree.descendants(os.getpid())

    def warm_up(self) -> None:
        """Import psutil in a thread, while the job waits for a login; `usage` then answers at once."""
        threading.Thread(target=_import_psutil, name="fastcopy-import-psutil", daemon=True).start()

    def usage(self, ended: CpuUsage | None = None) -> CpuUsage:
        """Return the CPU spent so far. Call it once, at the end: it reads the process table.

        Args:
            ended: what the job's connections have reaped (`Connection.cpu_of_ended_processes`). Not needed, and not
                added, with `whole_process`: the kernel's own sum has it.
        """
        from fastcopy.measure import process_tree

        living = process_tree.usage_of_descendants(os.getpid(), apart_from=self._strangers)
        dead = _spent(resource.RUSAGE_CHILDREN) if self._whole_process else ended or CpuUsage()
        return _spent(resource.RUSAGE_SELF) - self._before + living + dead


def _import_psutil() -> None:
    import psutil  # noqa: F401  (the import is the point: it fills sys.modules)
