"""The directory rules: what lands where, and what is refused before any byte moves."""

from __future__ import annotations

import pytest

from fastcopy.errors import DuplicateDestination, FastcopyError, TargetNotDirectory, UsageError
from fastcopy.model import FileKind
from fastcopy.plan.destinations import Placement, Source, find_collision, means_contents, place

FILE, DIRECTORY, LINK, SPECIAL, UNKNOWN = (
    FileKind.FILE,
    FileKind.DIRECTORY,
    FileKind.SYMLINK,
    FileKind.SPECIAL,
    FileKind.UNKNOWN,
)


def source(path: bytes, kind: FileKind = FILE) -> Source:
    return Source(path=path, kind=kind, contents=means_contents(path))


def placed(source_path: bytes, kind: FileKind, destination: bytes, there: FileKind | None) -> tuple[bytes, bool]:
    placement = place([source(source_path, kind)], destination, there)
    (target,) = placement.targets
    return target, placement.make_directory


@pytest.mark.parametrize(
    ("path", "kind", "destination", "there", "expected"),
    [
        # one file
        (b"f", FILE, b"d", DIRECTORY, (b"d/f", False)),
        (b"f", FILE, b"d/", DIRECTORY, (b"d/f", False)),
        (b"f", FILE, b"d/", None, (b"d/f", True)),
        (b"f", FILE, b"d/new", None, (b"d/new", False)),
        (b"f", FILE, b"g", FILE, (b"g", False)),
        (b"f", FILE, b"g", LINK, (b"g", False)),
        (b"f", FILE, b"g", UNKNOWN, (b"g", False)),
        (b"f", FILE, b"g/", UNKNOWN, (b"g/f", False)),
        (b"/a//b/f", FILE, b"/d//e/", DIRECTORY, (b"/d/e/f", False)),
        (b"f", FILE, b"", DIRECTORY, (b"./f", False)),
        (b"f", FILE, b".", DIRECTORY, (b"./f", False)),
        (b"f", FILE, b"/", DIRECTORY, (b"/f", False)),
        (b"f", FILE, b"..", DIRECTORY, (b"../f", False)),
        (b"f", FILE, b"~ann", None, (b"~ann", False)),
        (b"a\\b", FILE, b"d", DIRECTORY, (b"d/a\\b", False)),
        (b"l", LINK, b"d", DIRECTORY, (b"d/l", False)),
        (b"f", UNKNOWN, b"d", DIRECTORY, (b"d/f", False)),
        # a directory itself, whether DST is there or not: so the second run does the same
        (b"src", DIRECTORY, b"d", DIRECTORY, (b"d/src", False)),
        (b"src", DIRECTORY, b"d", None, (b"d/src", True)),
        (b"src", DIRECTORY, b"d/", None, (b"d/src", True)),
        (b"/x/src", DIRECTORY, b"d", UNKNOWN, (b"d/src", False)),
        (b"src", DIRECTORY, b".", DIRECTORY, (b"./src", False)),
        # its contents
        (b"src/", DIRECTORY, b"d", DIRECTORY, (b"d", False)),
        (b"src/", DIRECTORY, b"d", None, (b"d", True)),
        (b"src//", DIRECTORY, b"d/", None, (b"d", True)),
        (b"src/.", DIRECTORY, b"d", None, (b"d", True)),
        (b".", DIRECTORY, b"d", None, (b"d", True)),
        (b"..", DIRECTORY, b"d", None, (b"d", True)),
        (b"a/..", DIRECTORY, b"d", None, (b"d", True)),
        (b"/", DIRECTORY, b"d", None, (b"d", True)),
        (b"src/", DIRECTORY, b"", DIRECTORY, (b".", False)),
    ],
)
def test_one_source_lands_by_the_table(
    path: bytes, kind: FileKind, destination: bytes, there: FileKind | None, expected: tuple[bytes, bool]
) -> None:
    """Each row of the table: target path, and whether DST is made."""
    assert placed(path, kind, destination, there) == expected


@pytest.mark.parametrize(
    ("path", "kind", "destination"), [(b"src", DIRECTORY, b"new"), (b"src/", DIRECTORY, b"new"), (b"f", FILE, b"new/")]
)
def test_a_second_run_lands_on_the_same_names(path: bytes, kind: FileKind, destination: bytes) -> None:
    """Whether DST is missing or there after the first run makes no difference to the targets."""
    first, second = placed(path, kind, destination, None), placed(path, kind, destination, DIRECTORY)
    assert first[0] == second[0]
    assert (first[1], second[1]) == (True, False)


def test_several_sources_go_inside() -> None:
    """Several sources make DST a directory, and each lands inside by its own row."""
    sources = [source(b"/a/f"), source(b"g"), source(b"src", DIRECTORY)]
    expected = Placement(targets=(b"d/f", b"d/g", b"d/src"), directory=b"d", make_directory=True)
    assert place(sources, b"d", None) == expected
    assert place(sources, b"d", DIRECTORY).targets == expected.targets


def test_contents_that_meet_others_are_to_be_listed() -> None:
    """Only contents that meet another source need listing before the first byte."""
    mixed = [source(b"f"), source(b"a/", DIRECTORY), source(b"b/", DIRECTORY)]
    assert place(mixed, b"d", DIRECTORY).meeting == (1, 2)
    assert place(mixed, b"d", DIRECTORY).targets == (b"d/f", b"d", b"d")
    assert place([source(b"f"), source(b"a/", DIRECTORY)], b"d", DIRECTORY).meeting == (1,)
    assert place([source(b"a/", DIRECTORY)], b"d", DIRECTORY).meeting == ()


def test_contents_can_be_told_where_the_path_does_not_show_them() -> None:
    """A path that lost its slash on the way (`~/` expanded) still means contents if `contents` says so."""
    home = Source(path=b"/home/ann", kind=DIRECTORY, contents=True)
    assert place([home], b"d", DIRECTORY).targets == (b"d",)
    assert place([source(b"f")], b"d", None, True).targets == (b"d/f",)


@pytest.mark.parametrize(
    ("sources", "destination", "there", "error"),
    [
        ([], b"d", None, UsageError),
        ([source(b"f"), source(b"g")], b"x", FILE, TargetNotDirectory),
        ([source(b"f"), source(b"g")], b"x", LINK, TargetNotDirectory),
        ([source(b"f"), source(b"g")], b"/dev/null", SPECIAL, TargetNotDirectory),
        ([source(b"f")], b"x/", FILE, TargetNotDirectory),
        ([source(b"src", DIRECTORY)], b"x", FILE, TargetNotDirectory),
        ([source(b"src/", DIRECTORY)], b"x", FILE, TargetNotDirectory),
        ([source(b"f")], b"/dev/null", SPECIAL, UsageError),
        ([source(b"f/")], b"d", DIRECTORY, UsageError),
        ([source(b"a/f"), source(b"b/f")], b"d", DIRECTORY, DuplicateDestination),
        ([source(b"a/f"), source(b"b/f", DIRECTORY)], b"d", None, DuplicateDestination),
        ([source(b"a/s", DIRECTORY), source(b"b/s", DIRECTORY)], b"d", None, DuplicateDestination),
        ([source(b"f"), source(b"f")], b"d", DIRECTORY, DuplicateDestination),
    ],
)
def test_what_cannot_be_right_is_refused(
    sources: list[Source], destination: bytes, there: FileKind | None, error: type[FastcopyError]
) -> None:
    """Files in the way, devices, `file/` and two sources for one name are errors before any byte moves."""
    with pytest.raises(error) as caught:
        place(sources, destination, there)
    assert type(caught.value) is error


def test_a_duplicate_names_both_sources() -> None:
    """The user reads which name, and which two sources."""
    with pytest.raises(DuplicateDestination, match="Two sources would both become d/f: a/f and b/f"):
        place([source(b"a/f"), source(b"b/f")], b"d", DIRECTORY)


@pytest.mark.parametrize(
    ("listings", "expected"),
    [
        ({1: [b"x", b"y"], 2: [b"z"]}, None),
        ({1: [b"x", b"y"], 2: [b"y"]}, (b"d/y", b"a/y", b"b/./y")),
        ({1: [b"x", b"f"], 2: []}, (b"d/f", b"f", b"a/f")),
        ({}, None),
    ],
)
def test_listed_names_collide_across_sources(
    listings: dict[int, list[bytes]], expected: tuple[bytes, bytes, bytes] | None
) -> None:
    """A name in two listings, or in a listing and named itself, is found and told with both paths."""
    sources = [source(b"f"), source(b"a/", DIRECTORY), source(b"b/.", DIRECTORY)]
    error = find_collision(sources, b"d", listings)
    assert (error and (error.path, error.details["first"], error.details["second"])) == expected
