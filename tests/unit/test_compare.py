"""Whether a file is current, and what mode and time its copy gets."""

from __future__ import annotations

import pytest

from fastcopy.model import Attributes
from fastcopy.plan.compare import clamp_sftp_time, final_directory_mode, final_mode, is_current

FILE, DIRECTORY, LINK = 0o100000, 0o040000, 0o120000
NOW = 2_000_000_000.5


def attributes(
    mode: int | None = FILE | 0o644, size: int | None = 7, mtime_s: int | None = 1_700_000_000
) -> Attributes:
    return Attributes(size=size, mode=mode, mtime_s=mtime_s)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (attributes(), attributes(), True),
        (attributes(mode=FILE | 0o600), attributes(mode=FILE | 0o444), True),
        (attributes(), None, False),
        (attributes(), attributes(size=8), False),
        (attributes(), attributes(mtime_s=1_700_000_001), False),
        (attributes(size=None), attributes(size=None), False),
        (attributes(mtime_s=None), attributes(mtime_s=None), False),
        (attributes(), attributes(mode=None), False),
        (attributes(mode=None), attributes(), False),
        (attributes(), attributes(mode=LINK | 0o777), False),
        (attributes(mode=DIRECTORY | 0o755), attributes(mode=DIRECTORY | 0o755), False),
        (Attributes(size=7, mode=FILE, mtime_ns=1_700_000_000_999_999_999), attributes(), True),
        (attributes(), Attributes(size=7, mode=FILE, mtime_ns=1_700_000_000_000_000_000), True),
        # within the last 2 s, and from a clock ahead of ours
        (attributes(mtime_s=1_999_999_998), attributes(mtime_s=1_999_999_998), True),
        (attributes(mtime_s=1_999_999_999), attributes(mtime_s=1_999_999_999), False),
        (attributes(mtime_s=2_000_000_000), attributes(mtime_s=2_000_000_000), False),
        (attributes(mtime_s=2_000_000_600), attributes(mtime_s=2_000_000_600), False),
        (attributes(mtime_s=4_000_000_000), attributes(mtime_s=4_000_000_000), True),
        # times SFTP had to clamp
        (attributes(mtime_s=-5), attributes(mtime_s=0), True),
        (attributes(mtime_s=2**32 + 9), attributes(mtime_s=2**32 - 1), True),
        (attributes(mtime_s=0), attributes(mtime_s=-5), False),
    ],
)
def test_only_an_equal_file_at_rest_is_current(source: Attributes, target: Attributes | None, expected: bool) -> None:
    """Equal size and whole-second mtime of two regular files, the source at rest: else it is copied again."""
    assert is_current(source, target, now_s=NOW, force=False) == expected


@pytest.mark.parametrize(("age_s", "expected"), [(2.01, True), (2.0, False), (-86_400.0, False), (-86_401.0, True)])
def test_at_rest_means_older_than_two_seconds(age_s: float, expected: bool) -> None:
    """A change exactly 2 s ago, or up to a day ahead by another clock, is still too fresh to be trusted."""
    file = attributes(mtime_s=1_700_000_000)
    assert is_current(file, file, now_s=1_700_000_000 + age_s, force=False) == expected


def test_force_copies_everything() -> None:
    """With --force no file is current."""
    assert not is_current(attributes(), attributes(), now_s=NOW, force=True)


@pytest.mark.parametrize(
    ("source", "target", "preserve", "expected"),
    [
        (FILE | 0o666, None, False, 0o644),
        (FILE | 0o755, None, False, 0o755),
        (FILE | 0o666, FILE | 0o600, False, 0o600),
        (FILE | 0o600, FILE | 0o666, False, 0o666),
        (FILE | 0o666, LINK | 0o777, False, 0o644),
        (FILE | 0o666, DIRECTORY | 0o777, False, 0o644),
        (FILE | 0o666, FILE | 0o600, True, 0o666),
        (FILE | 0o666, None, True, 0o666),
        (FILE | 0o6755, None, False, 0o755),
        (FILE | 0o6755, None, True, 0o755),
        (FILE | 0o644, FILE | 0o6755, False, 0o755),
        (FILE | 0o1644, None, True, 0o644),
        (None, None, False, 0o644),
        (None, None, True, 0o644),
        (None, FILE | 0o600, True, 0o600),
        (FILE | 0o640, None, False, 0o640),
        (FILE | 0o640, 0o777, False, 0o640),
    ],
)
def test_a_files_mode_is_the_targets_or_the_sources_without_set_id(
    source: int | None, target: int | None, preserve: bool, expected: int
) -> None:
    """Without -p the target's mode stays, else the source's less the umask; set-id bits never come along."""
    there = None if target is None else attributes(mode=target)
    assert final_mode(attributes(mode=source), there, umask=0o022, preserve=preserve) == expected


@pytest.mark.parametrize(
    ("source", "target", "preserve", "expected"),
    [
        (DIRECTORY | 0o777, None, False, 0o755),
        (DIRECTORY | 0o777, None, True, 0o777),
        (DIRECTORY | 0o1777, None, True, 0o1777),
        (DIRECTORY | 0o1777, None, False, 0o1755),
        (DIRECTORY | 0o2775, None, True, 0o775),
        (DIRECTORY | 0o700, DIRECTORY | 0o2775, False, 0o2775),
        (DIRECTORY | 0o700, DIRECTORY | 0o2775, True, 0o700),
        (DIRECTORY | 0o700, LINK | 0o777, False, 0o700),
        (None, None, True, 0o755),
        (None, DIRECTORY | 0o2770, True, 0o2770),
    ],
)
def test_a_directory_that_was_there_keeps_its_mode(
    source: int | None, target: int | None, preserve: bool, expected: int
) -> None:
    """Directories follow the table of files; an existing one is left as it is, the sticky bit is kept."""
    there = None if target is None else attributes(mode=target)
    assert final_directory_mode(attributes(mode=source), there, umask=0o022, preserve=preserve) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(-1, 0), (0, 0), (5, 5), (2**32 - 1, 2**32 - 1), (2**32, 2**32 - 1)])
def test_a_time_is_clamped_to_what_sftp_carries(seconds: int, expected: int) -> None:
    """Times before 1970 and after 2106 become the nearest that fits 32 bits."""
    assert clamp_sftp_time(seconds) == expected
