"""Sizes, rates and times as typed and as shown."""

from __future__ import annotations

import pytest

from fastcopy.errors import InvalidValue
from fastcopy.plan.sizes import format_bytes, format_rate, format_seconds, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("261120", 261_120),
        ("1B", 1),
        ("255K", 255 << 10),
        ("255k", 255 << 10),
        ("255KB", 255 << 10),
        ("255KiB", 255 << 10),
        ("255 kib", 255 << 10),
        ("1.5M", 3 << 19),
        ("2GiB", 2 << 30),
        ("1g", 1 << 30),
        ("0.1K", 102),
        ("4T", 4 << 40),
        ("1E", 1 << 60),
        (" 64M ", 64 << 20),
        ("1.123456789G", 1_206_302_541),
    ],
)
def test_a_size_is_read_in_binary_multiples(text: str, expected: int) -> None:
    """Every way to write a unit means the same power of 1024, and no digit is lost to floating point."""
    assert parse_size(text) == expected


BAD_SIZES = [
    *("", " ", "M", "-1", "+1", "1.5", "1.5B", "1,5M", ".5M", "5.M", "1e3", "0x10", "1Q", "1MM", "1 M B", "nan", "inf"),
    *("\u0663", "1K1", "1Ki B", "9" * 20, "1\n2", "1\x1b[2J"),
]


@pytest.mark.parametrize("text", BAD_SIZES)
def test_a_bad_size_names_its_option(text: str) -> None:
    """What is no size is refused in one printable line that begins with the option it came from."""
    with pytest.raises(InvalidValue) as caught:
        parse_size(text, option="--request-size")
    assert str(caught.value).startswith("--request-size: ")
    assert str(caught.value).isprintable()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"), [("50M", 50 << 20), ("50M/s", 50 << 20), ("1.5GiB/s", 3 << 29), ("1", 1)]
)
def test_a_rate_is_bytes_per_second(text: str, expected: int) -> None:
    """A rate is a size per second, with or without saying so."""
    assert parse_rate(text) == expected


@pytest.mark.parametrize("text", ["0", "0.0001K", "fast", "50M/m", "/s"])
def test_a_rate_of_nothing_is_refused(text: str) -> None:
    """A limit that lets nothing through, or is no number, is an error and not an endless job."""
    with pytest.raises(InvalidValue, match="--limit: "):
        parse_rate(text, option="--limit")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (12.34 * 2**20, "12.3 MiB"),
        (99.94 * 2**20, "99.9 MiB"),
        (99.96 * 2**20, "100 MiB"),
        (512 * 2**20, "512 MiB"),
        (2**30 - 1, "1.0 GiB"),
        (2**40, "1.0 TiB"),
        (2**70, "1024 EiB"),
        (-(3 << 20), "-3.0 MiB"),
    ],
)
def test_bytes_are_shown_in_few_digits(count: float, expected: str) -> None:
    """Three or four digits and the unit that fits, also right below the next unit."""
    assert format_bytes(count) == expected


def test_a_rate_is_shown_per_second() -> None:
    """A rate looks like a size with /s."""
    assert format_rate(512 << 20) == "512 MiB/s"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0.00 s"),
        (0.416, "0.42 s"),
        (9.994, "9.99 s"),
        (9.996, "10.0 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (187, "3 min 07 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (7380, "2 h 03 min"),
        (360_000, "100 h 00 min"),
    ],
)
def test_time_is_shown_in_the_unit_that_fits(seconds: float, expected: str) -> None:
    """No time is shown as 60 s or 60 min."""
    assert format_seconds(seconds) == expected
