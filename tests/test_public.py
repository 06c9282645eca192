"""What others build on: exports, exit codes, the command line's words, the version. Each is a promise.

Lists here are the design's; a change of one of them is a change of the product.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fastcopy
from fastcopy import errors
from fastcopy.measure.report import exit_code_of
from tests.support.command import fastcopy as run_fastcopy

ROOT = Path(__file__).resolve().parent.parent
#: Options of `copy` that exist now. Source: the design's list, those of the main job.
OPTIONS = {
    "-n, --parallel",
    "--connections",
    "--reuse-master",
    "-B, --request-size",
    "-R, --queue-depth",
    "-c, --cipher",
    "-C",
    "--ssh",
    "-P, --port",
    "-i, --identity",
    "-F, --ssh-config",
    "-J, --jump",
    "-o",
    "-4",
    "-6",
    "-p, --preserve",
    "--force",
    "--symlinks",
    "--timeout",
    "--json",
    "-q",
    "-v",
    "-r",
    "-h, --help",
}
#: Source: the design's table.
EXIT_CODES = {
    "FastcopyError": 1,
    "UsageError": 2,
    "InvalidValue": 2,
    "NothingMatched": 2,
    "DuplicateDestination": 2,
    "ConnectError": 3,
    "FileError": 4,
    "IntegrityError": 5,
    "UnsafePeer": 6,
    "HostKeyUnknown": 6,
    "HostKeyChanged": 6,
    "UnsafeName": 6,
    "ProtocolError": 7,
}


def test_the_library_exports() -> None:
    """`fastcopy` offers exactly these names, and each is there."""
    assert sorted(fastcopy.__all__) == ["FastcopyError", "Report", "__version__", "copy"]
    assert all(hasattr(fastcopy, name) for name in fastcopy.__all__)
    assert inspect.iscoroutinefunction(fastcopy.copy)
    assert fastcopy.FastcopyError is errors.FastcopyError


def test_copy_takes_its_options_by_name() -> None:
    """Two places in front, everything else by keyword with a default: new options cannot break a caller."""
    kinds = {name: parameter.kind for name, parameter in inspect.signature(fastcopy.copy).parameters.items()}
    in_front = [name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert in_front == ["sources", "destination"]
    assert "parallel" in kinds


def test_there_is_no_other_name() -> None:
    """A name that is not exported is an AttributeError, as in any module."""
    with pytest.raises(AttributeError, match="nonsense"):
        fastcopy.nonsense  # noqa: B018  (the access is the test)


def test_one_version() -> None:
    """The module, the command and pyproject.toml agree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert fastcopy.__version__ == project["version"]
    outcome = run_fastcopy("--version")
    assert (outcome.exit_code, outcome.stdout) == (0, f"fastcopy {project['version']}\n")


def test_the_version_loads_nothing_heavy() -> None:
    """`fastcopy --version` imports none of asyncio, typer, tqdm, psutil and asyncssh."""
    code = "import sys; sys.argv = ['fastcopy', '--version']; from fastcopy.__main__ import main; main(); "
    code += "print([name for name in ('asyncio', 'typer', 'tqdm', 'psutil', 'asyncssh') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[1:] == ["[]"]


def test_the_command_line_loads_nothing_it_may_not_need() -> None:
    """Up to the start of a job none of psutil, tqdm, asyncssh, pydantic and rich is imported."""
    code = "import sys; from fastcopy.cli.app import run; code = run(['one-name-only']); "
    code += "print(code, [n for n in ('psutil', 'tqdm', 'asyncssh', 'pydantic', 'rich') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "2 []\n"


def options_in(text: str) -> set[str]:
    found = re.findall(r"^  (-[^ ,]+(?:, -[^ ,]+)*)", text, re.MULTILINE)
    return {", ".join(sorted(names.split(", "), key=lambda name: name.startswith("--"))) for names in found}


def test_help_tells_every_option_by_its_name() -> None:
    """`fastcopy copy --help` lists exactly the design's options, says what is not kept, and is plain text."""
    outcome = run_fastcopy("copy", "--help", variables={"COLUMNS": "80"})
    assert (outcome.exit_code, outcome.stderr) == (0, "")
    assert options_in(outcome.stdout) == OPTIONS
    assert "owner and ACL are not kept" in " ".join(outcome.stdout.split())
    assert outcome.stdout.isascii()


def test_help_names_the_commands() -> None:
    """`fastcopy --help` lists the commands and the exit codes."""
    outcome = run_fastcopy("--help")
    commands = re.findall(r"^  ([a-z]+)  ", outcome.stdout.partition("Commands:")[2], re.MULTILINE)
    assert (outcome.exit_code, commands) == (0, ["copy", "demo"])
    assert "Exit codes: 0 " in outcome.stdout


def error_classes() -> list[type[errors.FastcopyError]]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FastcopyError)]


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_has_the_exit_code_of_its_family(kind: type[errors.FastcopyError]) -> None:
    """The table of exit codes holds for every error class there is."""
    family = next(base.__name__ for base in kind.__mro__ if base.__name__ in EXIT_CODES)
    assert kind.exit_code == EXIT_CODES[family]


def test_the_order_of_exit_codes() -> None:
    """When several hold: 6, then 5, 7, 3, 4."""
    codes = [4, 3, 7, 5, 6]
    order = []
    while codes:
        order.append(exit_code_of(codes))
        codes.remove(order[-1])
    assert order == [6, 5, 7, 3, 4]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "SRC... DST"),
        (("copy",), "no source"),
        (("copy", "one"), "the source or the destination"),
        (("--no-such-option", "a", "b"), "--no-such-option"),
        (("copy", "--parallel"), "--parallel"),
        (("copy", "-n", "0", "a", "b"), "--parallel: 0 is outside 1 to 256"),
        (("copy", "-n", "\x1b[2J", "a", "b"), "--parallel: '\\x1b[2J'"),
        (("copy", "-q", "-v", "a", "b"), "-q and -v"),
        (("copy", "-4", "-6", "a", "b"), "-4 and -6"),
        (("copy", "--json", "/nonexistent/report.json", "a", "b"), "--json: cannot write /nonexistent/report.json"),
        (("copy", "-oPort", "a", "h:b"), "-o: 'Port'"),
        (("copy", "a", "b\x1b]0;x\x07:c"), "b\\x1b]0;x\\x07:c"),
        (("demo", "extra"), "extra was not expected there"),
        (("demo", "--files", "0"), "--files: 0"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_2(words: tuple[str, ...], told: str) -> None:
    """Whatever is wrong with the words: exit 2, one line under the program's name that tells it, nothing on stdout."""
    outcome = run_fastcopy(*words)
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert re.fullmatch(r"fastcopy: [ -~]+\n", outcome.stderr), outcome.stderr
    assert told in outcome.stderr


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run_and_say_how_they_are_used(example: Path) -> None:
    """Each example, started without arguments, says in one line how it is used."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr.startswith("usage: ")) == (2, True), done.stderr
