"""Run the installed `fastcopy` command as a user does, and check what must hold after every run.

Imports nothing of fastcopy: only the command line is under test. Every run gets an empty home, no terminal and no
agent. Invariant: a run that prints a traceback, outlives its time, or leaves a process or a temporary file behind
fails the test that made it, whatever that test looks at.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from tests.support.sshd import obeying_modes

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds one run may take unless the test says otherwise; far above what any needs on a busy machine.
DEFAULT_TIMEOUT_S = 60.0
#: Seconds helper processes may take to end after the command has. Source: law 12.
_ORPHAN_GRACE_S = 2.0
#: What Python prints when a program was not careful.
_SLIPS = ("Traceback", "ResourceWarning", "never retrieved", "never awaited", "Exception ignored")
_MARK = "FASTCOPY_TEST_RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended. `report` is the parsed --json report, {} where there was none."""

    exit_code: int
    stdout: str
    stderr: str
    report: dict[str, Any]

    @property
    def said(self) -> str:
        """What a user reads: stderr, without line breaks."""
        return " ".join(self.stderr.split())


def fastcopy_command() -> list[str]:
    """Return how to start the installed command: the script beside this Python, else the module."""
    script = Path(sys.executable).with_name("fastcopy")
    return [str(script)] if script.exists() else [sys.executable, "-m", "fastcopy"]


class Environment:
    """What one run sees of the world: an empty home, an empty temporary directory, and a mark to find its processes."""

    def __init__(self, variables: dict[str, str] | None = None) -> None:
        # Not below pytest's own long path: an ssh control socket's path may have at most about 90 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="fc-"))
        self._temporary = self.directory / "tmp"
        self._temporary.mkdir()
        self._mark = uuid.uuid4().hex
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ}
        self.variables = {
            **kept,
            "HOME": str(self.directory),
            "TMPDIR": str(self._temporary),
            _MARK: self._mark,
            "PYTHONWARNINGS": "default::ResourceWarning",
            **(variables or {}),
        }

    def orphans(self) -> list[str]:
        """Return the command lines of this run's processes that still live after the grace."""
        deadline = time.monotonic() + _ORPHAN_GRACE_S
        while (alive := self._processes()) and time.monotonic() < deadline:
            psutil.wait_procs(alive, timeout=0.05)
        lines = []
        for process in alive:
            with contextlib.suppress(psutil.Error):
                lines.append(" ".join(process.cmdline()))
                process.kill()
        return lines

    def _processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(_MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def temporary_files(self) -> list[str]:
        """Return what the run left in its temporary directory."""
        return sorted(str(path.relative_to(self._temporary)) for path in self._temporary.rglob("*"))

    def remove(self) -> None:
        shutil.rmtree(self.directory)


class Running:
    """A run under way, in a `with` that ends it whatever happens; a test may send signals to `process`."""

    def __init__(
        self,
        arguments: Sequence[str | bytes | Path],
        *,
        stdin: bytes = b"",
        cwd: Path | None = None,
        umask: int = 0o022,
        obey_modes: bool = False,
        variables: dict[str, str] | None = None,
    ) -> None:
        self._environment = Environment(variables)
        command = obeying_modes(fastcopy_command()) if obey_modes else fastcopy_command()
        line: list[str | bytes | Path] = [*command, *arguments]
        self._stdin = stdin
        self._finished = False
        self._shown = " ".join(os.fsdecode(word) for word in line)
        self.process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or self._environment.directory,
            env=self._environment.variables,
            umask=umask,
            start_new_session=True,
        )

    def finish(self, timeout_s: float = DEFAULT_TIMEOUT_S, *, killed: bool = False) -> Outcome:
        """Wait for the end, check what must always hold, and tell how it ended.

        Args:
            killed: by SIGKILL, which leaves nobody to clean up: then nothing left behind is an error.
        """
        try:
            stdout, stderr = self.process.communicate(self._stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, stderr = self.process.communicate(timeout=10)
            said = stderr.decode(errors="backslashreplace")
            raise AssertionError(f"no end within {timeout_s} s: {self._shown}\n{said}") from None
        finally:
            self._finished = True
            orphans = self._environment.orphans()
            temporary_files = self._environment.temporary_files()
            self._environment.remove()
        outcome = Outcome(
            exit_code=self.process.returncode,
            stdout=stdout.decode(errors="backslashreplace"),
            stderr=stderr.decode(errors="backslashreplace"),
            report=_report_in(stdout),
        )
        slips = [slip for slip in _SLIPS if slip in outcome.stderr]
        assert slips == [], f"{self._shown}\n{outcome.stderr}"
        if not killed:
            assert orphans == [], f"processes left behind by {self._shown}"
            assert temporary_files == [], f"temporary files left behind by {self._shown}"
        return outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._finished:
            return
        self.process.kill()
        self.process.communicate(timeout=10)
        self._environment.orphans()
        self._environment.remove()


def fastcopy(*arguments: str | bytes | Path, timeout_s: float = DEFAULT_TIMEOUT_S, **how: Any) -> Outcome:
    """Run `fastcopy ARGUMENTS` to its end.

    Args:
        arguments: as a shell would pass them; bytes for names that are not UTF-8.
        how: of `Running`: stdin (never a terminal), cwd, umask, obey_modes (permission bits hold for root too),
            variables (further environment).
    Raises: AssertionError for a traceback, a slip of Python's, a process or temporary file left behind, or no end
        in `timeout_s`.
    """
    with Running(arguments, **how) as running:
        return running.finish(timeout_s)


def copy(*arguments: str | bytes | Path, config: Path | None = None, **how: Any) -> Outcome:
    """Run `fastcopy copy --json - ARGUMENTS`, with `-F config` if given; see `fastcopy` for the rest."""
    chosen: list[str | bytes | Path] = [] if config is None else ["-F", config]
    return fastcopy("copy", "--json", "-", *chosen, *arguments, **how)


def _report_in(stdout: bytes) -> dict[str, Any]:
    if not stdout.lstrip().startswith(b"{"):
        return {}
    report: dict[str, Any] = json.loads(stdout)
    return report
