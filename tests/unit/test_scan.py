"""Listing and opening local sources: everything is told, nothing special is opened, nothing is too deep."""

from __future__ import annotations

import os
import shutil
import socket
from typing import TYPE_CHECKING

import pytest

from fastcopy.errors import FileError, LocalError, PermissionRefused, SourceMissing
from fastcopy.model import FileKind
from fastcopy.plan.names import part_name
from fastcopy.store.scan import ScanFailed, Scanned, scan
from fastcopy.store.source import open_source, stat_source
from tests.support.unprivileged import unprivileged_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> bytes:
    path = tmp_path / "root"
    path.mkdir()
    return os.fsencode(path)


@pytest.fixture
def deep(root: bytes) -> Iterator[list[bytes]]:
    """Paths of 1,500 nested directories with a file in each, far longer than PATH_MAX at the end."""
    name = b"a-directory"
    paths = []
    fd = os.open(root, os.O_RDONLY)
    for level in range(1500):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
        os.close(os.open(b"file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        directory = b"/".join([name] * (level + 1))
        paths += [directory, directory + b"/file"]
    os.close(fd)
    yield paths
    # rmtree recurses and would not come back from here: flatten the tree step by step
    top = root + b"/" + name
    while os.path.isdir(top):
        if os.path.isdir(top + b"/" + name):
            os.rename(top + b"/" + name, root + b"/next")
        shutil.rmtree(top)
        if os.path.isdir(root + b"/next"):
            os.rename(root + b"/next", top)


def write(path: bytes, data: bytes = b"") -> None:
    with open(path, "wb") as file:
        file.write(data)


def items(root: bytes, *, follow: bool = False) -> dict[bytes, Scanned | ScanFailed]:
    return {item.path: item for window in scan(root, follow=follow) for item in window}


def kinds(root: bytes, *, follow: bool = False) -> dict[bytes, FileKind | type[Exception]]:
    return {
        path: item.attributes.kind if isinstance(item, Scanned) else type(item.error)
        for path, item in items(root, follow=follow).items()
    }


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


# --- scan ------------------------------------------------------------------------------------------------------


def test_tree_is_told_whole(root: bytes) -> None:
    """Files, directories, empty ones, symlinks with their text, and special files are all told, and of their kind."""
    os.makedirs(root + b"/a/b")
    os.mkdir(root + b"/empty")
    write(root + b"/a/b/file", b"12345")
    os.symlink(b"../no where", root + b"/a/link")
    os.symlink(b"a", root + b"/link-to-directory")
    os.mkfifo(root + b"/fifo")
    assert kinds(root) == {
        b"a": FileKind.DIRECTORY,
        b"a/b": FileKind.DIRECTORY,
        b"a/b/file": FileKind.FILE,
        b"a/link": FileKind.SYMLINK,
        b"empty": FileKind.DIRECTORY,
        b"fifo": FileKind.SPECIAL,
        b"link-to-directory": FileKind.SYMLINK,
    }
    found = items(root)
    file, link = found[b"a/b/file"], found[b"a/link"]
    assert isinstance(file, Scanned)
    assert (file.attributes.size, file.link, file.is_part) == (5, None, False)
    assert isinstance(link, Scanned)
    assert link.link == b"../no where"


def test_directory_comes_before_what_is_in_it(root: bytes) -> None:
    """In every window order, an entry's directory was told earlier."""
    for number in range(5):
        os.makedirs(root + b"/%d/x/y" % number)
        write(root + b"/%d/x/file" % number)
    told = [item.path for window in scan(root, window_entries=1) for item in window]
    for path in told:
        above = path.rpartition(b"/")[0]
        assert not above or told.index(above) < told.index(path)


def test_windows_are_bounded_and_lazy(root: bytes) -> None:
    """Windows hold at most what is asked for, together everything once; only what is asked for is read."""
    for number in range(25):
        write(root + b"/%02d" % number)
    windows = scan(root, window_entries=10)
    first = next(windows)
    assert len(first) == 10
    rest = list(windows)
    assert [len(window) for window in rest] == [10, 5]
    told = sorted(item.path for window in [first, *rest] for item in window)
    assert told == [b"%02d" % number for number in range(25)]
    assert [len(window) for window in scan(root, window_s=0.0)] == [1] * 25


def test_abandoned_scan_leaves_nothing_open(root: bytes) -> None:
    """A scan that is given up in the middle of a directory closes it."""
    before = descriptors()
    for number in range(25):
        write(root + b"/%02d" % number)
    windows = scan(root, window_entries=10)
    next(windows)
    del windows
    assert descriptors() == before


def test_names_come_as_they_are(root: bytes) -> None:
    """Bytes that are no UTF-8, newlines, backslashes and leading dashes come unchanged."""
    names = [b"\xff\xfe", b"new\nline", b"back\\slash", b"-rf", b"n" * 255, "\u202e".encode()]
    for name in names:
        write(root + b"/" + name)
    assert sorted(items(root)) == sorted(names)


def test_parts_are_marked(root: bytes) -> None:
    """An unfinished file of ours is told as such."""
    name = part_name(b"dump", b"abcd1234")
    write(root + b"/" + name)
    found = items(root)[name]
    assert isinstance(found, Scanned)
    assert found.is_part is True


def test_special_files_are_not_opened(root: bytes) -> None:
    """FIFOs and sockets are told as special, and cannot be opened as a source, even through a followed symlink."""
    os.mkfifo(root + b"/fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.getcwd()
        os.chdir(root)  # a socket's path may have 107 bytes only
        try:
            sock.bind(b"socket")
        finally:
            os.chdir(here)
        os.symlink(b"fifo", root + b"/link")
        assert kinds(root, follow=True) == {
            b"fifo": FileKind.SPECIAL,
            b"socket": FileKind.SPECIAL,
            b"link": FileKind.SPECIAL,
        }
        for name in (b"fifo", b"socket", b"link"):
            with pytest.raises(LocalError, match="not a regular file"):
                open_source(root + b"/" + name, follow=True)
        with pytest.raises(LocalError, match="not a regular file"):
            open_source(b"/dev/null")


def test_a_fifo_is_refused_unopened(root: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment is it opened, which would wake whoever waits to write into it."""
    os.mkfifo(root + b"/fifo")

    def forbidden(path: bytes, *_: object, **__: object) -> int:
        raise AssertionError(f"opened {path!r}")

    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(LocalError, match="not a regular file"):
        open_source(root + b"/fifo")


def test_a_fifo_put_in_place_of_a_file_is_refused(root: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Swapped in between the look and the opening, it is noticed then; nothing hangs, nothing stays open."""
    write(root + b"/file")
    looked = os.stat(root + b"/file")
    os.unlink(root + b"/file")
    os.mkfifo(root + b"/file")
    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda *_, **__: looked)
        with pytest.raises(LocalError, match="not a regular file"):
            open_source(root + b"/file")
    assert descriptors() == before


def test_missing_or_unsuitable_root_is_an_item(root: bytes) -> None:
    """A root that is not there, or is a file, gives one failed item with an empty path."""
    write(root + b"/file")
    assert kinds(root + b"/nothing") == {b"": SourceMissing}
    assert kinds(root + b"/file") == {b"": SourceMissing}


def test_unreadable_directory_is_an_item(root: bytes) -> None:
    """A directory without permission fails alone; the rest of the tree is told."""
    os.mkdir(root + b"/closed")
    write(root + b"/file")
    os.chmod(root + b"/closed", 0)
    with unprivileged_in(root):
        told = [item for window in scan(b".") for item in window]
    os.chmod(root + b"/closed", 0o755)
    assert sorted(item.path for item in told if isinstance(item, Scanned)) == [b"closed", b"file"]
    (failed,) = [item for item in told if isinstance(item, ScanFailed)]
    assert failed.path == b"closed"
    assert type(failed.error) is PermissionRefused
    assert str(failed.error) == "./closed: permission denied (read directory on the local side)"


def test_directory_that_vanishes_is_an_item(root: bytes) -> None:
    """A directory removed between being told and being read fails alone."""
    os.mkdir(root + b"/gone")
    windows = scan(root, window_entries=1)
    assert [item.path for item in next(windows)] == [b"gone"]
    os.rmdir(root + b"/gone")
    (last,) = [item for window in windows for item in window]
    assert isinstance(last, ScanFailed)
    assert (last.path, type(last.error)) == (b"gone", SourceMissing)


def test_following_symlinks(root: bytes) -> None:
    """With `follow`, links are told and entered as what they point to; circles and dead links fail alone."""
    os.makedirs(root + b"/a/b")
    write(root + b"/a/b/file", b"123")
    os.symlink(b"a/b/file", root + b"/link-to-file")
    os.symlink(b"a/b", root + b"/link-to-directory")
    os.symlink(b"..", root + b"/a/up")
    os.symlink(b"nowhere", root + b"/dead")
    assert kinds(root, follow=True) == {
        b"a": FileKind.DIRECTORY,
        b"a/b": FileKind.DIRECTORY,
        b"a/b/file": FileKind.FILE,
        b"a/up": LocalError,
        b"dead": SourceMissing,
        b"link-to-directory": FileKind.DIRECTORY,
        b"link-to-directory/file": FileKind.FILE,
        b"link-to-file": FileKind.FILE,
    }


def test_depth_has_no_limit(root: bytes, deep: list[bytes]) -> None:
    """1,500 nested directories, whose paths are longer than PATH_MAX, are told whole, and their files can be opened."""
    before = descriptors()
    assert sorted(items(root)) == sorted(deep)
    assert len(items(root, follow=True)) == len(deep)
    fd, attributes = open_source(os.path.join(root, deep[-1]))
    os.close(fd)
    assert attributes.kind is FileKind.FILE
    assert stat_source(os.path.join(root, deep[-2])).kind is FileKind.DIRECTORY
    assert descriptors() == before


# --- open_source -----------------------------------------------------------------------------------------------


def test_source_is_opened_with_its_attributes(root: bytes) -> None:
    """The descriptor reads the file; the attributes are the file's."""
    write(root + b"/file", b"12345")
    os.utime(root + b"/file", ns=(1_000_000_001, 2_999_999_999))
    expected = stat_source(root + b"/file")
    fd, attributes = open_source(root + b"/file")
    assert attributes == expected
    assert os.pread(fd, 10, 0) == b"12345"
    os.close(fd)
    assert (attributes.size, attributes.atime_s) == (5, 1)
    assert (attributes.mtime_s, attributes.mtime_ns) == (2, 2_999_999_999)


def test_symlink_as_source(root: bytes) -> None:
    """A symlink is opened only when asked to follow it; stat_source tells of either."""
    write(root + b"/file", b"1")
    os.symlink(b"file", root + b"/link")
    with pytest.raises(LocalError):
        open_source(root + b"/link")
    fd, attributes = open_source(root + b"/link", follow=True)
    os.close(fd)
    assert attributes.size == 1
    assert stat_source(root + b"/link").kind is FileKind.SYMLINK
    assert stat_source(root + b"/link", follow=True).kind is FileKind.FILE


@pytest.mark.parametrize("name", [b"nothing", b"nothing/deeper", b"file/deeper"])
def test_missing_source(root: bytes, name: bytes) -> None:
    """A source that is not there is SourceMissing with its path."""
    write(root + b"/file")
    for call in (open_source, stat_source):
        with pytest.raises(SourceMissing) as caught:
            call(root + b"/" + name)
        assert caught.value.path == root + b"/" + name


@pytest.mark.parametrize("name", [b"n" * 300, b"n" * 5000, b"/".join([b"n" * 300] * 20)])
def test_source_with_a_name_too_long(root: bytes, name: bytes) -> None:
    """A component that no file system holds is that file's error, in short paths and in long ones."""
    with pytest.raises(FileError):
        open_source(root + b"/" + name)
