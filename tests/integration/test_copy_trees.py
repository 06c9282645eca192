"""Whole trees through the installed command and a real sshd: every byte, name, mode and mtime, in both directions."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.command import copy
from tests.support.trees import build, leftovers, random_tree, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import SshdFactory
    from tests.support.route import Route
    from tests.support.sshd import Sshd
    from tests.support.trees import Node


@pytest.mark.parametrize(("parallel", "connections"), [(1, 1), (2, 1), (2, 2), (8, 1), (8, 2)])
def test_every_size_and_name_arrives(
    parallel: int, connections: int, route: Route, odd: Path, odd_nodes: dict[bytes, Node], tmp_path: Path
) -> None:
    """D04, D06, A16: odd sizes and names arrive byte for byte over any number of channels and logins."""
    outcome = route.copy(f"{odd}/", to=tmp_path / "copy", options=("-n", parallel, "--connections", connections))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == odd_nodes
    assert leftovers(tmp_path) == []


def test_the_default_choice_of_channels_is_right_too(
    route: Route, odd: Path, odd_nodes: dict[bytes, Node], tmp_path: Path
) -> None:
    """Without -n and --connections the tree arrives just as well, and the report says what was chosen."""
    outcome = route.copy(f"{odd}/", to=tmp_path / "copy")
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == odd_nodes
    assert outcome.report["settings"]["parallel"] >= outcome.report["settings"]["connections"] >= 1


@pytest.mark.parametrize("request_size", [512, 4096, 32768, 100_000, 261_120])
def test_any_request_size_is_right(request_size: int, each_direction: Route, tmp_path: Path) -> None:
    """Sizes around multiples of the request arrive whatever the request size and queue depth are."""
    sizes = {around * request_size + off for around in (0, 1, 2, 9) for off in (-1, 0, 1)} - {-1}
    source = build(tmp_path / "source", {b"%d" % size: size for size in sizes})
    outcome = each_direction.copy(f"{source}/", to=tmp_path / "copy", options=("-B", request_size, "-R", 3, "-n", 2))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)


def test_a_random_tree_arrives(route: Route, tmp_path: Path) -> None:
    """A tree nobody thought of arrives; its seed is printed."""
    source = random_tree(tmp_path / "source")
    outcome = route.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 3))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)


def test_many_small_files_arrive(route: Route, tmp_path: Path) -> None:
    """E05's shape in small: 1500 files in 30 directories, each with its own bytes."""
    source = build(tmp_path / "source", {b"d%d/f%d" % (n % 30, n): 1 + n % 300 for n in range(1500)})
    outcome = route.copy(f"{source}/", to=tmp_path / "copy")
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)
    assert outcome.report["files"] == {"total": 1500, "copied": 1500, "skipped": 0, "failed": 0}


def test_a_longer_file_that_is_there_is_replaced(route: Route, tmp_path: Path) -> None:
    """An existing target that is longer, shorter or of another kind of content ends up exactly as the source."""
    source = build(tmp_path / "source", {b"longer": 300_000, b"shorter": 300_000, b"same": 300_000, b"emptied": 0})
    target = build(
        tmp_path / "copy",
        {b"longer": 900_000, b"shorter": 7, b"same": 300_000, b"emptied": 5, b"other": 9},
        seed=2,
        mtime_s=1_500_000_000,
    )
    kept = snapshot(target)[b"other"]
    outcome = route.copy(f"{source}/", to=target)
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(target) == {**snapshot(source), b"other": kept}


def test_a_target_that_is_there_keeps_its_mode(each_direction: Route, tmp_path: Path) -> None:
    """Without -p a replaced file keeps the mode it had; D15: also when that mode forbids writing."""
    source = build(tmp_path / "source", {b"private": 10, b"readonly": 10})
    target = build(tmp_path / "copy", {b"private": 20, b"readonly": 20}, seed=2)
    (target / "private").chmod(0o600)
    (target / "readonly").chmod(0o444)
    outcome = each_direction.copy(f"{source}/", to=target)
    assert outcome.exit_code == 0, outcome.stderr
    modes = {name: node.mode for name, node in snapshot(target).items()}
    assert modes == {b"private": 0o600, b"readonly": 0o444}


def test_preserve_keeps_modes_and_nothing_else_does(each_direction: Route, tmp_path: Path) -> None:
    """With -p the mode is the source's whatever the umask; without it the umask cuts it."""
    source = build(tmp_path / "source", {b"wide": 10, b"d/deep": 10})
    (source / "wide").chmod(0o777)
    (source / "d" / "deep").chmod(0o640)
    for options, expected in ((("-p",), {b"wide": 0o777, b"d/deep": 0o640}), ((), {b"wide": 0o755, b"d/deep": 0o640})):
        copy = tmp_path / f"copy{len(options)}"
        outcome = each_direction.copy(f"{source}/", to=copy, options=options)
        assert outcome.exit_code == 0, outcome.stderr
        assert {name: node.mode for name, node in snapshot(copy).items() if node.kind == "file"} == expected


def test_set_id_bits_are_not_taken_over(each_direction: Route, tmp_path: Path) -> None:
    """Law 10: a set-user-id source does not make a set-user-id copy unasked."""
    source = build(tmp_path / "source", {b"tool": 10})
    (source / "tool").chmod(0o4755)
    outcome = each_direction.copy(source / "tool", to=tmp_path / "copy")
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy")[b""].mode == 0o755


@pytest.mark.parametrize("options", [(), ("-p",)])
def test_read_only_files_and_folders(
    options: tuple[str, ...], sshd_with: SshdFactory, each_direction: Route, tmp_path: Path
) -> None:
    """D15: a read-only file over several channels and a read-only folder with files arrive where modes bind."""
    bound = replace(each_direction, sshd=sshd_with(obey_modes=True))
    source = build(tmp_path / "source", {b"locked/file": 5000, b"locked/below/deep": 10, b"big": 9 << 20})
    (source / "big").chmod(0o444)
    (source / "locked" / "file").chmod(0o400)
    (source / "locked" / "below").chmod(0o555)
    (source / "locked").chmod(0o555)
    outcome = bound.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 4, *options), obey_modes=True)
    assert outcome.exit_code == 0, outcome.stderr
    same_modes = bool(options)
    assert snapshot(tmp_path / "copy", modes=same_modes) == snapshot(source, modes=same_modes)


def test_times_before_1970_and_after_2038(each_direction: Route, tmp_path: Path) -> None:
    """SFTP's unsigned 32 bits carry 2100; what they cannot carry is told or cut, and the bytes arrive either way."""
    source = build(tmp_path / "source", {b"old": 10, b"late": 10})
    os.utime(source / "old", (-1_000_000, -1_000_000))
    os.utime(source / "late", (4_102_444_800, 4_102_444_800))
    outcome = each_direction.copy(f"{source}/", to=tmp_path / "copy")
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy", mtimes=False) == snapshot(source, mtimes=False)
    assert snapshot(tmp_path / "copy")[b"late"] == snapshot(source)[b"late"]


def test_the_second_run_skips_everything(route: Route, odd: Path, odd_nodes: dict[bytes, Node], tmp_path: Path) -> None:
    """Running the same command again copies nothing; --force copies it all again."""
    kinds = [node.kind for node in odd_nodes.values()]
    files, links = kinds.count("file"), kinds.count("symlink")
    total = files + links
    # A link of the same text is the same: there is nothing to force.
    for options, copied in (((), total), ((), 0), (("--force",), files)):
        outcome = route.copy(odd, to=tmp_path, options=options)
        assert outcome.exit_code == 0, outcome.stderr
        assert outcome.report["files"] == {"total": total, "copied": copied, "skipped": total - copied, "failed": 0}
        assert snapshot(tmp_path / odd.name) == odd_nodes


def test_a_changed_file_is_copied_again(each_direction: Route, tmp_path: Path) -> None:
    """A second run copies what differs in size or mtime, and only that."""
    source = build(tmp_path / "source", {b"same": 10, b"size": 10, b"time": 10})
    assert each_direction.copy(source, to=tmp_path / "copy").exit_code == 0
    build(source, {b"size": 11, b"time": 10}, seed=2)
    outcome = each_direction.copy(source, to=tmp_path / "copy")
    assert (outcome.exit_code, outcome.report["files"]["copied"]) == (0, 2), outcome.stderr
    assert snapshot(tmp_path / "copy" / "source") == snapshot(source)


def test_a_file_just_written_is_never_skipped(each_direction: Route, tmp_path: Path) -> None:
    """A source whose mtime is now may change again within that second: it is copied though size and mtime agree."""
    (tmp_path / "source").write_bytes(b"new")
    (tmp_path / "copy").write_bytes(b"old")
    soon = int(time.time()) + 5  # so that "now" has not passed when the command looks
    for path in (tmp_path / "source", tmp_path / "copy"):
        os.utime(path, (soon, soon))
    outcome = each_direction.copy(tmp_path / "source", to=tmp_path / "copy")
    assert (outcome.exit_code, (tmp_path / "copy").read_bytes()) == (0, b"new"), outcome.stderr


def test_special_files_are_told_and_never_opened(each_direction: Route, tmp_path: Path) -> None:
    """B02: a FIFO in the tree neither hangs the copy nor arrives, and the user reads its name."""
    source = build(tmp_path / "source", {b"file": 10, b"d/other": 10})
    os.mkfifo(source / "d" / "fifo")
    outcome = each_direction.copy(f"{source}/", to=tmp_path / "copy", timeout_s=30)
    expected = {name: node for name, node in snapshot(source).items() if name != b"d/fifo"}
    assert snapshot(tmp_path / "copy") == expected
    assert "fifo" in outcome.said


def test_our_own_part_files_are_no_sources(each_direction: Route, tmp_path: Path) -> None:
    """E14: a part file that an earlier copy left in the source tree is not copied."""
    source = build(tmp_path / "source", {b"file": 10, b".file.fastcopy-0a1b2c3d.part": 10})
    outcome = each_direction.copy(f"{source}/", to=tmp_path / "copy")
    assert outcome.exit_code == 0, outcome.stderr
    assert sorted(snapshot(tmp_path / "copy")) == [b"file"]


def test_links_are_copied_as_links_and_replaced(route: Route, tmp_path: Path) -> None:
    """D23: a link arrives as the same link, takes the place of another one, and what it points to stays untouched."""
    source = build(tmp_path / "source", {b"file": 10})
    (source / "link").symlink_to("file")
    target = build(tmp_path / "copy", {b"victim": 10}, seed=2)
    (target / "link").symlink_to("victim")
    (target / "file").symlink_to("victim")
    victim = snapshot(target)[b"victim"]
    outcome = route.copy(f"{source}/", to=target)
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(target) == {**snapshot(source), b"victim": victim}


def test_a_local_copy_needs_no_server(odd: Path, odd_nodes: dict[bytes, Node], tmp_path: Path) -> None:
    """Both ends here: the tree arrives by the same rules."""
    outcome = copy(f"{odd}/", tmp_path / "copy")
    assert (outcome.exit_code, outcome.report["direction"]) == (0, "local"), outcome.stderr
    assert snapshot(tmp_path / "copy") == odd_nodes


def test_two_remote_ends_are_refused(sshd: Sshd, tmp_path: Path) -> None:
    """Both ends there: exit 2 in one sentence, and nothing is made."""
    build(tmp_path / "from", {b"file": 10})
    outcome = copy(f"t:{tmp_path}/from", f"t:{tmp_path}/to", config=sshd.client_config)
    assert (outcome.exit_code, "both ends are remote" in outcome.said) == (2, True), outcome.stderr
    assert not (tmp_path / "to").exists()
