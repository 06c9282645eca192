"""What is typed becomes validated values, or one sentence that names the option and ends with exit 2."""

from __future__ import annotations

from typing import Any

import pytest

from fastcopy.cli.arguments import copy_options, copy_request, demo_request, with_command
from fastcopy.config import AddressFamily, CopyOptions, SshOptions, SshWay, SymlinkPolicy, TransferOptions
from fastcopy.errors import UsageError
from fastcopy.plan.locations import Location


def test_nothing_given_is_the_products_defaults() -> None:
    """Without options the values are exactly those of config.py."""
    assert copy_options() == CopyOptions()


def test_everything_given_arrives() -> None:
    """Each option's text ends up in its own field."""
    expected = CopyOptions(
        ssh=SshOptions(
            way=SshWay.ASYNCSSH,
            port=2222,
            identities=("a", "b"),
            config_file="cfg",
            jump="j",
            options=("StrictHostKeyChecking=yes",),
            ciphers=("aes128-gcm@openssh.com", "aes256-ctr"),
            compress=True,
            family=AddressFamily.IPV6,
            reuse_master=True,
            connect_timeout_s=7.5,
        ),
        transfer=TransferOptions(
            parallel=8,
            connections=2,
            request_bytes=65536,
            queue_depth=128,
            preserve=True,
            force=True,
            symlinks=SymlinkPolicy.FOLLOW,
            timeout_s=7.5,
        ),
    )
    actual = copy_options(
        parallel="8",
        connections="2",
        reuse_master=True,
        request_size="64K",
        queue_depth="128",
        cipher="aes128-gcm@openssh.com, aes256-ctr",
        compress=True,
        ssh="AsyncSSH",
        port="2222",
        identity=["a", "b"],
        ssh_config="cfg",
        jump="j",
        ssh_option=["StrictHostKeyChecking=yes"],
        ipv6=True,
        preserve=True,
        force=True,
        symlinks="follow",
        timeout="7.5",
    )
    assert actual == expected


def test_auto_is_the_same_as_nothing() -> None:
    """`auto` for channels and connections leaves the choice to the product."""
    assert copy_options(parallel="auto", connections="AUTO") == CopyOptions()


@pytest.mark.parametrize(
    ("typed", "option"),
    [
        ({"parallel": "0"}, "--parallel"),
        ({"parallel": "-1"}, "--parallel"),
        ({"parallel": "4.5"}, "--parallel"),
        ({"parallel": "257"}, "--parallel"),
        ({"parallel": ""}, "--parallel"),
        ({"parallel": "٤"}, "--parallel"),
        ({"parallel": "9" * 4000}, "--parallel"),
        ({"connections": "x"}, "--connections"),
        ({"request_size": "100"}, "--request-size"),
        ({"request_size": "1T"}, "--request-size"),
        ({"request_size": "big"}, "--request-size"),
        ({"queue_depth": "0"}, "--queue-depth"),
        ({"queue_depth": "auto"}, "--queue-depth"),
        ({"port": "65536"}, "--port"),
        ({"port": "ssh"}, "--port"),
        ({"cipher": ""}, "--cipher"),
        ({"cipher": "a,,b"}, "--cipher"),
        ({"ssh": "putty"}, "--ssh"),
        ({"symlinks": "keep"}, "--symlinks"),
        ({"timeout": "0"}, "--timeout"),
        ({"timeout": "nan"}, "--timeout"),
        ({"timeout": "inf"}, "--timeout"),
        ({"timeout": "soon"}, "--timeout"),
        ({"ssh_option": ["Port"]}, "-o"),
        ({"ipv4": True, "ipv6": True}, "-4"),
    ],
)
def test_a_wrong_value_names_its_option(typed: dict[str, Any], option: str) -> None:
    """A value that cannot be is one usage error whose sentence begins with the option."""
    with pytest.raises(UsageError) as caught:
        copy_options(**typed)
    assert str(caught.value).startswith(option)
    assert caught.value.exit_code == 2


def test_a_wrong_value_cannot_drive_the_terminal() -> None:
    """What was typed is shown with its control characters escaped."""
    with pytest.raises(UsageError) as caught:
        copy_options(ssh="\x1b[2J")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a", "h:b"], ["copy", "a", "h:b"]),
        (["-n", "4", "a", "h:b"], ["copy", "-n", "4", "a", "h:b"]),
        (["copy", "a", "b"], ["copy", "a", "b"]),
        (["demo"], ["demo"]),
        (["./demo", "b"], ["copy", "./demo", "b"]),
        (["a", "copy"], ["copy", "a", "copy"]),
        (["--help"], ["--help"]),
        (["--version"], ["--version"]),
        ([], []),
    ],
)
def test_copy_is_the_command_when_none_is_named(words: list[str], expected: list[str]) -> None:
    """`fastcopy SRC... DST` is `fastcopy copy SRC... DST`; only the first word can be a command."""
    assert with_command(words) == expected


def test_the_last_place_is_the_destination() -> None:
    """All places but the last are sources, bytes that are not UTF-8 included."""
    request = copy_request(["a", "bad\udcff", "u@h:d"], CopyOptions())
    assert request.sources == (Location(path=b"a"), Location(path=b"bad\xff"))
    assert request.destination == Location(host="h", user="u", path=b"d")


@pytest.mark.parametrize("paths", [[], ["only"]])
def test_fewer_than_two_places_is_a_usage_error(paths: list[str]) -> None:
    """One place, or none, is refused with the form to write."""
    with pytest.raises(UsageError, match=r"SRC\.\.\. DST"):
        copy_request(paths, CopyOptions())


def test_quiet_and_verbose_contradict() -> None:
    """-q with -v is refused rather than one of them ignored."""
    with pytest.raises(UsageError, match="-q and -v"):
        copy_request(["a", "b"], CopyOptions(), quiet=True, verbose=True)


@pytest.mark.parametrize(("size", "files"), [("x", "1"), ("1M", "0"), ("1M", "many"), ("1M", "10001")])
def test_a_wrong_demo_is_a_usage_error(size: str, files: str) -> None:
    """demo checks its two numbers before it makes anything."""
    with pytest.raises(UsageError):
        demo_request(size, files)


def test_demo_numbers() -> None:
    """demo's total is files times size."""
    assert demo_request("1M", "3").total_bytes == 3 << 20
