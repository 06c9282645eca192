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
    from fastcopy.connection.base import Connector


def connector_for(host: str, user: str | None, port: int | None, options: SshOptions) -> Connector:
    """Return what makes logins to `host`.

    Args:
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

    return AsyncsshConnector(host, user, options, ask=ask)
