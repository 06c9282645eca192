"""A report as lines of text: the last line, the list of failures, the whole as a table. Pure.

Lines may hold names and peers' words as they came; Console makes every line printable when it writes it.
Imports the values, plan.sizes and measure.report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastcopy.errors import printable
from fastcopy.plan.sizes import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fastcopy.measure.report import Failure, Report, SideCpu

#: Failures shown on the screen; the rest are counted, and all are in --json.
SHOWN_FAILURES = 20
_GIB = 1 << 30


def last_line(report: Report) -> str:
    """Return the one line that tells how the job went."""
    files, size = report.files, report.bytes
    others = []
    if files.skipped:
        others.append(f"{files.skipped} skipped")
    if files.failed:
        others.append(f"{files.failed} failed")
    tail = f"; {', '.join(others)}" if others else ""
    if not files.copied:
        done = "Nothing copied" if files.failed or report.error else "Nothing to copy"
        return f"{done} in {format_seconds(report.seconds)}{tail}."
    rate = f" ({format_rate(report.bytes_per_s)})" if report.bytes_per_s and size.copied else ""
    count = _count(files.copied, "file")
    return (
        f"Copied {count}, {format_bytes(size.copied)} in {format_seconds(report.seconds)}{rate}{_cost(report)}{tail}."
    )


def _cost(report: Report) -> str:
    size = report.bytes.copied
    if size < _GIB // 16:  # too few bytes for the figure to mean anything: clocks tick every 10 ms
        return ""
    here, there = report.cpu_local.seconds_per_gib(size), report.cpu_remote.seconds_per_gib(size)
    sides = [f"{value:.2f} {where}" for value, where in ((here, "here"), (there, "there")) if value is not None]
    return f", CPU s/GiB {' and '.join(sides)}" if sides else ""


def failure_lines(failures: Sequence[Failure], *, limit: int | None = SHOWN_FAILURES) -> list[str]:
    """Return one line per failure, a file's with its kind first, at most `limit` of them and a count of the rest."""
    shown = failures if limit is None else failures[:limit]
    lines = [f"{each.kind}: {_said(each)}" if each.path else each.message for each in shown]
    if len(failures) > len(shown):
        lines.append(f"... and {len(failures) - len(shown)} more; --json FILE lists them all")
    return lines


def _said(failure: Failure) -> str:
    path = printable(failure.path)
    return failure.message if failure.message.startswith(f"{path}:") else f"{path}: {failure.message}"


def table(report: Report) -> list[str]:
    """Return the whole report as aligned lines."""
    rows = [
        ("copied", _how(report)),
        ("files", _files(report)),
        ("bytes", _bytes(report)),
        ("time", _time(report)),
        ("settings", _settings(report)),
        *_cpu_rows(report),
    ]
    if report.retries:
        rows.append(("retries", str(report.retries)))
    rows += [("fallback", f"{each.asked} to {each.used}: {each.why}") for each in report.fallbacks]
    rows += [("warning", text) for text in report.warnings]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _how(report: Report) -> str:
    by = f" by {report.ssh}" if report.ssh else ""
    return f"{report.direction.value}, {report.mode}{by}; verified by {report.verify}; durable: {report.durable}"


def _files(report: Report) -> str:
    files = report.files
    return f"{files.total} found, {files.copied} copied, {files.skipped} skipped, {files.failed} failed"


def _bytes(report: Report) -> str:
    size = report.bytes
    more = [
        f"{format_bytes(count)} {what}" for count, what in ((size.resumed, "resumed"), (size.wasted, "wasted")) if count
    ]
    return ", ".join([f"{format_bytes(size.copied)} copied of {format_bytes(size.total)}", *more])


def _time(report: Report) -> str:
    phases = ", ".join(f"{name} {format_seconds(spent)}" for name, spent in report.phases_s.items() if spent)
    rate = f", {format_rate(report.bytes_per_s)}" if report.bytes_per_s else ""
    rtt = f", round trip {report.rtt_s * 1000:.3g} ms" if report.rtt_s is not None else ""
    return f"{format_seconds(report.seconds)}{f' ({phases})' if phases else ''}{rate}{rtt}"


def _settings(report: Report) -> str:
    chosen = report.settings
    parts = []
    if chosen.parallel is not None:
        over = "" if chosen.connections is None else f" over {_count(chosen.connections, 'connection')}"
        parts.append(f"{_count(chosen.parallel, 'channel')}{over}")
    if chosen.request_bytes is not None:
        depth = "" if chosen.queue_depth is None else f", {chosen.queue_depth} in flight on each"
        parts.append(f"requests of {chosen.request_bytes} bytes{depth}")
    if chosen.cipher is not None:
        parts.append(chosen.cipher)
    parts.append("compressed" if chosen.compress else "not compressed")
    if chosen.limit_bytes_per_s is not None:
        parts.append(f"at most {format_rate(chosen.limit_bytes_per_s)}")
    return ", ".join(parts)


def _cpu_rows(report: Report) -> Iterable[tuple[str, str]]:
    size = report.bytes.copied
    yield "CPU here", _cpu(report.cpu_local, size)
    yield "CPU there", _cpu(report.cpu_remote, size)


def _cpu(side: SideCpu, size_bytes: int) -> str:
    if side.usage is None:
        return "not known"
    per_gib = side.seconds_per_gib(size_bytes)
    each = "" if per_gib is None else f", {per_gib:.2f} s/GiB"
    split = "" if side.source == "ps" else f" (user {side.usage.user_s:.2f} s, system {side.usage.system_s:.2f} s)"
    return f"{side.usage.total_s:.2f} s{split}{each}, by {side.source}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
