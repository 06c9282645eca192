"""What the figures were measured on: cores, CPU, kernel, and the versions of everything that raced.

Reads, changes nothing. Imports nothing of fastcopy.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import psutil

from tests.support.command import fastcopy_command

_ASKED = {
    "fastcopy": (*fastcopy_command(), "--version"),
    "OpenSSH": ("ssh", "-V"),
    "lftp": ("lftp", "--version"),
    "rclone": ("rclone", "--config=", "version"),
    "rsync": ("rsync", "--version"),
    "mscp": ("mscp", "-V"),
}


def facts() -> dict[str, str]:
    """Return the machine's facts by name, in the order they are shown. A program that is not there is left out."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "cpu": _cpu_model(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(words) for name, words in _ASKED.items() if shutil.which(words[0])},
    }


def room_bytes(directory: Path) -> int:
    """Return what may be written to `directory`, taken to be in memory, without running out of either."""
    return min(shutil.disk_usage(directory).free, psutil.virtual_memory().available)


def load() -> float:
    """Return how many processes wanted a core lately: figures taken on a busy machine are of little worth."""
    return os.getloadavg()[0]


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _version(words: tuple[str, ...]) -> str:
    asked = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = re.search(r"\d+(?:\.\d+)+\w*", asked.stdout + asked.stderr)
    return found[0] if found else "unknown"
