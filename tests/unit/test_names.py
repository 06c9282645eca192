"""Names as bytes: components, part files, paths."""

from __future__ import annotations

import pytest

from fastcopy.errors import UnsafeName
from fastcopy.plan.names import base, check_component, clean, is_part_name, join, parent, part_name

TOKEN = b"0a1b2c3d"


LEGAL = [
    *(b"a", b"...", b".a", b"..a", b"-rf", b" lead", b"trail ", b"nl\nname", b"\x1b[2J", b"~", b"a\\b", b"C:"),
    *(b"\xff\xfe", b"n" * 255),
]


@pytest.mark.parametrize("name", LEGAL)
def test_legal_names_pass_byte_for_byte(name: bytes) -> None:
    """Odd names are no reason to refuse a file."""
    check_component(name)


@pytest.mark.parametrize("name", [b"", b".", b"..", b"/", b"a/b", b"../x", b"/etc", b"a/", b"a\0", b"n" * 256])
def test_a_name_that_could_leave_its_directory_is_refused(name: bytes) -> None:
    """Law 10: empty, dots, slash, NUL and over-long names are an unsafe peer's, with the exit code for that."""
    with pytest.raises(UnsafeName) as caught:
        check_component(name, host="srv")
    assert caught.value.path == name
    assert caught.value.exit_code == 6
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"a.dmp", b".a.dmp.fastcopy-0a1b2c3d.part"),
        (b".rc", b"..rc.fastcopy-0a1b2c3d.part"),
        (b"n" * 231, b"." + b"n" * 231 + b".fastcopy-0a1b2c3d.part"),
        (b"n" * 232, b"." + b"n" * 231 + b".fastcopy-0a1b2c3d.part"),
        # 230 bytes, then a character of 2, 3, 4 bytes across the cut at 231
        (b"n" * 230 + "é".encode() * 5, b"." + b"n" * 230 + b".fastcopy-0a1b2c3d.part"),
        (b"n" * 229 + "€".encode() * 5, b"." + b"n" * 229 + b".fastcopy-0a1b2c3d.part"),
        (b"n" * 228 + "😀".encode() * 5, b"." + b"n" * 228 + b".fastcopy-0a1b2c3d.part"),
        # characters that end right at the cut stay
        (b"n" * 229 + "é".encode() * 5, b"." + b"n" * 229 + "é".encode() + b".fastcopy-0a1b2c3d.part"),
        # what only looks like UTF-8 is cut anywhere
        (b"n" * 230 + b"\xe9" * 20, b"." + b"n" * 230 + b"\xe9.fastcopy-0a1b2c3d.part"),
        (b"\x80" * 255, b"." + b"\x80" * 231 + b".fastcopy-0a1b2c3d.part"),
    ],
)
def test_a_part_name_fits_and_keeps_characters_whole(name: bytes, expected: bytes) -> None:
    """Law 4: the name is cut so that the whole fits 255 bytes, never through a UTF-8 character."""
    assert part_name(name, TOKEN) == expected


@pytest.mark.parametrize("token", [b"", b"short", b"0a1b2c3d4", b"0a1b2c3/", b"0a1b2c3.", b"0a1b2c3\n"])
def test_a_part_name_needs_a_whole_token(token: bytes) -> None:
    """A token that is not 8 letters and digits is a bug, told at once."""
    with pytest.raises(ValueError, match="token"):
        part_name(b"a", token)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b".a.fastcopy-0a1b2c3d.part", True),
        (b".nl\nname.fastcopy-ABCDEFGH.part", True),
        (b"a.fastcopy-0a1b2c3d.part", False),
        (b"..fastcopy-0a1b2c3d.part", False),
        (b".fastcopy-0a1b2c3d.part", False),
        (b".a.fastcopy-0a1b2c3.part", False),
        (b".a.fastcopy-0a1b2c3d.part\n", False),
        (b".a.fastcopy-0a1b2c3d.part.dmp", False),
        (b".a.part", False),
    ],
)
def test_only_part_files_of_ours_are_known_as_such(name: bytes, expected: bool) -> None:
    """A file that merely resembles a part file is a source like any other."""
    assert is_part_name(name) == expected


@pytest.mark.parametrize(
    ("directory", "name", "expected"),
    [(b"", b"a", b"a"), (b"/", b"a", b"/a"), (b"d", b"a", b"d/a"), (b"d/", b"a", b"d/a"), (b".", b"a", b"./a")],
)
def test_join_makes_no_double_slash(directory: bytes, name: bytes, expected: bytes) -> None:
    """One slash stands between a directory and a name, none before a relative one."""
    assert join(directory, name) == expected


@pytest.mark.parametrize(
    ("path", "directory", "name"),
    [
        (b"a", b"", b"a"),
        (b"/a", b"/", b"a"),
        (b"//a", b"/", b"a"),
        (b"d/a", b"d", b"a"),
        (b"d//a/", b"d", b"a"),
        (b"/d/a//", b"/d", b"a"),
        (b"/", b"/", b""),
        (b"//", b"/", b""),
        (b"", b"", b""),
        (b"..", b"", b".."),
    ],
)
def test_a_path_splits_into_parent_and_base(path: bytes, directory: bytes, name: bytes) -> None:
    """`parent` and `base` agree with dirname and basename, but that a lone name's parent is b"" ."""
    assert (parent(path), base(path)) == (directory, name)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"a//b/./c/", b"a/b/c"),
        (b"/./a/.", b"/a"),
        (b"././a", b"a"),
        (b"/.", b"/"),
        (b"///", b"/"),
        (b"./", b"."),
        (b".", b"."),
        (b"", b""),
        (b"a/../b", b"a/../b"),
        (b"./../a", b"../a"),
        (b"a/.b/..c/...", b"a/.b/..c/..."),
        (b"a.", b"a."),
        (b"././~ann", b"./~ann"),
    ],
)
def test_clean_drops_only_what_says_nothing(path: bytes, expected: bytes) -> None:
    """Doubled slashes and single dots go; `..`, dotted names and the shield before a tilde stay."""
    assert clean(path) == expected
