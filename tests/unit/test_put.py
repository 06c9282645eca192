"""Putting small files side by side on one channel: one file's trouble must never touch another's handle or name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from fastcopy.engine.put import Put
from fastcopy.model import Attributes, Entry
from fastcopy.sftp.client import SftpClient
from fastcopy.sftp.operation import StatusError
from tests.support.sftp_channels import in_memory
from tests.support.sftp_server import CLOSE, FAILURE, FSETSTAT, FSTAT, OPEN, PERMISSION_DENIED, WRITE, Reader, Server

if TYPE_CHECKING:
    from pathlib import Path


class ReusesHandles(Server):
    """Gives the smallest free number as handle, as OpenSSH does; refuses one kind of request for names with `wrong`."""

    kind: ClassVar[int] = WRITE

    def __init__(self) -> None:
        super().__init__()
        self.unknown_closes = 0

    def handle(self, path: bytes) -> bytes:
        number = next(n for n in range(1000) if b"%d" % n not in self.files)
        handle = b"%d" % number
        self.paths[handle] = path
        return handle

    def replies_to(self, packet: bytes) -> list[bytes]:
        kind, subject = packet[0], Reader(packet[5:]).string() if packet[0] >= OPEN else b""
        if kind == CLOSE and subject not in self.files:
            self.unknown_closes += 1
        if kind == self.kind and b"wrong" in (subject if kind == OPEN else self.paths.get(subject, b"")):
            if kind == CLOSE:
                super().replies_to(packet)
            refusal = self.status(FAILURE)
            return [refusal[:1] + packet[1:5] + refusal[1:]]
        return super().replies_to(packet)


@pytest.mark.parametrize(
    ("kind", "size"),
    [(FSTAT, 50_000), *((kind, size) for kind in (OPEN, WRITE, FSETSTAT, CLOSE) for size in (0, 700, 50_000))],
)
async def test_a_refused_file_closes_no_other_files_handle(tmp_path: Path, kind: int, size: int) -> None:
    """A file whose OPEN, WRITE, FSETSTAT, FSTAT or CLOSE is refused fails alone: each handle is closed just once."""
    names = [b"wrong%d" % index if index % 3 == 0 else b"good%d" % index for index in range(60)]
    here = os.fsencode(tmp_path)
    entries = []
    for index, name in enumerate(names):
        (tmp_path / os.fsdecode(name)).write_bytes(bytes([index]) * size)
        attributes = Attributes(size=size, mode=0o100644)
        entries.append(Entry(source=here + b"/" + name, target=here + b"/to/" + name, attributes=attributes))
    (tmp_path / "to").mkdir()
    server = ReusesHandles()
    server.kind = kind  # type: ignore[misc]  # each case refuses another kind
    with in_memory(server) as serving:
        client = await SftpClient.open(serving.transport, host="srv002", queue_depth=16)
        mover = Put(follow=False)
        outcomes = await client.run_all(mover.whole(client, entry) for entry in entries)
        await client.close()
    refused = {name for name, outcome in zip(names, outcomes, strict=True) if isinstance(outcome, StatusError)}
    expected = {name for name in names if b"wrong" in name} if size or kind != WRITE else set()
    assert refused == expected
    assert server.unknown_closes == 0
    assert sorted(os.listdir(here + b"/to")) == sorted(set(names) - refused)
    for index, name in enumerate(names):
        if name not in refused:
            assert (tmp_path / "to" / os.fsdecode(name)).read_bytes() == bytes([index]) * size


async def test_a_part_that_was_there_before_is_left_alone(tmp_path: Path) -> None:
    """When the part's name is taken, which random names make all but impossible, it is not ours to remove."""

    class Collides(Server):
        removed: ClassVar[list[bytes]] = []

        def open(self, fields: Any) -> bytes:
            return self.status(FAILURE)

        def remove(self, fields: Any) -> bytes:
            self.removed.append(fields.string())
            return self.status(0)

    (tmp_path / "a").write_bytes(b"x")
    here = os.fsencode(tmp_path)
    entry = Entry(source=here + b"/a", target=here + b"/b", attributes=Attributes(size=1, mode=0o100644))
    with in_memory(Collides()) as serving:
        client = await SftpClient.open(serving.transport, host="srv002")
        (outcome,) = await client.run_all([Put(follow=False).whole(client, entry)])
        await client.close()
    assert isinstance(outcome, StatusError)
    assert Collides.removed == []


async def test_small_files_hold_no_descriptor_while_they_wait(tmp_path: Path) -> None:
    """However many small files are under way at once, none of their sources is open while the server is asked."""

    class Counts(Server):
        """Notes how many descriptors of this process are not its own files, whenever it is asked to open one."""

        def __init__(self) -> None:
            super().__init__()
            self.most = 0

        def open(self, fields: Reader) -> bytes:
            self.most = max(self.most, len(os.listdir("/dev/fd")) - len(self.files))
            return super().open(fields)

    here = os.fsencode(tmp_path)
    entries = []
    for index in range(60):
        (tmp_path / str(index)).write_bytes(b"x" * index)
        name = b"/%d" % index
        attributes = Attributes(size=index, mode=0o100644)
        entries.append(Entry(source=here + name, target=here + b"/to" + name, attributes=attributes))
    (tmp_path / "to").mkdir()
    server = Counts()
    with in_memory(server) as serving:
        client = await SftpClient.open(serving.transport, host="srv002")
        before = len(os.listdir("/dev/fd"))
        outcomes = await client.run_all(Put(follow=False).whole(client, entry) for entry in entries)
        await client.close()
    assert outcomes == list(range(60))
    assert server.most <= before + 1  # the one that is being opened right now


class NoPosixRename(Server):
    """Cannot replace by renaming. The n-th RENAME is refused with `code` for a reason of the server's own."""

    extensions: ClassVar[dict[bytes, bytes]] = {}
    refuses: ClassVar[int] = 0
    code: ClassVar[int] = FAILURE

    def __init__(self) -> None:
        super().__init__()
        self.renames = 0

    def rename(self, fields: Reader) -> bytes:
        self.renames += 1
        return self.status(self.code) if self.renames == self.refuses else super().rename(fields)


@pytest.mark.parametrize(
    ("refuses", "code", "content"),
    [
        (0, FAILURE, b"new"),
        (1, PERMISSION_DENIED, b"new"),  # refused once only: moved aside and put in place all the same
        (2, FAILURE, b"old"),
        (3, PERMISSION_DENIED, b"old"),
    ],
)
async def test_without_posix_rename_what_stood_there_is_not_lost(
    tmp_path: Path, refuses: int, code: int, content: bytes
) -> None:
    """Whichever rename is refused, the name holds the new file or the old one again, and nothing else is left."""

    class Refuses(NoPosixRename):
        pass

    Refuses.refuses, Refuses.code = refuses, code
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "a").write_bytes(b"old")
    here = os.fsencode(tmp_path)
    entry = Entry(source=here + b"/a", target=here + b"/to/a", attributes=Attributes(size=3, mode=0o100644))
    mover = Put(follow=False)
    with in_memory(Refuses()) as serving:
        client = await SftpClient.open(serving.transport, host="srv002")
        (outcome,) = await client.run_all([mover.whole(client, entry)])
        await client.close()
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "to").iterdir()] == [("a", content)]
    assert isinstance(outcome, StatusError) == (content == b"old")
    assert ["cannot replace a file in one step" in warning for warning in mover.warnings] == [True]


@pytest.mark.parametrize("stands", ["nothing", "a folder"])
async def test_a_rename_that_is_refused_moves_nothing_aside(tmp_path: Path, stands: str) -> None:
    """Where no file stands in the way a refused rename is the file's failure, and a folder stays where it is."""

    class Refuses(NoPosixRename):
        refuses = 1
        code = PERMISSION_DENIED

    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "to").mkdir()
    if stands == "a folder":
        (tmp_path / "to" / "a").mkdir()
    here = os.fsencode(tmp_path)
    entry = Entry(source=here + b"/a", target=here + b"/to/a", attributes=Attributes(size=3, mode=0o100644))
    with in_memory(Refuses()) as serving:
        client = await SftpClient.open(serving.transport, host="srv002")
        (outcome,) = await client.run_all([Put(follow=False).whole(client, entry)])
        await client.close()
    assert isinstance(outcome, StatusError)
    assert outcome.code == PERMISSION_DENIED
    assert os.listdir(here + b"/to") == ([b"a"] if stands == "a folder" else [])
