"""Any text as SRC or DST: a place, or one clear error."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from fastcopy.errors import UsageError
from fastcopy.plan.locations import Location, parse_location

PIECES = [b"sftp://", b"[", b"]", b":", b"@", b"/", b"-", b"~", b"%25", b"%", b"a", b"::1", b"22", b"\xff"]
TYPED = st.one_of(st.binary(max_size=40), st.lists(st.sampled_from(PIECES), max_size=10).map(b"".join))
HOSTS = st.sampled_from(["srv", "srv-1.example.org", "::1", "fe80::1%lo", "10.0.0.1"])
USERS = st.one_of(st.none(), st.sampled_from(["ann", "DOM\\ann", "a@b", "o-1"]))
PATHS = st.binary(min_size=1, max_size=20).filter(lambda path: b"\0" not in path)


@given(TYPED)
def test_anything_typed_is_a_safe_place_or_a_usage_error(typed: bytes) -> None:
    """No input makes another error; no host or user that comes out could be an option or more than one word."""
    try:
        location = parse_location(typed)
    except UsageError as exc:
        refusal = str(exc)
    else:
        refusal = ""
    if refusal:
        assert refusal.isprintable()
        return
    assert location.path
    assert str(location).isprintable()
    for word in (location.host, location.user):
        if word is not None:
            assert word
            assert not word.startswith("-")
            assert word.isprintable()
            assert not set(word) & set(" '\"`$;&<>|(){}") or word is location.user
    if not location.is_remote:
        assert location == Location(path=typed)


@given(HOSTS, USERS, PATHS)
def test_a_remote_place_is_read_as_it_was_written(host: str, user: str | None, path: bytes) -> None:
    """`[user@]host:path` gives back host, user and any bytes of path; the text from argv means the same."""
    shown = f"[{host}]" if ":" in host else host
    typed = (f"{user}@{shown}:" if user else f"{shown}:").encode() + path
    if path.startswith(b"//"):  # `word://` might be a URL's scheme
        return
    expected = Location(host=host, user=user, path=path)
    assert parse_location(typed) == expected
    assert parse_location(typed.decode("utf-8", "surrogateescape")) == expected


@given(HOSTS, USERS, st.integers(1, 65535), PATHS)
def test_a_url_is_read_as_it_was_written(host: str, user: str | None, port: int, path: bytes) -> None:
    """A percent-encoded URL gives back host, user, port and any bytes of path."""
    authority = f"[{host.replace('%', '%25')}]" if ":" in host else host
    login = f"{quote(user, safe='')}@" if user else ""
    typed = f"sftp://{login}{authority}:{port}//{quote(path, safe='/')}"
    assert parse_location(typed) == Location(host=host, user=user, port=port, path=b"//" + path)


@given(PATHS)
def test_a_shielded_path_is_always_local(path: bytes) -> None:
    """`./` before any name makes it local, byte for byte."""
    assert parse_location(b"./" + path) == Location(path=b"./" + path)
