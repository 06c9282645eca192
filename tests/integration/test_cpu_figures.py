"""The report's CPU figures against what the kernel says of the same processes, on both sides.

The kernel's figure for here is what it adds to its parent when the command has been waited for; for there, what sshd's
listening process has gathered from its dead children. Both hold a little more than the report can: how the
command ends, and how the sessions do.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.sshd import sftp_server_path
from tests.support.trees import build

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import SshdFactory
    from tests.support.route import Route
    from tests.support.sshd import Sshd

#: CPU seconds that may fall behind the last look: the end of the interpreter and of ssh here, of the sessions there.
_AFTER_THE_LOOK_S = {"local": 0.15, "remote": 0.35}
#: CPU seconds the kernel may count to nobody: clocks tick every 10 ms for each of a few processes; there the two
#: sftp-servers as well.
_NEVER_WAITED_FOR_S = {"local": 0.03, "remote": 0.25}


def reaped_by(sshd: Sshd) -> float:
    """CPU seconds of all processes that the listening sshd has waited for, and of what those had waited for."""
    (listener,) = [
        child for child in psutil.Process().children() if any(str(sshd.directory) in word for word in child.cmdline())
    ]
    spent = listener.cpu_times()
    return float(spent.children_user + spent.children_system)


def reaped_here() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


@pytest.mark.parametrize("subsystem", ["sftp-server", "internal-sftp"])
def test_both_sides_agree_with_the_kernel(subsystem: str, route: Route, sshd_with: SshdFactory, tmp_path: Path) -> None:
    """128 MiB over two logins: each side's figure is the kernel's, less what ending costs.

    On the far side it may be more: an sshd that ends before its sftp-server never waits for it, so that the kernel
    counts that one's CPU to nobody.
    """
    server = sshd_with(Subsystem=f"sftp {sftp_server_path() if subsystem == 'sftp-server' else subsystem}")
    path = type(route)(direction=route.direction, way=route.way, sshd=server)
    source = build(tmp_path / "source", {b"a": 64 << 20, b"b": 64 << 20})
    here, there = reaped_here(), reaped_by(server)
    outcome = path.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 2, "--connections", 2))
    assert outcome.exit_code == 0, outcome.stderr
    assert server.wait_idle() == []
    kernel = {"local": reaped_here() - here, "remote": reaped_by(server) - there}
    for side, true_s in kernel.items():
        told = outcome.report["cpu"][side]
        told_s = told["user_s"] + told["system_s"]
        assert true_s - _AFTER_THE_LOOK_S[side] <= told_s <= true_s + _NEVER_WAITED_FOR_S[side], (side, told, true_s)
