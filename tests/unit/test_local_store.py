"""The local side of a copy: what is written beneath a root, and that nothing ever is outside it or half done."""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from fastcopy.errors import (
    FastcopyError,
    LocalError,
    NameRefused,
    NoSpace,
    PermissionRefused,
    SourceMissing,
    TargetIsDirectory,
    TargetMissing,
    TargetNotDirectory,
    UnsafeName,
)
from fastcopy.model import FileKind
from fastcopy.plan.names import part_name
from fastcopy.store.directories import KEPT_DIRECTORIES, Directories, HeldDirectory
from fastcopy.store.local import LocalStore, current_umask
from fastcopy.store.trouble import local_error
from tests.support.unprivileged import unprivileged_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = b"abcd1234"
OTHER_TOKEN = b"efgh5678"
#: Names that are legal and awkward: each must be kept byte for byte.
ODD_NAMES = [
    b"\xff\xfe not UTF-8",
    b"back\\slash",
    b"new\nline",
    b"-rf",
    b" ",
    b"...",
    b"~",
    b"*",
    b"\x1b[31m",
    "\u202egnp.exe".encode(),
    b"n" * 255,
    ("\u00e9" * 127).encode(),
]


@pytest.fixture
def root(tmp_path: Path) -> bytes:
    path = tmp_path / "root"
    path.mkdir()
    return os.fsencode(path)


@pytest.fixture
def store(root: bytes) -> Iterator[LocalStore]:
    with LocalStore.open(root) as opened:
        yield opened


def put(store: LocalStore, relative: bytes, data: bytes, *, mode: int = 0o640, mtime_ns: int = 0) -> bool:
    part = store.create_part(relative, TOKEN)
    os.write(part.fd, data)
    return part.commit(mode, mtime_ns=mtime_ns)


def content(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


# --- the root --------------------------------------------------------------------------------------------------


def test_root_is_made_only_when_asked(root: bytes) -> None:
    """A missing root is TargetMissing, or made with `create`, but not what it lies in."""
    new = root + b"/new"
    with pytest.raises(TargetMissing):
        LocalStore.open(new)
    LocalStore.open(new, create=True).close()
    assert os.path.isdir(new)
    LocalStore.open(new, create=True).close()
    with pytest.raises(TargetMissing):
        LocalStore.open(root + b"/a/b", create=True)


def test_root_that_is_a_file(root: bytes) -> None:
    """A file where the root should be is told as such."""
    with open(root + b"/file", "wb"):
        pass
    with pytest.raises(TargetNotDirectory):
        LocalStore.open(root + b"/file", create=True)


def test_root_may_be_a_symlink(root: bytes) -> None:
    """The user names the root, so a symlink there is followed."""
    os.symlink(root, root + b"-link")
    with LocalStore.open(root + b"-link") as store:
        put(store, b"file", b"data")
    assert content(root + b"/file") == b"data"


def test_root_stays_the_same_when_its_name_is_moved(store: LocalStore, root: bytes) -> None:
    """What is held is the directory, not its name: a symlink planted there later leads nowhere."""
    os.rename(root, root + b"-moved")
    os.mkdir(root + b"-elsewhere")
    os.symlink(root + b"-elsewhere", root)
    put(store, b"file", b"data")
    assert os.listdir(root + b"-elsewhere") == []
    assert content(root + b"-moved/file") == b"data"


def test_free_bytes(store: LocalStore, root: bytes) -> None:
    """Free space is what statvfs says this user may use."""
    status = os.statvfs(root)
    assert 0 < store.free_bytes() <= status.f_blocks * status.f_frsize


# --- files -----------------------------------------------------------------------------------------------------


def test_file_is_seen_only_when_whole(store: LocalStore, root: bytes) -> None:
    """Until commit there is only the part, its owner's alone; after it only the file, with mode and times."""
    part = store.create_part(b"file", TOKEN)
    os.write(part.fd, b"data")
    assert os.listdir(root) == [part_name(b"file", TOKEN)]
    assert stat.S_IMODE(os.fstat(part.fd).st_mode) == 0o600
    assert part.commit(0o4755, mtime_ns=1_700_000_000_123_456_789, atime_ns=5_000_000_000) is True
    assert os.listdir(root) == [b"file"]
    status = os.stat(root + b"/file")
    assert stat.S_IMODE(status.st_mode) == 0o4755
    assert status.st_mtime_ns == 1_700_000_000_123_456_789
    assert status.st_atime_ns == 5_000_000_000
    assert content(root + b"/file") == b"data"
    assert part.fd == -1


def test_commit_without_mode_and_times(store: LocalStore, root: bytes) -> None:
    """A file committed with nothing given stays its owner's alone."""
    store.create_part(b"file", TOKEN).commit()
    assert stat.S_IMODE(os.stat(root + b"/file").st_mode) == 0o600


def test_discard_leaves_nothing(store: LocalStore, root: bytes) -> None:
    """A discarded part is gone; again, or after commit, discard does nothing; the old file stays."""
    put(store, b"file", b"old")
    part = store.create_part(b"file", TOKEN)
    os.write(part.fd, b"new")
    part.discard()
    part.discard()
    assert os.listdir(root) == [b"file"]
    assert content(root + b"/file") == b"old"
    committed = store.create_part(b"file", TOKEN)
    committed.commit()
    later = store.create_part(b"file", TOKEN)
    for ended in (part, committed):
        ended.discard()
    assert sorted(os.listdir(root)) == [later.name, b"file"]
    later.discard()


def test_discard_when_the_directory_is_gone(store: LocalStore, root: bytes) -> None:
    """A part that somebody removed, or whose directory went away, is discarded without an error."""
    store.make_directory(b"dir")
    part = store.create_part(b"dir/file", TOKEN)
    os.unlink(root + b"/dir/" + part.name)
    os.rmdir(root + b"/dir")
    part.discard()
    assert os.listdir(root) == []
    store.make_directory(b"dir")
    part = store.create_part(b"dir/file", TOKEN)
    os.unlink(root + b"/dir/" + part.name)
    os.rmdir(root + b"/dir")
    for number in range(KEPT_DIRECTORIES):  # so that it is opened anew
        store.make_directory(b"%d" % number)
        store.lstat(b"%d/file" % number)
    part.discard()


def test_existing_file_is_replaced(store: LocalStore, root: bytes) -> None:
    """A longer and read-only file under the final name is replaced as a whole; its other hard link keeps the old."""
    with open(root + b"/file", "wb") as file:
        file.write(b"a much longer old content")
    os.chmod(root + b"/file", 0o444)
    os.link(root + b"/file", root + b"/other")
    put(store, b"file", b"new")
    assert content(root + b"/file") == b"new"
    assert content(root + b"/other") == b"a much longer old content"


def test_symlink_at_the_target_is_replaced(store: LocalStore, root: bytes) -> None:
    """A symlink under the final name is replaced; what it points to is not touched."""
    with open(root + b"-outside", "wb") as file:
        file.write(b"precious")
    os.symlink(root + b"-outside", root + b"/file")
    put(store, b"file", b"new")
    assert content(root + b"-outside") == b"precious"
    assert not os.path.islink(root + b"/file")
    assert content(root + b"/file") == b"new"


def test_symlink_at_the_part_is_not_followed(store: LocalStore, root: bytes) -> None:
    """A part is only ever created: a symlink, or an old part, of its very name is an error and stays as it is."""
    os.symlink(root + b"-outside", root + b"/" + part_name(b"file", TOKEN))
    with pytest.raises(LocalError):
        store.create_part(b"file", TOKEN)
    assert not os.path.exists(root + b"-outside")
    part = store.create_part(b"file", OTHER_TOKEN)
    with pytest.raises(LocalError):
        store.create_part(b"file", OTHER_TOKEN)
    part.discard()


def test_directory_in_the_way_of_a_file(store: LocalStore, root: bytes) -> None:
    """A directory under the final name, empty or not, is TargetIsDirectory; the part can be discarded then."""
    store.make_directory(b"name")
    part = store.create_part(b"name", TOKEN)
    with pytest.raises(TargetIsDirectory) as caught:
        part.commit(0o644)
    assert caught.value.path == root + b"/name"
    part.discard()
    assert os.listdir(root) == [b"name"]


@pytest.mark.parametrize("make", ["file", "link"])
def test_no_directory_where_one_is_needed(store: LocalStore, root: bytes, make: str) -> None:
    """A file, or a symlink to a directory, in the path is refused by every call, and nothing appears behind it."""
    os.mkdir(root + b"-outside")
    if make == "file":
        put(store, b"way", b"")
    else:
        os.symlink(root + b"-outside", root + b"/way")
    with pytest.raises(TargetNotDirectory) as caught:
        store.create_part(b"way/file", TOKEN)
    assert caught.value.path == root + b"/way"
    with pytest.raises(TargetNotDirectory):
        store.make_directory(b"way/deeper")
    with pytest.raises(TargetNotDirectory):
        store.make_directory(b"way")
    with pytest.raises(TargetNotDirectory):
        store.symlink(b"way/link", b"text", TOKEN)
    with pytest.raises(TargetNotDirectory):
        store.set_directory(b"way", mode=0o777)
    with pytest.raises(TargetNotDirectory):
        store.lstat(b"way/file")
    assert os.listdir(root + b"-outside") == []


def test_directory_swapped_for_a_symlink_before_commit(store: LocalStore, root: bytes) -> None:
    """When the directory becomes a symlink between creating and committing, nothing lands behind the symlink."""
    os.mkdir(root + b"-outside")
    store.make_directory(b"dir")
    part = store.create_part(b"dir/file", TOKEN)
    os.rename(root + b"/dir", root + b"/gone")
    os.symlink(root + b"-outside", root + b"/dir")
    part.commit(0o644)  # into the directory that is still held open
    assert os.listdir(root + b"-outside") == []
    assert os.listdir(root + b"/gone") == [b"file"]


@pytest.mark.parametrize(
    "relative",
    [
        b"..",
        b".",
        b"../x",
        b"/x",
        b"a/../x",
        b"a/./x",
        b"/etc/x",
        b"a//x",
        b"a/",
        b"/",
        b"//x",
        b"nul\0",
        b"n" * 256,
        b"a/..",
    ],
)
def test_unsafe_names_are_refused(store: LocalStore, root: bytes, relative: bytes) -> None:
    """A path with a component that is no plain name is refused by every call before the system sees it."""
    os.mkdir(root + b"/a")
    with pytest.raises(UnsafeName):
        store.create_part(relative, TOKEN)
    with pytest.raises(UnsafeName):
        store.make_directory(relative)
    with pytest.raises(UnsafeName):
        store.lstat(relative)
    with pytest.raises(UnsafeName):
        store.symlink(relative, b"text", TOKEN)
    with pytest.raises(UnsafeName):
        store.set_directory(relative, mode=0o700)
    assert os.listdir(root) == [b"a"]
    assert os.listdir(root + b"/a") == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_kept(store: LocalStore, root: bytes, name: bytes) -> None:
    """Legal names are kept byte for byte, as file, as directory, and as a symlink's name and text."""
    assert store.make_directory(name) is True
    put(store, name + b"/" + name, b"data")
    store.symlink(name + b"/link", name, TOKEN)
    assert os.listdir(root) == [name]
    assert sorted(os.listdir(root + b"/" + name)) == sorted([name, b"link"])
    assert store.readlink(name + b"/link") == name


def test_full_disk_is_no_space(store: LocalStore) -> None:
    """ENOSPC of a real device, mapped by the engine's pumps, names the file and the side."""
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError, match="No space") as caught:
        full.write(b"x")
    error = local_error(caught.value, b"/u01/dump", "write")
    assert type(error) is NoSpace
    assert str(error) == "/u01/dump: no space left on the local side (No space left on device)"


def test_failed_commit_leaves_the_old_file(store: LocalStore, root: bytes) -> None:
    """When the bytes cannot be closed safely the old file stays under its name, and the part can be discarded."""
    put(store, b"file", b"old")
    part = store.create_part(b"file", TOKEN)
    os.close(part.fd)  # stands for a close that reports an error
    with pytest.raises(LocalError):
        part.commit()
    assert content(root + b"/file") == b"old"
    part.discard()
    assert os.listdir(root) == [b"file"]


def test_unwritable_directory_is_permission_refused(store: LocalStore, root: bytes) -> None:
    """A directory without write permission refuses parts, and says so."""
    os.chmod(root, 0o555)
    with unprivileged_in(root), pytest.raises(PermissionRefused) as caught:
        store.create_part(b"file", TOKEN)
    os.chmod(root, 0o755)
    assert str(caught.value).endswith("/file: permission denied (create on the local side)")


def test_missing_directory(store: LocalStore) -> None:
    """Writing into a directory that is not there is TargetMissing; asking for what is in it is None."""
    with pytest.raises(TargetMissing):
        store.create_part(b"no/file", TOKEN)
    with pytest.raises(TargetMissing):
        store.make_directory(b"no/deeper")
    assert store.lstat(b"no/file") is None
    assert store.readlink(b"no/link") is None


# --- attributes, symlinks, directories -------------------------------------------------------------------------


def test_lstat_tells_of_the_name_itself(store: LocalStore, root: bytes) -> None:
    """Attributes are of a symlink itself, hold whole and exact mtime, and are None for nothing; b"" is the root."""
    put(store, b"file", b"12345", mode=0o604, mtime_ns=-1)
    os.symlink(b"file", root + b"/link")
    found = store.lstat(b"file")
    assert found is not None
    assert (found.kind, found.size, found.permissions) == (FileKind.FILE, 5, 0o604)
    assert (found.mtime_s, found.mtime_ns, found.inode) == (-1, -1, os.stat(root + b"/file").st_ino)
    link = store.lstat(b"link")
    assert link is not None
    assert link.kind is FileKind.SYMLINK
    assert store.lstat(b"nothing") is None
    top = store.lstat(b"")
    assert top is not None
    assert (top.kind, top.inode) == (FileKind.DIRECTORY, os.stat(root).st_ino)


def test_symlink_replaces_what_is_there(store: LocalStore, root: bytes) -> None:
    """A symlink takes the place of a file or another symlink at once; over a directory it is TargetIsDirectory."""
    put(store, b"name", b"old")
    for text in (b"first", b"../../etc/passwd"):
        store.symlink(b"name", text, TOKEN)
        assert store.readlink(b"name") == text
    assert store.readlink(b"nothing") is None
    put(store, b"file", b"")
    assert store.readlink(b"file") is None
    store.make_directory(b"dir")
    with pytest.raises(TargetIsDirectory):
        store.symlink(b"dir", b"text", TOKEN)
    assert sorted(os.listdir(root)) == [b"dir", b"file", b"name"]


def test_make_directory_tells_whether_it_was_there(store: LocalStore, root: bytes) -> None:
    """A new directory can be filled by its owner whatever its mode; an existing one is left as it is."""
    assert store.make_directory(b"dir", 0o7555) is True
    assert stat.S_IMODE(os.stat(root + b"/dir").st_mode) == (0o755 & ~current_umask()) | 0o700
    os.chmod(root + b"/dir", 0o711)
    assert store.make_directory(b"dir", 0o777) is False
    assert stat.S_IMODE(os.stat(root + b"/dir").st_mode) == 0o711


def test_set_directory(store: LocalStore, root: bytes) -> None:
    """A directory gets its final mode and time, the root included."""
    store.make_directory(b"dir")
    assert store.set_directory(b"dir", mode=0o555, mtime_ns=7_000_000_001) is True
    status = os.stat(root + b"/dir")
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (0o555, 7_000_000_001)
    store.set_directory(b"", mtime_ns=9)
    assert os.stat(root).st_mtime_ns == 9


def test_depth_has_no_limit(store: LocalStore, root: bytes) -> None:
    """A tree far deeper than a path may be long is made, filled and asked for, with few descriptors open."""
    before = open_descriptors()
    deep = b"/".join([b"a-name-of-some-length"] * 300)
    assert len(deep) > 4096
    for level in range(300):
        store.make_directory(b"/".join(deep.split(b"/")[: level + 1]))
    put(store, deep + b"/file", b"data")
    found = store.lstat(deep + b"/file")
    assert found is not None
    assert found.size == 4
    assert open_descriptors() - before <= KEPT_DIRECTORIES


# --- descriptors and threads -----------------------------------------------------------------------------------


def test_no_descriptor_is_left_open(root: bytes) -> None:
    """A store that wrote into many directories, with failures among them, leaves no descriptor open."""
    os.makedirs(root + b"/a/b/c/d")
    before = open_descriptors()
    with LocalStore.open(root) as store:
        put(store, b"a/b/c/d/file", b"")
        assert open_descriptors() - before == 2  # the root's and the one of d
        for number in range(KEPT_DIRECTORIES + 20):
            store.make_directory(b"%d" % number)
            put(store, b"%d/file" % number, b"")
            with pytest.raises(FastcopyError):
                store.create_part(b"%d/file/deeper" % number, TOKEN)
            store.create_part(b"%d/file" % number, TOKEN).discard()
        assert open_descriptors() - before <= KEPT_DIRECTORIES + 1
    store.close()
    assert open_descriptors() == before


def test_directory_in_use_is_not_closed(root: bytes) -> None:
    """A descriptor that is held outlives its eviction and the store's end, and is closed when it is let go of."""
    before = open_descriptors()
    for number in range(3):
        os.mkdir(root + b"/%d" % number)
    directories = Directories(root, os.open(root, os.O_RDONLY), limit=1)
    held = directories.hold(b"0")
    with held as fd:
        for number in (1, 2):
            with directories.hold(b"%d" % number):
                pass
        assert os.path.samestat(os.fstat(fd), os.stat(root + b"/0"))
        with directories.hold(b"0") as again:
            assert os.path.samestat(os.fstat(again), os.stat(root + b"/0"))
        directories.close()
        assert os.path.samestat(os.fstat(fd), os.stat(root + b"/0"))
    assert open_descriptors() == before
    with pytest.raises(ValueError, match="closed"):
        directories.hold(b"1")


def test_directory_opened_by_two_threads_at_once(root: bytes) -> None:
    """When another thread was faster to open a directory, its descriptor is used and ours is closed."""
    os.mkdir(root + b"/dir")
    before = open_descriptors()
    directories = Directories(root, os.open(root, os.O_RDONLY))
    with directories.hold(b"dir") as first:
        slower = HeldDirectory(directories, b"dir", os.open(root + b"/dir", os.O_RDONLY))
        with directories._keep(slower) as second:
            assert second == first
            assert open_descriptors() - before == 2
    directories.close()
    assert open_descriptors() == before


def test_many_threads_use_one_store(store: LocalStore, root: bytes) -> None:
    """Eight threads that write into more directories than stay open get every file right."""
    count = KEPT_DIRECTORIES * 2
    for number in range(count):
        store.make_directory(b"%d" % number)
    errors: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(count):
                place = (number * 7 + thread * 13) % count
                put(store, b"%d/%d" % (place, thread), b"%d %d" % (place, thread))
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    for place in range(count):
        found = {name: content(root + b"/%d/%s" % (place, name)) for name in os.listdir(root + b"/%d" % place)}
        assert found == {b"%d" % thread: b"%d %d" % (place, thread) for thread in range(8)}


def test_out_of_descriptors_is_told(store: LocalStore, root: bytes) -> None:
    """With no descriptor left creating fails as LocalError, nothing is left behind, and later it works again."""
    os.makedirs(root + b"/a/b/c")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
    filler: list[int] = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            take_all(filler)
        with pytest.raises(LocalError):
            store.create_part(b"a/b/c/file", TOKEN)
    finally:
        for fd in filler:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    put(store, b"a/b/c/file", b"data")
    assert os.listdir(root + b"/a/b/c") == [b"file"]


def take_all(filler: list[int]) -> None:
    while True:
        filler.append(os.dup(0))


# --- errors and umask ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "of_target", "of_source"),
    [
        (errno.EACCES, PermissionRefused, PermissionRefused),
        (errno.EPERM, PermissionRefused, PermissionRefused),
        (errno.ENOSPC, NoSpace, NoSpace),
        (errno.EDQUOT, NoSpace, NoSpace),
        (errno.EISDIR, TargetIsDirectory, LocalError),
        (errno.ENOTDIR, TargetNotDirectory, SourceMissing),
        (errno.ELOOP, TargetNotDirectory, LocalError),
        (errno.ENOENT, TargetMissing, SourceMissing),
        (errno.ENAMETOOLONG, NameRefused, NameRefused),
        (errno.EIO, LocalError, LocalError),
        (errno.EROFS, LocalError, LocalError),
    ],
)
def test_error_map(number: int, of_target: type[FastcopyError], of_source: type[FastcopyError]) -> None:
    """Each errno has its class on either side, with the path and a sentence."""
    exc = OSError(number, os.strerror(number))
    written = local_error(exc, b"/p", "write")
    read = local_error(exc, b"/p", "read", of_source=True)
    assert (type(written), type(read)) == (of_target, of_source)
    assert written.path == read.path == b"/p"
    assert str(written).startswith("/p: ")


def test_error_without_errno_is_told() -> None:
    """An OSError that carries only text becomes a LocalError with that text."""
    assert str(local_error(OSError("odd"), b"/p", "read")) == "/p: read failed here: odd"


def test_umask_is_read_not_changed() -> None:
    """The umask we tell is the process's, and asking leaves it as it was."""
    current_umask.cache_clear()
    before = os.umask(0o027)
    try:
        assert current_umask() == 0o027
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
        current_umask.cache_clear()
