"""One `fastcopy copy` from its request to its exit code: run the job, show progress, print the report.

Policy is elsewhere (arguments, summary, report); this file owns what goes to which stream and when.
Invariant: stdout stays empty unless --json - asks for the report there, and then it holds nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING

from fastcopy.cli import signals, summary
from fastcopy.cli.progress import Progress
from fastcopy.errors import InvalidValue, printable
from fastcopy.plan.locations import colon_hint, local_reading

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, BinaryIO

    from fastcopy.cli.arguments import CopyRequest
    from fastcopy.cli.console import Console
    from fastcopy.events import Listener
    from fastcopy.measure.report import Report

STDOUT = "-"


def copy(request: CopyRequest, console: Console) -> int:
    """Do what `request` asks and return the exit code.

    Raises: UsageError when the JSON file cannot be opened, before anything is connected.
    """
    with contextlib.ExitStack() as stack:
        json_file = _open_json(request.json_to)
        if json_file is not None:
            stack.callback(_close_quietly, json_file)
        if not request.quiet:
            _hint_at_local_names(request, console)
        progress = Progress(console, sys.stderr, quiet=request.quiet)
        stack.callback(progress.close)
        try:
            report = signals.run(lambda: _job(request, progress))
        except signals.Interrupted as interrupted:
            progress.close()
            console.complain(interrupted_line(interrupted, progress.tally.files_copied))
            return interrupted.exit_code
        progress.close()
        _show(report, request, console, told=progress.told)
        return _write_json(report, request.json_to, json_file, console)


def _job(request: CopyRequest, listener: Listener) -> Coroutine[Any, Any, Report]:
    from fastcopy.job import run_copy

    return run_copy(request.sources, request.destination, request.options, listener, whole_process=True)


def _show(report: Report, request: CopyRequest, console: Console, *, told: set[str]) -> None:
    """Say on stderr what there is to say: warnings, failures, the whole report with -v, one last line."""
    if not request.quiet:
        console.tell(f"fastcopy: warning: {text}" for text in report.warnings if text not in told)
    limit = None if request.verbose else summary.SHOWN_FAILURES
    for line in summary.failure_lines(report.failures, limit=limit):
        console.complain(line)
    if request.verbose and report.error is not None:
        console.tell(traceback_lines(report.error))
    if request.verbose:
        console.tell(summary.table(report))
    if not request.quiet and (report.error is None or report.files.copied):
        console.tell([summary.last_line(report)])


def interrupted_line(interrupted: signals.Interrupted, files_copied: int) -> str:
    """Return the sentence for someone whose copy was ended by a signal."""
    word = {2: "interrupted", 15: "told to end"}.get(interrupted.signal, f"ended by {interrupted.signal.name}")
    whole = "1 file is whole" if files_copied == 1 else f"{files_copied} files are whole"
    return f"{word}; {whole}, none is half under its name. Run the same command again to continue."


def traceback_lines(error: BaseException) -> list[str]:
    """Return the traceback of `error` and its causes, line by line."""
    return "".join(traceback.format_exception(error)).splitlines()


def _open_json(target: str | None) -> BinaryIO | None:
    """Open the file for the report now: a wrong name is told before a night's copy, not after it."""
    if target is None or target == STDOUT:
        return None
    try:
        # Not truncated before there is a report to write: an interrupted run leaves the old one.
        return os.fdopen(os.open(os.fsencode(target), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb")
    except OSError as exc:
        raise InvalidValue(f"cannot write {printable(target)}: {exc.strerror}", option="--json") from exc


def _close_quietly(file: BinaryIO) -> None:
    with contextlib.suppress(OSError):  # what could not be written was told when it was written
        file.close()


def _write_json(report: Report, target: str | None, file: BinaryIO | None, console: Console) -> int:
    """Write the report where it was asked for. Returns the exit code: a report that is lost is an error by itself.

    A reader of stdout that went away wanted no more: that changes nothing.
    """
    if target is None:
        return report.exit_code
    text = json.dumps(report.to_json(), indent=2)
    trouble: OSError | None = None
    if file is None:
        trouble = console.result(text.splitlines())
    else:
        try:
            with contextlib.suppress(OSError):  # a pipe or device has no length
                file.truncate(0)
            file.write(text.encode("ascii") + b"\n")
            file.flush()
        except OSError as exc:
            trouble = exc
    if trouble is None or isinstance(trouble, BrokenPipeError):
        return report.exit_code
    console.complain(f"the report could not be written to {printable(target)}: {trouble.strerror}")
    return report.exit_code or 1


def _hint_at_local_names(request: CopyRequest, console: Console) -> None:
    """Say it when a name was read as host:path and a file of that name is here."""
    for typed in request.typed:
        name = local_reading(typed)
        if name is not None and os.path.lexists(name):
            console.complain(f"warning: {colon_hint(typed)}")
