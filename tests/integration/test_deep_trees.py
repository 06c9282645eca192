"""Deep trees, whose folders many channels make at once (cases D17, R30)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.route import WAYS, Route
from tests.support.trees import build, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sshd import Sshd

DEPTH = 200


def test_two_hundred_nested_directories(route: Route, tmp_path: Path) -> None:
    """200 directories within each other, a file in each, made by 16 channels: none is missing, none is made twice."""
    files: dict[bytes, int | bytes] = {b"d/" * depth + b"file": depth for depth in range(DEPTH + 1)}
    source = build(tmp_path / "source", files)
    outcome = route.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 16, "--connections", 2))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)


def test_two_hundred_branches(route: Route, tmp_path: Path) -> None:
    """200 directories beside each other, ten deep below one that is missing too."""
    files: dict[bytes, int | bytes] = {b"a/" * 10 + b"b%d/c/file" % branch: branch for branch in range(200)}
    source = build(tmp_path / "source", files)
    outcome = route.copy(source, to=tmp_path / "copy", options=("-n", 16))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy" / "source") == snapshot(source)


@pytest.mark.parametrize("way", WAYS)
def test_a_path_too_long_is_one_files_failure(way: str, sshd: Sshd, tmp_path: Path) -> None:
    """D17: what cannot have its path on the server fails by name; the rest arrives."""
    deep = b"/".join([b"n" * 200] * 18)
    source = build(tmp_path / "s", {b"fine": 10})
    here = os.open(source, os.O_RDONLY)
    for part in deep.split(b"/"):
        os.mkdir(part, dir_fd=here)
        here, above = os.open(part, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    target = build(tmp_path / ("t" * 250), {b"%s/" % (b"u" * 250): 0}) / ("u" * 250)
    outcome = Route(direction="put", way=way, sshd=sshd).copy(f"{source}/", to=target)
    assert outcome.exit_code == 4, outcome.stderr
    assert (target / "fine").read_bytes() == (source / "fine").read_bytes()
    assert outcome.report["files"]["copied"] == 1
