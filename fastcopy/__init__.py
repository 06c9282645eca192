"""Copy file sets between hosts over many SFTP channels at once. `await fastcopy.copy([...], "host:/dir")`.

The library's one function; what it needs is imported when it is called, for `fastcopy --version` passes here too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastcopy.errors import FastcopyError
    from fastcopy.events import Listener
    from fastcopy.measure.report import Report
    from fastcopy.plan.locations import Location

__all__ = ["FastcopyError", "Report", "__version__", "copy"]
__version__ = "0.1.0"


async def copy(
    sources: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    parallel: int | None = None,
    connections: int | None = None,
    request_bytes: int | None = None,
    queue_depth: int | None = None,
    ciphers: Sequence[str] = (),
    compress: bool = False,
    ssh: str = "auto",
    port: int | None = None,
    identities: Sequence[str | os.PathLike[str]] = (),
    ssh_config: str | os.PathLike[str] | None = None,
    jump: str | None = None,
    ssh_options: Sequence[str] = (),
    reuse_master: bool = False,
    preserve: bool = False,
    force: bool = False,
    symlinks: str = "copy",
    timeout_s: float | None = None,
    listener: Listener | None = None,
) -> Report:
    """Copy `sources` to `destination` and tell what was done.

    Args:
        sources: as on the command line (`[user@]host:path`, a URL, a local path); a `pathlib.Path` is always local.
        destination: the same, one.
        parallel: channels; None chooses. The other options are those of `fastcopy copy --help` in the same way.
        timeout_s: how long a login may take and a channel may stay silent; None: 30 and 60 s.
        listener: called with each event (fastcopy.events) on the loop's thread; must neither block nor raise.
    Returns: the report. Files that failed stand in `report.failures`: look at it, or at `report.exit_code`.
    Raises: FastcopyError when the job as a whole failed (no login, nothing matched, ...).
    Cancellation: ends the job's processes and threads, keeps whole files, removes or records the others.
    """
    from dataclasses import replace

    from fastcopy import config, events, job

    names = [sources] if isinstance(sources, str | os.PathLike) else sources
    ways = config.SshOptions(
        way=_member(config.SshWay, ssh, "ssh"),
        port=port,
        identities=tuple(os.fspath(path) for path in identities),
        config_file=None if ssh_config is None else os.fspath(ssh_config),
        jump=jump,
        options=tuple(ssh_options),
        ciphers=tuple(ciphers),
        compress=compress,
        reuse_master=reuse_master,
    )
    transfer = config.TransferOptions(
        parallel=parallel,
        connections=connections,
        request_bytes=request_bytes,
        queue_depth=config.DEFAULT_QUEUE_DEPTH if queue_depth is None else queue_depth,
        preserve=preserve,
        force=force,
        symlinks=_member(config.SymlinkPolicy, symlinks, "symlinks"),
    )
    if timeout_s is not None:
        ways, transfer = replace(ways, connect_timeout_s=timeout_s), replace(transfer, timeout_s=timeout_s)
    report = await job.run_copy(
        [_location(each) for each in names],
        _location(destination),
        config.CopyOptions(ssh=ways, transfer=transfer),
        listener or events.ignore,
    )
    if report.error is not None:
        raise report.error
    return report


def _location(name: str | os.PathLike[str]) -> Location:
    from fastcopy.plan.locations import Location, parse_location

    path = os.fsencode(name)
    return parse_location(path) if isinstance(name, str) else Location(path=path)


def _member(kind: Any, value: str, option: str) -> Any:
    from fastcopy.errors import InvalidValue

    try:
        return kind(value)
    except ValueError as exc:
        raise InvalidValue(f"{value!r} is none of {', '.join(each.value for each in kind)}", option=option) from exc


def __getattr__(name: str) -> Any:
    if name == "FastcopyError":
        from fastcopy.errors import FastcopyError

        return FastcopyError
    if name == "Report":
        from fastcopy.measure.report import Report

        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
