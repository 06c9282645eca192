"""The directory rules (design: always the same on a second run), and names that could be read as something else."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.command import copy
from tests.support.route import remote
from tests.support.trees import build, snapshot

if TYPE_CHECKING:
    from tests.support.route import Route
    from tests.support.sshd import Sshd

#: (sources, destination, the files that are there afterwards). `there/` exists and is empty; nothing else does.
RULES = [
    pytest.param(("file",), "there", {b"there/file"}, id="file to a directory"),
    pytest.param(("file",), "there/", {b"there/file"}, id="file to a directory with a slash"),
    pytest.param(("file",), "there/name", {b"there/name"}, id="file to a new name in a directory"),
    pytest.param(("file",), "name", {b"name"}, id="file to a new name"),
    pytest.param(("file",), "new/", {b"new/file"}, id="file into a new directory"),
    pytest.param(("dir",), "there", {b"there/dir/in/deep", b"there/dir/top"}, id="directory to a directory"),
    pytest.param(("dir",), "there/", {b"there/dir/in/deep", b"there/dir/top"}, id="directory to one with a slash"),
    pytest.param(("dir",), "new", {b"new/dir/in/deep", b"new/dir/top"}, id="directory to a new one"),
    pytest.param(("dir/",), "there", {b"there/in/deep", b"there/top"}, id="contents to a directory"),
    pytest.param(("dir/",), "new", {b"new/in/deep", b"new/top"}, id="contents to a new one"),
    pytest.param(("dir/.",), "new", {b"new/in/deep", b"new/top"}, id="contents by a dot"),
    pytest.param(("file", "other"), "there", {b"there/file", b"there/other"}, id="two files to a directory"),
    pytest.param(("file", "other"), "new", {b"new/file", b"new/other"}, id="two files to a new directory"),
    pytest.param(
        ("file", "dir"), "there", {b"there/file", b"there/dir/in/deep", b"there/dir/top"}, id="file and directory"
    ),
    pytest.param(
        ("dir/", "dir2/"), "there", {b"there/in/deep", b"there/top", b"there/more"}, id="two contents to a directory"
    ),
]
FILES: dict[bytes, int | bytes] = {b"file": 10, b"other": 11, b"dir/top": 12, b"dir/in/deep": 13, b"dir2/more": 14}


@pytest.mark.parametrize(("sources", "destination", "expected"), RULES)
def test_a_rule_twice(
    sources: tuple[str, ...], destination: str, expected: set[bytes], each_direction: Route, tmp_path: Path
) -> None:
    """D11: each row of the table holds, on the second run as on the first."""
    build(tmp_path / "from", FILES)
    build(tmp_path / "to", {b"there/": 0})
    for _ in range(2):
        outcome = each_direction.copy(
            *(f"{tmp_path}/from/{name}" for name in sources), to=f"{tmp_path}/to/{destination}"
        )
        assert outcome.exit_code == 0, outcome.stderr
        assert {name for name, node in snapshot(tmp_path / "to").items() if node.kind == "file"} == expected


def test_the_login_directory_is_the_start_of_relative_names(sshd: Sshd, tmp_path: Path) -> None:
    """`host:` and `host:.` are the login directory; a file up to it lies in the account's home."""
    name = f"fastcopy-test-{tmp_path.name}"
    (tmp_path / name).write_bytes(b"home")
    arrived = Path(pwd.getpwuid(os.geteuid()).pw_dir) / name
    for destination in ("t:", "t:.", "t:~", f"t:{name}", f"t:~/{name}"):
        try:
            outcome = copy(tmp_path / name, destination, config=sshd.client_config)
            assert (outcome.exit_code, arrived.read_bytes()) == (0, b"home"), outcome.stderr
        finally:
            arrived.unlink(missing_ok=True)


@pytest.mark.parametrize("shape", ["./a:b", "{here}/a:b", "./2024-01-01T10:00:00.dmp", "./host:"])
def test_a_colon_behind_a_slash_is_local(shape: str, sshd: Sshd, tmp_path: Path) -> None:
    """D07: a slash before the first colon means a local name."""
    name = shape.format(here=tmp_path)
    base = name.rpartition("/")[2]
    (tmp_path / base).write_bytes(b"colon")
    outcome = copy(name, remote(f"{tmp_path}/to/"), config=sshd.client_config, cwd=tmp_path)
    assert (outcome.exit_code, (tmp_path / "to" / base).read_bytes()) == (0, b"colon"), outcome.stderr


def test_a_colon_without_a_slash_gets_a_hint(sshd: Sshd, tmp_path: Path) -> None:
    """D07: a local file named like host:path is read as remote, and the message tells how to name it."""
    (tmp_path / "2024-01-01T10:00:00.dmp").write_bytes(b"x")
    outcome = copy("2024-01-01T10:00:00.dmp", tmp_path / "to", config=sshd.client_config, cwd=tmp_path)
    assert (outcome.exit_code, "./2024-01-01T10:00:00.dmp" in outcome.said) == (3, True), outcome.stderr


@pytest.mark.parametrize("url", ["sftp://127.0.0.1:{port}{path}", "ssh://t{path}"])
def test_a_url_is_a_place(url: str, sshd: Sshd, tmp_path: Path) -> None:
    """URLs name host, port and an absolute path, percent signs decoded."""
    config = sshd.write_client_config(tmp_path / "config", Host=None)
    config.write_text(config.read_text().replace("Host t", "Host t 127.0.0.1"))
    (tmp_path / "source").write_bytes(b"url")
    destination = url.format(port=sshd.port, path=f"{tmp_path}/two%20words")
    outcome = copy(tmp_path / "source", destination, config=config)
    assert (outcome.exit_code, (tmp_path / "two words").read_bytes()) == (0, b"url"), outcome.stderr


def test_two_sources_of_one_name_are_refused_first(each_direction: Route, tmp_path: Path) -> None:
    """Two sources that would land on one name are an error before any byte moves."""
    build(tmp_path / "from", {b"a/same": 10, b"b/same": 11, b"c/other": 1})
    sources = [f"{tmp_path}/from/{name}" for name in ("a/same", "b/same", "c/other")]
    outcome = each_direction.copy(*sources, to=tmp_path / "to")
    assert (outcome.exit_code, (tmp_path / "to").exists()) == (2, False), outcome.stderr
    assert "same" in outcome.said


def test_two_contents_of_one_name_are_refused_first(each_direction: Route, tmp_path: Path) -> None:
    """The same when the names meet because the contents of two directories do."""
    build(tmp_path / "from", {b"a/same": 10, b"b/same": 11})
    outcome = each_direction.copy(f"{tmp_path}/from/a/", f"{tmp_path}/from/b/", to=tmp_path / "to")
    assert (outcome.exit_code, list((tmp_path / "to").glob("*"))) == (2, []), outcome.stderr


def test_a_file_where_a_directory_is_needed(each_direction: Route, tmp_path: Path) -> None:
    """A destination that is a file refuses a directory, and stays what it was."""
    build(tmp_path / "from", {b"dir/f": 10})
    (tmp_path / "to").write_bytes(b"mine")
    outcome = each_direction.copy(tmp_path / "from" / "dir", to=tmp_path / "to")
    assert (outcome.exit_code, (tmp_path / "to").read_bytes()) == (4, b"mine"), outcome.stderr


def test_a_directory_where_a_file_should_go(each_direction: Route, tmp_path: Path) -> None:
    """D19: a directory in a file's way fails that file by name, and the others arrive."""
    build(tmp_path / "from", {b"clash": 10, b"fine": 11})
    build(tmp_path / "to", {b"clash/inside": 5})
    outcome = each_direction.copy(f"{tmp_path}/from/", to=tmp_path / "to")
    kinds = [failure["kind"] for failure in outcome.report["failures"]]
    assert (outcome.exit_code, kinds) == (4, ["TargetIsDirectory"]), outcome.stderr
    assert sorted(snapshot(tmp_path / "to")) == [b"clash", b"clash/inside", b"fine"]


def test_a_file_in_the_way_of_a_folder_of_the_tree(each_direction: Route, tmp_path: Path) -> None:
    """A file where the tree has a directory fails what lies below it, is kept, and the others arrive."""
    build(tmp_path / "from", {b"clash/inside": 10, b"fine": 11})
    build(tmp_path / "to", {b"clash": b"mine"})
    outcome = each_direction.copy(f"{tmp_path}/from/", to=tmp_path / "to")
    assert (outcome.exit_code, (tmp_path / "to" / "clash").read_bytes()) == (4, b"mine"), outcome.stderr
    assert sorted(snapshot(tmp_path / "to")) == [b"clash", b"fine"]


def test_an_ipv6_address_in_brackets(sshd: Sshd, tmp_path: Path) -> None:
    """D09: `[::1]:path` is read as scp reads it: nobody listens there, which is what the message says."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        outcome = copy("-P", str(probe.getsockname()[1]), tmp_path, "[::1]:x", config=sshd.client_config)
    assert (outcome.exit_code, "::1" in outcome.said) == (3, True), outcome.stderr
