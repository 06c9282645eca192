"""One way to list a tree, wherever it is: windows of items, from the local disk in a worker thread or over SFTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fastcopy.engine.remote_scan import Item, RemoteScan
from fastcopy.store.scan import scan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastcopy.engine.channels import Channels


def scan_tree(channels: Channels | None, root: bytes, *, follow: bool) -> AsyncIterator[list[Item]]:
    """List everything beneath the folder `root`: on the server of `channels`, or here when that is None."""
    return _local_windows(root, follow) if channels is None else RemoteScan(channels, root, follow=follow).windows()


async def _local_windows(root: bytes, follow: bool) -> AsyncIterator[list[Item]]:
    windows = scan(root, follow=follow)
    while (window := await asyncio.to_thread(next, windows, None)) is not None:
        yield window
