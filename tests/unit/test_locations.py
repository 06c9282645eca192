"""What SRC and DST mean: scp's rules, and what must never reach ssh."""

from __future__ import annotations

import pytest

from fastcopy.errors import UsageError
from fastcopy.plan.locations import Location, colon_hint, home_relative, local_reading, needs_expansion, parse_location


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("/u02/dumps/a.dmp", Location(path=b"/u02/dumps/a.dmp")),
        ("a.dmp", Location(path=b"a.dmp")),
        ("./a:b", Location(path=b"./a:b")),
        ("/x/a:b", Location(path=b"/x/a:b")),
        ("x/a:b", Location(path=b"x/a:b")),
        (":a", Location(path=b":a")),
        ("::1:x", Location(path=b"::1:x")),
        ("~", Location(path=b"~")),
        ("-rf", Location(path=b"-rf")),
        ("[::1]", Location(path=b"[::1]")),
        ("[a/b]:x", Location(path=b"[a/b]:x")),
        ("a b\n", Location(path=b"a b\n")),
        ("C:/x", Location(host="C", path=b"/x")),
        ("2024-01-01T10:00:00.dmp", Location(host="2024-01-01T10", path=b"00:00.dmp")),
        ("srv:/u01/reorg/", Location(host="srv", path=b"/u01/reorg/")),
        ("srv:", Location(host="srv", path=b".")),
        ("srv:~/x", Location(host="srv", path=b"~/x")),
        ("srv:a:b", Location(host="srv", path=b"a:b")),
        ("srv://x", Location(host="srv", path=b"//x")),
        ("srv: lead", Location(host="srv", path=b" lead")),
        ("srv:-rf", Location(host="srv", path=b"-rf")),
        ("oracle@srv:x", Location(host="srv", user="oracle", path=b"x")),
        ("a@b@srv:x", Location(host="srv", user="a@b", path=b"x")),
        ("DOM\\ann@srv:x", Location(host="srv", user="DOM\\ann", path=b"x")),
        ("[::1]:x", Location(host="::1", path=b"x")),
        ("[srv]:x", Location(host="srv", path=b"x")),
        ("[::1]:", Location(host="::1", path=b".")),
        ("user@[::1]:path", Location(host="::1", user="user", path=b"path")),
        ("[fe80::1%lo]:x", Location(host="fe80::1%lo", path=b"x")),
        ("user@[fe80::1%lo]:/x", Location(host="fe80::1%lo", user="user", path=b"/x")),
        ("fe80::1:x", Location(host="fe80", path=b":1:x")),
        ("ssh://srv/x", Location(host="srv", path=b"/x")),
        ("sftp://srv//x", Location(host="srv", path=b"//x")),
        ("SFTP://srv/x", Location(host="srv", path=b"/x")),
        ("sftp://srv", Location(host="srv", path=b".")),
        ("sftp://srv:22", Location(host="srv", port=22, path=b".")),
        ("sftp://srv/", Location(host="srv", path=b"/")),
        ("sftp://srv/~/x", Location(host="srv", path=b"~/x")),
        ("sftp://srv/~ann/x", Location(host="srv", path=b"~ann/x")),
        ("sftp://ann@srv:2222/a%20b%2Fc%ff+?#", Location(host="srv", user="ann", port=2222, path=b"/a b/c\xff+?#")),
        ("ssh://user@[::1]:2222/x", Location(host="::1", user="user", port=2222, path=b"/x")),
        ("ssh://[fe80::1%25lo]/x", Location(host="fe80::1%lo", path=b"/x")),
        ("ssh://[fe80::1%lo]/x", Location(host="fe80::1%lo", path=b"/x")),
        ("ssh://DOM%5cann@srv/x", Location(host="srv", user="DOM\\ann", path=b"/x")),
    ],
)
def test_what_is_typed_means_what_scp_would_take_it_for(typed: str, expected: Location) -> None:
    """A colon before the first slash makes a name remote; URLs and bracketed addresses are read whole."""
    assert parse_location(typed) == expected
    assert parse_location(typed.encode()) == expected


def test_bytes_that_are_not_utf8_survive() -> None:
    """A name from argv with surrogates becomes the bytes that were typed, local and remote."""
    assert parse_location("bad\udcff").path == b"bad\xff"
    assert parse_location("srv:bad\udcff\udcfe") == Location(host="srv", path=b"bad\xff\xfe")
    assert parse_location(b"srv:bad\xff\xfe") == Location(host="srv", path=b"bad\xff\xfe")


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("", "empty name"),
        ("a\0b", "NUL"),
        ("@srv:x", "user is empty"),
        ("user@:x", "host is empty"),
        ("[]:x", "host is empty"),
        ("sftp:///x", "host is empty"),
        ("sftp://@srv/x", "user is empty"),
        ("sftp://:22/x", "host is empty"),
        ("-oProxyCommand=id:x", "begin with a dash"),
        ("user@-oProxyCommand=id:x", "begin with a dash"),
        ("-luser@srv:x", "begin with a dash"),
        ("[-srv]:x", "begin with a dash"),
        ("sftp://-oProxyCommand=id/x", "begin with a dash"),
        ("sftp://%2doProxyCommand=id/x", "begin with a dash"),
        ("$(id):x", "cannot be a host"),
        ("`id`:x", "cannot be a host"),
        ("[user@::1]:x", "cannot be a host"),
        ("a b:x", "cannot be a host"),
        ("a\nb:x", "cannot be a host"),
        ("\x1b[2J:x", "cannot be a host"),
        ("b\udcffd:x", "cannot be a host"),
        ("u;id@srv:x", "cannot be a user"),
        ("u\\@srv:x", "cannot be a user"),
        ("sftp://srv%2f..%2f/x", "cannot be a host"),
        ("sftp://srv:/x", "not a port"),
        ("sftp://srv:0/x", "not a port"),
        ("sftp://srv:65536/x", "not a port"),
        ("sftp://srv:ssh/x", "not a port"),
        ("sftp://srv:-1/x", "not a port"),
        ("sftp://srv:999999999999999999/x", "not a port"),
        ("sftp://[::1/x", "in brackets"),
        ("sftp://[::1]2222/x", "in brackets"),
        ("sftp://::1/x", "not a port"),
        ("sftp://srv/100%", "%25"),
        ("sftp://srv/%zz", "%25"),
        ("sftp://srv/a%00b", "NUL"),
        ("http://srv/x", "sftp://host/path"),
        ("scp://srv/x", "sftp://host/path"),
    ],
)
def test_what_cannot_be_a_place_is_refused(typed: str, why: str) -> None:
    """Empty or dangerous hosts and users, bad ports and broken escapes are usage errors in one printable sentence."""
    with pytest.raises(UsageError) as caught:
        parse_location(typed)
    assert why in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("typed", ["sftp://ann:hunter2@srv/x", "ssh://ann:@srv/x", "http://ann:hunter2@srv/x"])
def test_a_password_in_a_url_is_refused_and_not_repeated(typed: str) -> None:
    """A secret in argv is an error whose message does not spread it."""
    with pytest.raises(UsageError) as caught:
        parse_location(typed)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (Location(path=b"/a/b"), "/a/b"),
        (Location(path=b"bad\xff\x1b[2J"), "bad\\xff\\x1b[2J"),
        (Location(host="srv", path=b"/x"), "srv:/x"),
        (Location(host="::1", user="ann", path=b"x"), "ann@[::1]:x"),
        (Location(host="srv", port=2222, path=b"/x"), "sftp://srv:2222/x"),
        (Location(host="::1", port=2222, user="ann", path=b"~ann/x"), "sftp://ann@[::1]:2222/~ann/x"),
        (Location(host="srv", port=2222, path=b"x"), "sftp://srv:2222/~/x"),
    ],
)
def test_a_location_is_shown_as_it_would_be_typed(location: Location, expected: str) -> None:
    """What is printed is one line and could be typed again."""
    assert str(location) == expected
    assert location.is_remote == (location.host is not None)


@pytest.mark.parametrize(
    ("typed", "reading"),
    [
        ("a:b", b"a:b"),
        ("C:/x", b"C:/x"),
        ("2024-01-01T10:00:00.dmp", b"2024-01-01T10:00:00.dmp"),
        ("./a:b", None),
        ("a", None),
        ("sftp://srv/x", None),
    ],
)
def test_a_colon_that_decided_is_told(typed: str, reading: bytes | None) -> None:
    """Where only the colon made a name remote, its local reading and a hint are to be had; elsewhere none."""
    assert local_reading(typed) == reading
    assert (f"write ./{typed}" in colon_hint(typed)) == (reading is not None)
    assert (colon_hint(typed) == "") == (reading is None)


@pytest.mark.parametrize(
    ("path", "expected", "needs"),
    [
        (b"~", b".", True),
        (b"~/", b".", True),
        (b"~/x/y", b"x/y", True),
        (b"~//x", b"x", True),
        (b"~/~x", b"./~x", True),
        (b"~ann/x", b"~ann/x", True),
        (b"/~/x", b"/~/x", False),
        (b"./~", b"./~", False),
        (b"x~", b"x~", False),
    ],
)
def test_the_home_directory_is_where_relative_paths_begin(path: bytes, expected: bytes, needs: bool) -> None:
    """`~/x` needs no server to be expanded; `~user` does, and is left for it."""
    assert home_relative(path) == expected
    assert needs_expansion(path) == needs
    assert needs_expansion(expected) == path.startswith(b"~ann")
