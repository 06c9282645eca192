"""Names and paths of any bytes."""

from __future__ import annotations

import posixpath

from hypothesis import given
from hypothesis import strategies as st

from fastcopy.errors import UnsafeName
from fastcopy.plan.names import MAX_NAME_BYTES, base, check_component, clean, is_part_name, join, parent, part_name

NAMES = st.one_of(
    st.binary(min_size=1, max_size=255),
    st.text("aé€😀\n\\", min_size=1, max_size=255).map(lambda text: text.encode()[:255]),
).filter(lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b".."))
TOKENS = st.text("0123456789abcdefghijklmnopqrstuvwxyz", min_size=8, max_size=8).map(str.encode)
PATHS = st.lists(st.sampled_from([b"/", b"//", b".", b"..", b"a", b"~", b"b.", b"\xff"]), max_size=9).map(b"".join)


@given(NAMES, TOKENS)
def test_a_part_name_is_a_legal_name_that_is_known_again(name: bytes, token: bytes) -> None:
    """Law 4 for any name: it fits, passes the check, is recognised, begins with the name, and is UTF-8 if that was."""
    part = part_name(name, token)
    check_component(name)
    check_component(part)
    assert len(part) <= MAX_NAME_BYTES
    assert is_part_name(part)
    kept = part[1 : -len(b".fastcopy-12345678.part")]
    assert name.startswith(kept)
    assert kept == name or len(kept) >= 228
    if _is_utf8(name):
        assert _is_utf8(part)


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.one_of(st.binary(max_size=300), PATHS))
def test_a_checked_component_stays_beneath_its_directory(name: bytes) -> None:
    """Whatever passes is exactly one component of any path it is joined to; whatever is refused is not."""
    try:
        check_component(name)
    except UnsafeName:
        lands = posixpath.normpath(posixpath.join(b"/root", name))
        assert b"\0" in name or len(name) > 255 or b"/" in name or posixpath.dirname(lands) != b"/root"
    else:
        path = join(b"/root", name)
        assert posixpath.normpath(path) == path
        assert (parent(path), base(path)) == (b"/root", name)


@given(PATHS)
def test_clean_changes_the_spelling_only(path: bytes) -> None:
    """A cleaned path has the components of the original, dots aside, is as absolute, and is clean."""
    cleaned = clean(path)
    meaning = [part for part in path.split(b"/") if part not in (b"", b".")]
    assert [part for part in cleaned.split(b"/") if part not in (b"", b".")] == meaning
    assert cleaned.startswith(b"/") == path.startswith(b"/")
    assert clean(cleaned) == cleaned
    assert (cleaned == b"") == (path == b"")
    assert cleaned.startswith(b"~") == path.startswith(b"~")
    assert b"//" not in cleaned
    assert b"/./" not in cleaned


@given(PATHS)
def test_parent_and_base_put_together_are_the_path(path: bytes) -> None:
    """Joining what a path was split into gives the same path, slashes aside."""
    if path.strip(b"/"):
        assert clean(join(parent(path), base(path))) == clean(path)
