"""Which way to speak SSH: the system's ssh where there is one, else asyncssh. The only place that decides it.

Imports neither way before it is chosen: start-up counts.
"""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING

from fastcopy.config import SshOptions, SshWay
from fastcopy.errors import UsageError

if TYPE_CHECKING:
    from fastcopy.config import TransferOptions
    from fastcopy.connection.base import Connector


#: Bytes one asyncssh channel keeps in memory at most; more buys no speed. Source: our measurement.
_CHANNEL_MEMORY_BYTES = 4 << 20
#: Channels supposed where their number is still to be chosen.
_LIKELY_CHANNELS = 16


def connector_for(
    host: str, user: str | None, port: int | None, options: SshOptions, transfer: TransferOptions
) -> Connector:
    """Return what makes logins to `host`.

    Args:
        transfer: its budget of memory is shared among the channels.
        port: what the location's URL says; it wins over the options'.
    Raises: UsageError when OpenSSH is asked for and there is none.
    """
    if port is not None:
        options = dataclasses.replace(options, port=port)
    way = options.way
    if way is SshWay.AUTO:
        way = SshWay.OPENSSH if shutil.which("ssh") else SshWay.ASYNCSSH
    if way is SshWay.OPENSSH:
        if not shutil.which("ssh"):
            raise UsageError("there is no ssh program on PATH: install OpenSSH's client, or use --ssh asyncssh")
        from fastcopy.connection.openssh import OpensshConnector

        return OpensshConnector(host, user, options)
    from fastcopy.connection.asyncssh_login import AsyncsshConnector
    from fastcopy.connection.terminal import ask

    share_bytes = transfer.memory_bytes // (transfer.parallel or _LIKELY_CHANNELS)
    return AsyncsshConnector(host, user, options, ask=ask, memory_bytes=min(share_bytes, _CHANNEL_MEMORY_BYTES))
