"""One-fault SFTP servers behind a real sshd: right bytes where the fault breaks no rule, a named failure where it does.

Never half a file under its final name, never success without the bytes (laws 4 and 5).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.evil_sftp import FAULTS, subsystem
from tests.support.route import Route
from tests.support.trees import REQUEST_BYTES, build, leftovers, snapshot

if TYPE_CHECKING:
    from tests.conftest import SshdFactory

ODD = (0, 1, 16_384, 32_768, 102_399, 102_400, 102_401, REQUEST_BYTES, 3 * REQUEST_BYTES + 1)
FILES: dict[bytes, int | bytes] = {b"d/%d" % size: size for size in ODD}
#: A server that hands out single bytes takes a request for each: fewer bytes show the same.
FEW_FILES: dict[bytes, int | bytes] = {b"0": 0, b"1": 1, b"d/3000": 3000}

#: Faults a transport could trip over, and faults that are the SFTP client's affair alone.
IN_THE_STREAM = (
    "one-reply-at-a-time",
    "reordered",
    "short-reads-of-one-byte",
    "short-reads-of-1000-bytes",
    "short-reads-at-random",
)
IN_THE_ANSWERS = (
    "server",
    "small-limits",
    "lying-limits",
    "limits-of-zero",
    "limits-of-one",
    "limits-without-end",
    "no-extensions",
    "no-posix-rename",
    "one-handle",
    "four-handles",
)


@pytest.mark.parametrize("fault", IN_THE_STREAM)
def test_replies_in_any_order_and_length(fault: str, sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """A01: short replies, in any order, one at a time: every byte arrives at its place."""
    assert_right(replace(route, sshd=sshd_with(Subsystem=subsystem(fault))), fault, tmp_path)


@pytest.mark.parametrize("fault", IN_THE_ANSWERS)
def test_a_server_that_is_only_odd(fault: str, sshd_with: SshdFactory, each_direction: Route, tmp_path: Path) -> None:
    """A12, D03: small or senseless limits, few handles, missing extensions: every byte arrives."""
    assert_right(replace(each_direction, sshd=sshd_with(Subsystem=subsystem(fault))), fault, tmp_path)


def assert_right(route: Route, fault: str, tmp_path: Path) -> None:
    source = build(tmp_path / "source", FEW_FILES if fault == "short-reads-of-one-byte" else FILES)
    outcome = route.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 2, "--connections", 1))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("request_size", ["16K", "32K", "64K", "255K", "1M"])
def test_a_server_that_lies_about_its_limits(
    request_size: str, sshd_with: SshdFactory, each_direction: Route, tmp_path: Path
) -> None:
    """A12: 261120 bytes announced, 102400 served and taken: right whatever request size was asked for."""
    source = build(tmp_path / "source", FILES)
    lying = replace(each_direction, sshd=sshd_with(Subsystem=subsystem("lying-limits")))
    outcome = lying.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 2, "-B", request_size))
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(tmp_path / "copy") == snapshot(source)


@pytest.mark.parametrize("fault", ["no-extensions", "no-posix-rename"])
def test_replacing_without_posix_rename_is_told(
    fault: str, sshd_with: SshdFactory, each_direction: Route, tmp_path: Path
) -> None:
    """Law 4: a server that cannot replace atomically ends with the new file, and the report says how it got there."""
    source = build(tmp_path / "source", {b"file": 200_000})
    target = build(tmp_path / "copy", {b"file": 300_000}, seed=2, mtime_s=1_500_000_000)
    odd = replace(each_direction, sshd=sshd_with(Subsystem=subsystem(fault)))
    outcome = odd.copy(f"{source}/", to=target)
    assert outcome.exit_code == 0, outcome.stderr
    assert snapshot(target) == snapshot(source)
    assert bool(outcome.report["warnings"]) == (each_direction.direction == "put")


def test_a_file_that_ends_early(sshd_with: SshdFactory, way: str, tmp_path: Path) -> None:
    """A01: an EOF before the promised size fails that file as SourceChanged; the short ones arrive."""
    source = build(tmp_path / "source", {b"short": 65_536, b"long": 300_000})
    evil = Route(direction="get", way=way, sshd=sshd_with(Subsystem=subsystem("early-eof")))
    outcome = evil.copy(f"{source}/", to=tmp_path / "copy")
    assert [failure["kind"] for failure in outcome.report["failures"]] == ["SourceChanged"]
    assert (outcome.exit_code, sorted(snapshot(tmp_path / "copy"))) == (4, [b"short"]), outcome.stderr


@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_a_close_that_fails(size: int, sshd_with: SshdFactory, way: str, tmp_path: Path) -> None:
    """A16: a Failure in answer to CLOSE counts: nothing appears under the final name."""
    source = build(tmp_path / "source", {b"file": size})
    evil = Route(direction="put", way=way, sshd=sshd_with(Subsystem=subsystem("failing-close")))
    outcome = evil.copy(source / "file", to=tmp_path / "copy")
    assert (outcome.exit_code, (tmp_path / "copy").exists()) == (4, False), outcome.stderr
    assert (leftovers(tmp_path), "file" in outcome.said) == ([], True)


def test_failing_files_do_not_disturb_the_others(sshd_with: SshdFactory, way: str, tmp_path: Path) -> None:
    """Law 7: every third file fails while hundreds are in flight; each of the others arrives with its own bytes.

    Handles are numbers that a server uses again at once: one closed twice is another file's by then.
    """
    names = [b"wrong%d" % number if number % 3 == 0 else b"good%d" % number for number in range(600)]
    source = build(tmp_path / "source", {name: 1000 + number for number, name in enumerate(names)})
    evil = Route(direction="put", way=way, sshd=sshd_with(Subsystem=subsystem("refused-files")))
    outcome = evil.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 2))
    assert (outcome.exit_code, outcome.report["files"]["failed"]) == (4, 200), outcome.stderr
    expected = {name: node for name, node in snapshot(source).items() if b"wrong" not in name}
    assert snapshot(tmp_path / "copy") == expected


def test_a_full_disk(sshd_with: SshdFactory, way: str, tmp_path: Path) -> None:
    """B12, D19, A15: a bare Failure on a full disk is told as no space; what fits arrives, no part stays."""
    source = build(tmp_path / "source", {b"fits": 90_000, b"large": 1_000_000})
    evil = Route(direction="put", way=way, sshd=sshd_with(Subsystem=subsystem("disk-full")))
    outcome = evil.copy(f"{source}/", to=tmp_path / "copy", options=("-n", 2))
    assert [failure["kind"] for failure in outcome.report["failures"]] == ["NoSpace"]
    assert (outcome.exit_code, sorted(snapshot(tmp_path / "copy"))) == (4, [b"fits"]), outcome.stderr
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("fault", ["duplicated-reply", "wrong-id", "wrong-type"])
def test_a_server_that_breaks_the_protocol(
    fault: str, sshd_with: SshdFactory, each_direction: Route, tmp_path: Path
) -> None:
    """A reply that answers nothing, or something else, is a protocol error, with no file under its name."""
    source = build(tmp_path / "source", {b"file": 300_000})
    evil = replace(each_direction, sshd=sshd_with(Subsystem=subsystem(fault)))
    outcome = evil.copy(source / "file", to=tmp_path / "copy", options=("-n", 2), timeout_s=30)
    assert (outcome.exit_code, (tmp_path / "copy").exists()) == (7, False), outcome.stderr
    assert leftovers(tmp_path) == []


def test_more_bytes_than_asked_for(sshd_with: SshdFactory, way: str, tmp_path: Path) -> None:
    """Law 5: a reply longer than the request is an unsafe peer, and no file stands under its name."""
    source = build(tmp_path / "source", {b"file": 300_000})
    evil = Route(direction="get", way=way, sshd=sshd_with(Subsystem=subsystem("long-reads")))
    outcome = evil.copy(source / "file", to=tmp_path / "copy", timeout_s=30)
    assert (outcome.exit_code, (tmp_path / "copy").exists()) == (6, False), outcome.stderr
    assert leftovers(tmp_path) == []


def test_a_chatty_login(sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """Text where SFTP should begin is shown, and its usual cause is named."""
    source = build(tmp_path / "source", {b"file": 10})
    evil = replace(route, sshd=sshd_with(Subsystem=subsystem("text-at-login")))
    outcome = evil.copy(source / "file", to=tmp_path / "copy", timeout_s=30)
    assert (outcome.exit_code, (tmp_path / "copy").exists()) == (3, False), outcome.stderr
    assert ("Welcome to srv002" in outcome.said, "start-up file" in outcome.said) == (True, True)


def test_a_server_that_ends_at_once(sshd_with: SshdFactory, route: Route, tmp_path: Path) -> None:
    """A subsystem that ends before VERSION is a server without SFTP, not a hang."""
    source = build(tmp_path / "source", {b"file": 10})
    evil = replace(route, sshd=sshd_with(Subsystem=subsystem("empty-version")))
    outcome = evil.copy(source / "file", to=tmp_path / "copy", timeout_s=30)
    assert (outcome.exit_code, (tmp_path / "copy").exists()) == (3, False), outcome.stderr


@pytest.mark.parametrize("fault", sorted(name for name in FAULTS if name.startswith("lists-")))
def test_a_name_that_leaves_the_destination(fault: str, sshd_with: SshdFactory, way: str, tmp_path: Path) -> None:
    """A21: a listed name that climbs, is absolute, empty or has a slash or NUL is refused; nothing escapes."""
    source = build(tmp_path / "source", {b"file": 10})
    evil = Route(direction="get", way=way, sshd=sshd_with(Subsystem=subsystem(fault)))
    (tmp_path / "jail").mkdir()
    outcome = evil.copy(f"{source}/", to=tmp_path / "jail" / "copy", timeout_s=30)
    escaped = [*tmp_path.rglob("escaped*"), *Path("/tmp").glob("escaped")]
    assert (outcome.exit_code, escaped) == (6, []), outcome.stderr
    assert snapshot(tmp_path / "jail").keys() <= {b"copy", b"copy/file"}
