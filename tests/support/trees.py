"""Trees of odd files: built from a seed, and snapshots of them that compare with `==`.

Imports nothing of fastcopy: a tree is judged by what the file system says alone. Paths are bytes, relative to the root.
Invariant: two equal snapshots mean equal names, kinds, sizes, bytes, modes, link texts and whole-second mtimes.
"""

from __future__ import annotations

import hashlib
import os
import random
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: Bytes. Source: OpenSSH's largest READ and WRITE.
REQUEST_BYTES = 261_120

#: Around a page, a small server's request, OpenSSH's request, several requests, and a few MiB.
ODD_SIZES = (
    *(0, 1, 2, 511, 512, 513),
    *(4095, 4096, 4097),
    *(32767, 32768, 32769),
    *(REQUEST_BYTES - 1, REQUEST_BYTES, REQUEST_BYTES + 1),
    *(3 * REQUEST_BYTES - 1, 3 * REQUEST_BYTES, 3 * REQUEST_BYTES + 1),
    *((4 << 20) + 7, (9 << 20) + 1),
)

#: Legal names that break programs which quote, decode, split or print them (cases D04, D06).
ODD_NAMES = (
    b"-rf",
    b"--help",
    b" lead",
    b"trail ",
    b"two  words",
    b"nl\nname",
    b"cr\rname",
    b"tab\tname",
    b"\x1b[2J",
    b"back\\slash",
    b"\\",
    b'"',
    b"'",
    b"`id`",
    b"$(id)",
    b";",
    b"&",
    b"|",
    b"*",
    b"?",
    b"[a]",
    b"{b}",
    b"%s",
    b"%2e%2e",
    b"~",
    b"~root",
    b"#",
    b"a:b",
    b"2024-01-01T10:00:00.dmp",
    b"...",
    b"..x",
    b".hidden",
    b"bad\xff\xfe",
    b"\x80",
    "größe".encode(),
    "grösse-e\u0301".encode(),
    "文件".encode(),
    "📦".encode(),
    "rtl\u202egnp".encode(),
    b"n" * 255,
    b"\xc3\xa9" * 127,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What stands under one name. Directories and links have neither size nor mtime here; links no mode."""

    kind: str
    size: int | None = None
    sha256: str | None = None
    mtime_s: int | None = None
    mode: int | None = None
    link: bytes | None = None


def snapshot(root: str | bytes | Path, *, modes: bool = True, mtimes: bool = True) -> dict[bytes, Node]:
    """Return everything below `root` by relative path; `root` itself is not in it. A file gives {b"": its node}."""
    top = os.fsencode(root)
    if not stat.S_ISDIR(os.lstat(top).st_mode):
        return {b"": _node(top, modes=modes, mtimes=mtimes)}
    nodes: dict[bytes, Node] = {}
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        with os.scandir(directory) as names:
            for name in names:
                nodes[os.path.relpath(name.path, top)] = _node(name.path, modes=modes, mtimes=mtimes)
                if name.is_dir(follow_symlinks=False):
                    waiting.append(name.path)
    return nodes


def _node(path: bytes, *, modes: bool, mtimes: bool) -> Node:
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode) if modes else None
    if stat.S_ISLNK(status.st_mode):
        return Node(kind="symlink", link=os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return Node(kind="directory", mode=mode)
    if not stat.S_ISREG(status.st_mode):
        return Node(kind="special", mode=mode)
    mtime_s = status.st_mtime_ns // 1_000_000_000 if mtimes else None
    return Node(kind="file", size=status.st_size, sha256=digest(path), mtime_s=mtime_s, mode=mode)


def digest(path: str | bytes | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build(root: Path, files: Mapping[bytes, int | bytes], *, seed: int = 1, mtime_s: int = 1_600_000_000) -> Path:
    """Make the named files below `root`, with the directories they need; return `root`.

    Args:
        files: by relative path, a number of random bytes or the content. A path ending in `/` is an empty directory.
        mtime_s: of the first file; each further one is a second older.
    """
    noise = random.Random(seed)
    root.mkdir(parents=True, exist_ok=True)
    top = os.fsencode(root)
    for age_s, (name, content) in enumerate(files.items()):
        path = os.path.join(top, name)
        if name.endswith(b"/"):
            os.makedirs(path)
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(noise.randbytes(content) if isinstance(content, int) else content)
        os.utime(path, (mtime_s - age_s, mtime_s - age_s))
    return root


def odd_tree(root: Path, *, seed: int = 1, sizes: Iterable[int] = ODD_SIZES) -> Path:
    """Make a tree of every odd size and every odd name, nested, with empty directories, links and odd modes."""
    files: dict[bytes, int | bytes] = {b"sizes/%d.dmp" % size: size for size in sizes}
    files |= {b"names/" + name: name for name in ODD_NAMES}
    files |= {b"name as folder/" + name + b"/" + name: 1000 for name in ODD_NAMES}
    files |= {b"a/b/c/d/e/deep": 5000, b"empty/": 0, b"empty 2/inside/": 0, b"bad\xff folder/f": 3}
    build(root, files, seed=seed)
    os.chmod(root / "sizes" / "513.dmp", 0o600)
    os.chmod(root / "sizes" / "4097.dmp", 0o755)
    os.chmod(root / "sizes" / "4095.dmp", 0o444)
    links = {"good": "sizes/1.dmp", "up": "../elsewhere", "dangling": "no/such", "absolute": "/etc/passwd", "dir": "a"}
    for name, text in links.items():
        os.symlink(text, root / name)
    os.symlink(b"bad\xff", os.path.join(os.fsencode(root), b"link\xfe"))
    return root


def random_tree(root: Path, *, seed: int | None = None, files: int = 40, largest_bytes: int = 2 << 20) -> Path:
    """Make a tree nobody thought of; the seed that makes it again is printed."""
    if seed is None:
        seed = random.SystemRandom().getrandbits(32)
    sys.stdout.write(f"random_tree(seed={seed}, files={files}, largest_bytes={largest_bytes})\n")
    dice = random.Random(seed)
    folders = [b""]
    chosen: dict[bytes, int | bytes] = {}
    for number in range(files):
        if dice.random() < 0.3:
            folders.append(dice.choice(folders) + b"d%d-" % number + _random_name(dice) + b"/")
        size = dice.choice(ODD_SIZES) if dice.random() < 0.5 else int(largest_bytes ** dice.random())
        chosen[dice.choice(folders) + b"f%d-" % number + _random_name(dice)] = min(size, largest_bytes)
    chosen |= {folder: 0 for folder in folders[1:] if not any(name.startswith(folder) for name in chosen)}
    return build(root, chosen, seed=seed)


def _random_name(dice: random.Random) -> bytes:
    return bytes(byte for byte in dice.randbytes(dice.randrange(12)) if byte not in b"/\0")


def sparse_file(path: Path, size: int, marks: Mapping[int, bytes]) -> Path:
    """Make a file of `size` bytes that holds `marks` at their offsets and holes elsewhere."""
    with open(path, "wb") as file:
        file.truncate(size)
        for offset, mark in marks.items():
            file.seek(offset)
            file.write(mark)
    return path


def leftovers(root: str | bytes | Path) -> list[bytes]:
    """Return the part files below `root`: names that only an unfinished copy has."""
    found: list[bytes] = []
    for directory, _, names in os.walk(os.fsencode(root)):
        found += [os.path.join(directory, name) for name in names if b".fastcopy-" in name]
    return sorted(found)
