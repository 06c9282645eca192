"""The local side of a copy towards this machine: everything written beneath one root that is held open.

Owns the root's descriptor through Directories. Imports values, names and the error map; no event loop: pumps and
worker threads call it. Invariants: nothing outside the root is touched, whatever names come and whoever plants
symlinks beneath it; nothing is seen under its final name before it is whole.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
from typing import TYPE_CHECKING, Self

from fastcopy.errors import TargetMissing, TargetNotDirectory
from fastcopy.plan.names import check_component, part_name
from fastcopy.store.directories import OPEN_DIRECTORY, Directories
from fastcopy.store.part import Part, set_mode
from fastcopy.store.source import attributes_of
from fastcopy.store.trouble import local_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastcopy.model import Attributes

_CREATE_PART = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PART_MODE = 0o600  # nobody else reads a file that is not whole
_OWNER_ALL = 0o700


class LocalStore:
    """The tree beneath one local directory, for writing. Any thread may call any method.

    Paths are relative to the root, components joined by single slashes; b"" is the root. Every method raises, besides
    what it names: UnsafeName for a component that names no single thing; TargetMissing or TargetNotDirectory when
    the directory it lies in is missing or is no directory (a symlink to one is none); PermissionRefused; NoSpace;
    NameRefused when the file system cannot keep the name; LocalError for everything else.
    """

    def __init__(self, root: bytes, root_fd: int) -> None:
        """Take over `root_fd`, an open directory whose path is `root`."""
        self.root = root
        self._root_fd = root_fd
        self._directories = Directories(root, root_fd)

    def __repr__(self) -> str:
        return f"<LocalStore {self.root!r}>"

    @classmethod
    def open(cls, root: bytes, *, create: bool = False) -> Self:
        """Open the directory `root`, which may be a symlink to one.

        Args:
            root: whole path.
            create: make it if it is missing; what it lies in must be there.
        """
        try:
            try:
                root_fd = os.open(root, OPEN_DIRECTORY)
            except FileNotFoundError:
                if not create:
                    raise
                with contextlib.suppress(FileExistsError):  # somebody else was faster
                    os.mkdir(root)
                root_fd = os.open(root, OPEN_DIRECTORY)
            return cls(root, root_fd)
        except OSError as exc:
            raise local_error(exc, root, "open directory") from exc

    def close(self) -> None:
        """Free all descriptors; every Part must have ended. Idempotent."""
        self._directories.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def lstat(self, relative: bytes) -> Attributes | None:
        """Return the attributes of `relative`, of a symlink itself; None when there is nothing."""
        try:
            with self._within(relative, "stat") as (directory_fd, name):
                return attributes_of(os.stat(name, dir_fd=directory_fd, follow_symlinks=False))
        except TargetMissing:
            return None

    def readlink(self, relative: bytes) -> bytes | None:
        """Return the text of the symlink `relative`; None when there is nothing, or something else."""
        try:
            with self._within(relative, "read link") as (directory_fd, name):
                try:
                    return os.readlink(name, dir_fd=directory_fd)
                except OSError as exc:
                    if exc.errno != errno.EINVAL:
                        raise
                    return None
        except TargetMissing:
            return None

    def make_directory(self, relative: bytes, mode: int = 0o777) -> bool:
        """Make the directory `relative`, with `mode` less the umask, but always with all rights for its owner.

        So it can be filled; `set_directory` gives it its final mode. Set-id and sticky bits are left out.

        Returns: whether it was made; False when it was there.
        Raises: TargetNotDirectory when something else is there, a symlink to a directory included.
        """
        with self._within(relative, "make directory") as (directory_fd, name):
            try:
                os.mkdir(name, mode & 0o777 | _OWNER_ALL, dir_fd=directory_fd)
            except FileExistsError as exc:
                if not stat.S_ISDIR(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode):
                    raise TargetNotDirectory(path=self._directories.whole(relative), side="local") from exc
                return False
        self._directories.forget(relative)  # one that was removed while we held it open
        return True

    def set_directory(self, relative: bytes, *, mode: int | None = None, mtime_ns: int | None = None) -> bool:
        """Give the directory `relative` its final mode and time, once nothing is put into it any more.

        Returns: False when the file system does not keep modes, else True.
        """
        mode_kept = True
        with self._directories.hold(relative) as fd:
            try:
                if mtime_ns is not None:
                    os.utime(fd, ns=(mtime_ns, mtime_ns))
                if mode is not None:
                    mode_kept = set_mode(fd, mode)
            except OSError as exc:
                raise local_error(exc, self._directories.whole(relative), "set mode and times of") from exc
        return mode_kept

    def create_part(self, relative: bytes, token: bytes) -> Part:
        """Create the unfinished file that is to become `relative`; it is empty, new, and its owner's alone.

        Args:
            relative: the final path.
            token: makes the part's name unlike any other: see part_name.

        Raises: LocalError when a file of that name and token is there.
        """
        parent, name = self._split(relative)
        part = part_name(name, token)
        with self._directories.hold(parent) as directory_fd:
            try:
                fd = os.open(part, _CREATE_PART, _PART_MODE, dir_fd=directory_fd)
            except OSError as exc:
                raise local_error(exc, self._directories.whole(relative), "create") from exc
        return Part(self._directories, parent, name, part, fd, relative_target=relative)

    def symlink(self, relative: bytes, text: bytes, token: bytes) -> None:
        """Make `relative` a symlink with `text`, at once, in place of what is there.

        Raises: TargetIsDirectory when a directory has the name.
        """
        with self._within(relative, "make symlink") as (directory_fd, name):
            part = part_name(name, token)
            os.symlink(text, part, dir_fd=directory_fd)
            try:
                os.rename(part, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
            except BaseException:
                os.unlink(part, dir_fd=directory_fd)
                raise

    def free_bytes(self) -> int:
        """Return how many bytes this user may still write to the root's file system."""
        try:
            status = os.fstatvfs(self._root_fd)
        except OSError as exc:
            raise local_error(exc, self.root, "stat file system") from exc
        return status.f_bavail * status.f_frsize

    @contextlib.contextmanager
    def _within(self, relative: bytes, operation: str) -> Iterator[tuple[int, bytes]]:
        """Yield the directory `relative` lies in and its name there (b"." for the root); map what goes wrong inside."""
        if relative:
            parent, name = self._split(relative)
        else:
            parent, name = b"", b"."
        with self._directories.hold(parent) as directory_fd:
            try:
                yield directory_fd, name
            except OSError as exc:
                raise local_error(exc, self._directories.whole(relative), operation) from exc

    def _split(self, relative: bytes) -> tuple[bytes, bytes]:
        parent, slash, name = relative.rpartition(b"/")
        check_component(name)
        if slash:
            check_component(parent.rpartition(b"/")[2])  # a leading slash would else be taken for the root
        return parent, name


@functools.cache
def current_umask() -> int:
    """Return this process's umask, read once: it is not ours to change while threads make files."""
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as status:
        found = re.search(rb"^Umask:\s*([0-7]+)", status.read(), re.MULTILINE)
        if found:
            return int(found[1], 8)
    umask = os.umask(0o077)  # elsewhere it can only be had by setting it: for a moment, to the strictest
    os.umask(umask)
    return umask
