"""`fastcopy demo`: the real engine against a server of its own, with files made for it, both ways, compared.

Owns one temporary directory and one server process; both are gone at the end, however it ends. Needs no sshd, no root
and no network but loopback. Invariant: success is printed only after every byte was compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastcopy.cli import signals, summary
from fastcopy.cli.progress import Progress
from fastcopy.config import CopyOptions
from fastcopy.errors import IntegrityError, InvalidValue
from fastcopy.plan.locations import Location
from fastcopy.plan.sizes import format_bytes

if TYPE_CHECKING:
    from fastcopy.cli.arguments import DemoRequest
    from fastcopy.cli.console import Console
    from fastcopy.demo.process import DemoProcess
    from fastcopy.measure.report import Report

#: Copies of the set that stand side by side: the source, the one sent up, the one brought down.
_COPIES = 3
#: Bytes kept free beside them.
_MARGIN_BYTES = 64 << 20
_MEMORY_DISK = Path("/dev/shm")
#: Bytes of random data the files are cut from: larger than any compression window.
_PATTERN_BYTES = 16 << 20
_COMPARED_BYTES = 8 << 20


def demo(request: DemoRequest, console: Console) -> int:
    """Run the demonstration and return its exit code.

    Raises: InvalidValue when no disk has room for it; FastcopyError when the job or the comparison fails.
    """
    need = _COPIES * request.total_bytes + _MARGIN_BYTES
    place = _place(need)
    try:
        return signals.run(lambda: _demo(request, place, console))
    except signals.Interrupted as interrupted:
        console.complain("interrupted; everything was removed")
        return interrupted.exit_code


async def _demo(request: DemoRequest, place: Path, console: Console) -> int:
    from fastcopy.demo.process import DemoProcess

    directory = Path(tempfile.mkdtemp(prefix="fastcopy-demo-", dir=place))
    try:
        source, far, back = directory / "dumps", directory / "server", directory / "back"
        for made in (source, far, back):
            made.mkdir()
        size = format_bytes(request.file_bytes)
        console.result([f"Making {request.files} files of {size} in {directory}, for a server on this machine."])
        await _make(source, request)
        async with DemoProcess(far) as server:
            steps = (
                ("up", _local(source), _remote(server, "/"), far / source.name),
                ("down", _remote(server, f"/{source.name}"), _local(back), back / source.name),
            )
            for word, origin, destination, arrived in steps:
                report = await _copy(server, origin, destination, console)
                console.result([f"{word}:", *(f"  {line}" for line in summary.table(report))])
                for line in summary.failure_lines(report.failures):
                    console.complain(line)
                if report.exit_code:
                    return report.exit_code
                await _compare(source, arrived)
        console.result(["Both copies are byte for byte what was sent. All of it is removed again."])
        return 0
    finally:
        # Not in a thread: after a signal the loop is on its way out, and this must be done before it is gone.
        shutil.rmtree(directory, ignore_errors=True)


async def _copy(server: DemoProcess, source: Location, destination: Location, console: Console) -> Report:
    """Run one job and add what the server spent on it."""
    from fastcopy.job import run_copy
    from fastcopy.measure.process_tree import usage_of_tree
    from fastcopy.measure.report import SideCpu

    before = usage_of_tree(server.pid)
    progress = Progress(console, sys.stderr)
    with contextlib.closing(progress):
        report = await run_copy([source], destination, CopyOptions(ssh=server.ssh_options()), progress)
    spent = usage_of_tree(server.pid) - before
    return dataclasses.replace(report, command="demo", cpu_remote=SideCpu(usage=spent, source="psutil"))


def _local(path: Path) -> Location:
    return Location(path=os.fsencode(path))


def _remote(server: DemoProcess, path: str) -> Location:
    return Location(host=server.host, port=server.port, path=os.fsencode(path))


def _place(need_bytes: int) -> Path:
    """Return where the files go: memory if it has ample room, else the temporary directory.

    Raises: InvalidValue when neither has.
    """
    disk = Path(tempfile.gettempdir())
    if os.access(_MEMORY_DISK, os.W_OK) and min(_free_bytes(_MEMORY_DISK), _free_memory_bytes() // 2) > need_bytes:
        return _MEMORY_DISK
    free = _free_bytes(disk)
    if free < need_bytes:
        message = f"needs {format_bytes(need_bytes)} for three copies, but {disk} has {format_bytes(free)} free"
        raise InvalidValue(f"{message}. Choose a smaller size, or another TMPDIR", option="--size")
    return disk


def _free_bytes(directory: Path) -> int:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0


def _free_memory_bytes() -> int:
    """Bytes the kernel could give away now (Linux; 0 elsewhere, where there is no /dev/shm either)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


async def _make(directory: Path, request: DemoRequest) -> None:
    """Write the files, no two alike, in pieces small enough that a signal need not wait."""
    pattern = memoryview(await asyncio.to_thread(os.urandom, min(_PATTERN_BYTES, max(1, request.file_bytes))))
    for number in range(request.files):
        with await _open(directory / f"export_{number + 1:02d}.dmp", "wb") as file:
            left, start = request.file_bytes, number * 104_729 % len(pattern)
            while left:
                left -= await asyncio.to_thread(file.write, pattern[start : start + left])
                start = 0


async def _compare(source: Path, arrived: Path) -> None:
    """Compare two directories byte for byte. Raises: IntegrityError."""
    names = sorted(os.listdir(source))
    if names != sorted(os.listdir(arrived)):
        raise IntegrityError("other names", path=os.fsencode(arrived))
    for name in names:
        if not await _are_equal(source / name, arrived / name):
            raise IntegrityError("other content", path=os.fsencode(arrived / name))


async def _are_equal(one: Path, other: Path) -> bool:
    with await _open(one, "rb") as first, await _open(other, "rb") as second:
        while True:
            a, b = [await asyncio.to_thread(file.read, _COMPARED_BYTES) for file in (first, second)]
            if a != b or not a:
                return bool(a == b)


async def _open(path: Path, mode: str) -> Any:
    return await asyncio.to_thread(open, path, mode, 0)
