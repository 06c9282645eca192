"""`fastcopy demo`: the main job on an embedded server, with nothing else installed."""

from __future__ import annotations

from tests.support.command import fastcopy


def test_the_demo_runs_and_cleans_up() -> None:
    """Up and down on the embedded server, both compared; no file, process or key stays (the runner checks)."""
    outcome = fastcopy("demo", "--size", "1M")
    assert outcome.exit_code == 0, outcome.stderr
    said = (outcome.stdout + outcome.stderr).lower()
    assert [word for word in ("up", "down", "10 files") if word not in said] == []


def test_the_demo_needs_no_program_on_path() -> None:
    """It runs where neither ssh nor sshd is to be found."""
    outcome = fastcopy("demo", "--size", "100K", variables={"PATH": "/nonexistent"})
    assert outcome.exit_code == 0, outcome.stderr


def test_a_wrong_size_is_usage() -> None:
    """A size that is none: exit 2 names the option."""
    outcome = fastcopy("demo", "--size", "huge")
    assert (outcome.exit_code, "size" in outcome.said) == (2, True), outcome.stderr
