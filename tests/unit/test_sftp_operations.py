"""What is asked about names and handles, against replies no proper server gives: every loop ends, no handle is lost.

That they do what they say is shown against OpenSSH's server in tests/integration/test_sftp_against_openssh.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fastcopy.errors import ProtocolError
from fastcopy.sftp import operations, packets
from fastcopy.sftp.multiplexer import Multiplexer
from fastcopy.sftp.operation import Conversation, StatusError
from tests.support import sftp_wire
from tests.support.sftp_wire import Sent, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastcopy.sftp.operation import Steps

    Answer = Callable[[int, int], bytes]  # the number of this READDIR, its id -> the reply


def answered(steps: Steps[Any], answer: Callable[[Sent], bytes]) -> Conversation[Any]:
    """Run `steps` to their end against a server that gives `answer` to each request in turn."""
    wire = Wire(Multiplexer(queue_depth=64, host="srv002"))
    operation = Conversation(steps)
    wire.multiplexer.submit(operation)
    while not operation.finished:
        for request in wire.all():
            wire.feed(answer(request))
    return operation


class Directory:
    """A server with one folder; `answer` says what the n-th READDIR brings. Counts what stays open."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = 0
        self.open = 0

    def __call__(self, request: Sent) -> bytes:
        if request.kind == packets.OPENDIR:
            self.open += 1
            return sftp_wire.handle(request.request_id)
        if request.kind == packets.CLOSE:
            self.open -= 1
            return sftp_wire.status(request.request_id)
        assert request.kind == packets.READDIR
        self.asked += 1
        return self.answer(self.asked, request.request_id)


def listed(answer: Answer) -> tuple[Conversation[Any], Directory]:
    directory = Directory(answer)
    return answered(operations.list_directory(b"d"), directory), directory


def test_names_come_until_the_end() -> None:
    """One name an answer, then EOF: all are there, without `.` and `..`, and the handle is closed."""
    names = [b".", b"..", *(b"%d" % index for index in range(20))]

    def answer(number: int, request_id: int) -> bytes:
        if number > len(names):
            return sftp_wire.status(request_id, sftp_wire.EOF)
        return sftp_wire.names(request_id, names[number - 1])

    operation, directory = listed(answer)
    assert [name.filename for name in operation.result or ()] == names[2:]
    assert directory.open == 0


@pytest.mark.parametrize("names", [(), (b".",), (b".", b"..")])
def test_a_listing_that_brings_no_name_ends(names: tuple[bytes, ...]) -> None:
    """A server that answers with nothing new again and again is told, the folder closed."""
    operation, directory = listed(lambda _, request_id: sftp_wire.names(request_id, *names))
    assert type(operation.error) is ProtocolError
    assert (directory.asked, directory.open) == (8, 0)


def test_behind_the_end_a_server_may_refuse() -> None:
    """Of the READDIR in flight at once those behind EOF may be refused: the listing is whole nevertheless."""

    def answer(number: int, request_id: int) -> bytes:
        if number == 1:
            return sftp_wire.names(request_id, b"a", b"b")
        return sftp_wire.status(request_id, sftp_wire.EOF if number == 2 else sftp_wire.FAILURE)

    operation, directory = listed(answer)
    assert [name.filename for name in operation.result or ()] == [b"a", b"b"]
    assert directory.open == 0


@pytest.mark.parametrize("code", [sftp_wire.FAILURE, sftp_wire.PERMISSION_DENIED])
def test_a_listing_that_is_refused_midway_fails(code: int) -> None:
    """Half a listing is never taken for a whole one, and the folder is closed."""

    def answer(number: int, request_id: int) -> bytes:
        return sftp_wire.names(request_id, b"a") if number == 1 else sftp_wire.status(request_id, code)

    operation, directory = listed(answer)
    assert isinstance(operation.error, StatusError)
    assert (operation.error.code, directory.open) == (code, 0)


def test_a_listing_answered_with_something_else_fails() -> None:
    """An answer of the wrong type is a protocol error, and the folder is closed."""
    operation, directory = listed(lambda _, request_id: sftp_wire.attributes(request_id, 5))
    assert (type(operation.error), directory.open) == (ProtocolError, 0)


@pytest.mark.parametrize("count", [0, 2])
def test_one_name_is_one_name(count: int) -> None:
    """readlink and realpath take an answer with exactly one name."""
    for steps in (operations.readlink(b"l"), operations.realpath(b".")):
        names = [b"x"] * count
        operation = answered(steps, lambda request, names=names: sftp_wire.names(request.request_id, *names))  # type: ignore[misc]  # bound early
        assert type(operation.error) is ProtocolError


WRONG_ANSWERS = {
    "open": (operations.open_handle(b"f", 1), sftp_wire.ATTRS),
    "opendir": (operations.open_directory(b"d"), sftp_wire.ATTRS),
    "stat": (operations.stat(b"f"), sftp_wire.EXTENDED_REPLY),
    "lstat": (operations.lstat_if_there(b"f"), sftp_wire.EXTENDED_REPLY),
    "statvfs": (operations.file_system(b"f"), sftp_wire.ATTRS),
    "realpath": (operations.realpath(b"."), sftp_wire.ATTRS),
}


@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_an_answer_of_another_kind_is_a_protocol_error(name: str) -> None:
    """Nothing is read out of an answer to something else."""
    steps, kind = WRONG_ANSWERS[name]
    body = bytes(4) if kind == sftp_wire.ATTRS else b""
    operation = answered(steps, lambda request: sftp_wire.packet(kind, request.request_id, body))
    assert type(operation.error) is ProtocolError


@pytest.mark.parametrize("steps", [operations.stat, operations.open_directory, operations.realpath])
def test_success_is_no_answer_where_a_value_was_asked(steps: Callable[[bytes], Steps[Any]]) -> None:
    """A bare OK where attributes, a handle or a name were asked for is an error, not a value."""
    operation = answered(steps(b"x"), lambda request: sftp_wire.status(request.request_id))
    assert operation.error is not None
