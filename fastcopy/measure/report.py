"""What a job did, as one frozen value, and the builder that collects it while the job runs.

The JSON form is version 1 of the report: its keys and types are a promise (README, "Exit codes and JSON"), held by
tests/unit/test_report.py. Sizes are bytes, times seconds, null is "not known", never 0. Imports only the values.
Invariant: memory is bounded however many files fail; what is left out of the list is still counted.
"""

from __future__ import annotations

import base64
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastcopy.errors import EXIT_PRECEDENCE, FastcopyError
from fastcopy.model import CpuUsage, Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

REPORT_VERSION = 1
PHASES = ("connect", "scan", "copy", "verify", "commit")
#: Failures kept with path and message; further ones are only counted. Source: law 14 (bounded memory).
MAX_FAILURES = 10_000
#: Different warnings kept. Source: law 14.
MAX_WARNINGS = 1_000
_GIB = 1 << 30

#: What one file's failure counts as when its class has no code of its own there. Source: law 7.
_FILE_FAILED = 4
#: Beside the five that rank (design: 6, then 5, 7, 3, 4) a job-wide error may be 2 or 1; "some files failed, the rest
#: are copied" would then be untrue, so 4 comes last.
_EXIT_ORDER = (*EXIT_PRECEDENCE[:-1], 2, 1, EXIT_PRECEDENCE[-1])


def exit_code_of(codes: Iterable[int]) -> int:
    """Return the exit code that stands for all of `codes`: 0 for none, else the most serious one."""
    found = set(codes) - {0}
    return next((code for code in _EXIT_ORDER if code in found), 1 if found else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values the job really used; None where a knob did not apply or is not known."""

    parallel: int | None = None
    connections: int | None = None
    request_bytes: int | None = None
    queue_depth: int | None = None
    cipher: str | None = None
    compress: bool = False
    limit_bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    total: int = 0
    copied: int = 0
    skipped: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteCounts:
    """`resumed` came from an earlier run, `wasted` was moved in vain (resent or thrown away)."""

    total: int = 0
    copied: int = 0
    resumed: int = 0
    wasted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCpu:
    """CPU one side spent on the job. `usage` is None where nobody could tell (source "none").

    `source` is "psutil", "procfs", "ps" or "none"; ps tells user and system time only as a sum.
    """

    usage: CpuUsage | None = None
    source: str = "none"

    def seconds_per_gib(self, size_bytes: int) -> float | None:
        """CPU seconds per GiB copied; None without a figure or without a byte."""
        return self.usage.total_s * _GIB / size_bytes if self.usage is not None and size_bytes > 0 else None

    def to_json(self, size_bytes: int) -> dict[str, Any]:
        split = self.usage if self.source != "ps" else None
        return {
            "user_s": split.user_s if split else None,
            "system_s": split.system_s if split else None,
            "s_per_gib": self.seconds_per_gib(size_bytes),
            "source": self.source,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The job could not have mode `asked` and went on with `used`."""

    asked: str
    used: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One thing that went wrong; `path` is b"" for an error of the whole job."""

    path: bytes
    kind: str
    message: str
    exit_code: int

    def to_json(self) -> dict[str, Any]:
        try:
            named = {"path": self.path.decode()}
        except UnicodeDecodeError:
            named = {
                "path": self.path.decode(errors="backslashreplace"),
                "path_b64": base64.b64encode(self.path).decode("ascii"),
            }
        return {**named, "kind": self.kind, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything there is to tell about a job that ended.

    `exit_code` is computed over all failures, those beyond MAX_FAILURES included. `error` is the job-wide error, if
    one ended the job; it stands in `failures` too, with path b"".
    """

    command: str
    exit_code: int
    direction: Direction
    mode: str
    ssh: str | None
    verify: str
    durable: str
    settings: Settings
    files: FileCounts
    bytes: ByteCounts
    seconds: float
    phases_s: Mapping[str, float]
    rtt_s: float | None
    cpu_local: SideCpu
    cpu_remote: SideCpu
    retries: int
    fallbacks: tuple[Fallback, ...]
    failures: tuple[Failure, ...]
    warnings: tuple[str, ...]
    error: FastcopyError | None = field(default=None, compare=False, repr=False)

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes copied per second of the whole job, logging in included."""
        return self.bytes.copied / self.seconds if self.seconds > 0 else None

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists, strings and numbers, ready for json.dumps."""
        settings, files, size = self.settings, self.files, self.bytes
        return {
            "version": REPORT_VERSION,
            "command": self.command,
            "exit_code": self.exit_code,
            "direction": self.direction.value,
            "mode": self.mode,
            "ssh": self.ssh,
            "verify": self.verify,
            "durable": self.durable,
            "settings": {name: getattr(settings, name) for name in Settings.__slots__},
            "files": {name: getattr(files, name) for name in FileCounts.__slots__},
            "bytes": {name: getattr(size, name) for name in ByteCounts.__slots__},
            "seconds": self.seconds,
            "bytes_per_s": self.bytes_per_s,
            "phases_s": dict(self.phases_s),
            "rtt_s": self.rtt_s,
            "cpu": {"local": self.cpu_local.to_json(size.copied), "remote": self.cpu_remote.to_json(size.copied)},
            "retries": self.retries,
            "fallbacks": [{"from": each.asked, "to": each.used, "why": each.why} for each in self.fallbacks],
            "failures": [each.to_json() for each in self.failures],
            "warnings": list(self.warnings),
        }


class ReportBuilder:
    """Collect what happens; one thread, the event loop's, calls it.

    The plain attributes are set by whoever knows; the methods keep counts, exit code and bounds right.
    """

    def __init__(self, *, command: str = "copy", clock: Callable[[], float] = time.monotonic) -> None:
        self.direction = Direction.LOCAL
        self.mode = "sftp"
        self.ssh: str | None = None
        self.verify = "size"
        self.durable = "unknown"
        self.settings = Settings()
        self.files_total = 0
        self.bytes_total = 0
        self.bytes_resumed = 0
        self.bytes_wasted = 0
        self.retries = 0
        self.rtt_s: float | None = None
        self.cpu_local = SideCpu()
        self.cpu_remote = SideCpu()
        self._command = command
        self._clock = clock
        self._began_s = clock()
        self._phases_s = dict.fromkeys(PHASES, 0.0)
        self._open_phases: dict[str, tuple[int, float]] = {}  # name -> (how often entered, when first)
        self._files_copied = 0
        self._files_skipped = 0
        self._files_failed = 0
        self._bytes_copied = 0
        self._failures: list[Failure] = []
        self._codes: set[int] = set()
        self._warnings: dict[str, None] = {}
        self._fallbacks: list[Fallback] = []
        self._error: FastcopyError | None = None

    def __repr__(self) -> str:
        done = f"{self._files_copied} copied, {self._files_skipped} skipped, {self._files_failed} failed"
        return f"<ReportBuilder {done} of {self.files_total}>"

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to `name`. Phases may overlap; one entered twice at once counts once."""
        depth, since_s = self._open_phases.get(name, (0, self._clock()))
        self._open_phases[name] = depth + 1, since_s
        try:
            yield
        finally:
            depth, since_s = self._open_phases.pop(name)
            if depth > 1:
                self._open_phases[name] = depth - 1, since_s
            else:
                self._phases_s[name] = self._phases_s.get(name, 0.0) + self._clock() - since_s

    def found(self, files: int, size_bytes: int) -> None:
        """Count what the scan came upon: every file asked for, those skipped or failed later included."""
        self.files_total += files
        self.bytes_total += size_bytes

    def copied(self, size_bytes: int) -> None:
        """Count one file that now stands whole under its name; `size_bytes` were moved for it in this run."""
        self._files_copied += 1
        self._bytes_copied += size_bytes

    def skipped(self) -> None:
        """Count one file that was there already, or was left out on purpose."""
        self._files_skipped += 1

    def failed(self, path: bytes, error: BaseException) -> None:
        """Count one file that failed with `error`; any exception will do."""
        self._files_failed += 1
        code = error.exit_code if isinstance(error, FastcopyError) else _FILE_FAILED
        self._record(path, error, code if code in EXIT_PRECEDENCE else _FILE_FAILED)

    def aborted(self, error: FastcopyError) -> None:
        """Record the error that ended the whole job. The first one stays `report.error`."""
        self._error = self._error or error
        self._record(b"", error, error.exit_code)

    def warn(self, message: str) -> bool:
        """Keep `message` once, in order. Returns whether it was new."""
        if message in self._warnings or len(self._warnings) >= MAX_WARNINGS:
            return False
        self._warnings[message] = None
        return True

    def fell_back(self, asked: str, used: str, why: str) -> None:
        """Record that mode `asked` could not be had (law 11: a fallback is an event, a warning and a field)."""
        self._fallbacks.append(Fallback(asked=asked, used=used, why=why))
        self.warn(f"{asked} could not be had, the job goes on with {used}: {why}")

    def build(self) -> Report:
        """Return the report as of now; may be called again."""
        now_s = self._clock()
        running = {name: now_s - since_s for name, (_, since_s) in self._open_phases.items()}
        phases = {name: spent + running.pop(name, 0.0) for name, spent in self._phases_s.items()} | running
        unlisted = self._files_failed + bool(self._error) - len(self._failures)
        more = (f"{unlisted} further failures are counted but not listed",) if unlisted > 0 else ()
        return Report(
            command=self._command,
            exit_code=exit_code_of(self._codes),
            direction=self.direction,
            mode=self.mode,
            ssh=self.ssh,
            verify=self.verify,
            durable=self.durable,
            settings=self.settings,
            files=FileCounts(
                total=self.files_total,
                copied=self._files_copied,
                skipped=self._files_skipped,
                failed=self._files_failed,
            ),
            bytes=ByteCounts(
                total=self.bytes_total,
                copied=self._bytes_copied,
                resumed=self.bytes_resumed,
                wasted=self.bytes_wasted,
            ),
            seconds=now_s - self._began_s,
            phases_s=phases,
            rtt_s=self.rtt_s,
            cpu_local=self.cpu_local,
            cpu_remote=self.cpu_remote,
            retries=self.retries,
            fallbacks=tuple(self._fallbacks),
            failures=tuple(self._failures),
            warnings=(*self._warnings, *more),
            error=self._error,
        )

    def _record(self, path: bytes, error: BaseException, exit_code: int) -> None:
        self._codes.add(exit_code)
        if len(self._failures) >= MAX_FAILURES:
            return
        kind = error.kind if isinstance(error, FastcopyError) else type(error).__name__
        message = str(error) or kind
        self._failures.append(Failure(path=path, kind=kind, message=message, exit_code=exit_code))
