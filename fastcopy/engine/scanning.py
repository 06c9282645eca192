"""One way to list a tree, wherever it is: windows of items, from the local disk in a worker thread or over SFTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fastcopy.engine.remote_scan import Item, RemoteScan
from fastcopy.store.scan import scan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastcopy.sftp.client import SftpClient


def scan_tree(client: SftpClient | None, root: bytes, *, follow: bool) -> AsyncIterator[list[Item]]:
    """List everything beneath the folder `root`: on the server of `client`, or here when that is None."""
    return _local_windows(root, follow) if client is None else RemoteScan(client, root, follow=follow).windows()


async def _local_windows(root: bytes, follow: bool) -> AsyncIterator[list[Item]]:
    windows = scan(root, follow=follow)
    while (window := await asyncio.to_thread(next, windows, None)) is not None:
        yield window
