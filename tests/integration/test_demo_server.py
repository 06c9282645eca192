"""The embedded server: in this loop and in a process of its own, it serves one directory and leaves nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from fastcopy.connection.asyncssh_login import AsyncsshConnector
from fastcopy.demo.process import DemoProcess
from fastcopy.demo.server import DemoServer
from fastcopy.errors import ConnectError, LoginRefused, NoSftp
from tests.support.asyncssh_logins import INIT, VERSION_3, hello, new_key, refused

if TYPE_CHECKING:
    from pathlib import Path

KINDS = [DemoServer, DemoProcess]


async def use(server: DemoServer | DemoProcess) -> None:
    """Log in and begin SFTP."""
    made = AsyncsshConnector(server.host, "demo", server.ssh_options())
    connection = await made.connect(interactive=False)
    transport = await connection.open_sftp()
    assert await asyncio.to_thread(hello, transport) == VERSION_3
    transport.close()
    await connection.close()
    await made.close()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_it_serves_and_ends(tmp_path: Path, kind: type[DemoServer | DemoProcess]) -> None:
    """Its own options reach it; after the block there is no listener and no key left."""
    async with kind(tmp_path) as server:
        await use(server)
        await use(server)
        keys = server.client_key_path.parent
        assert (server.client_key_path.stat().st_mode & 0o777, keys.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (is_listening(server.port), keys.exists()) == (False, False)


@pytest.mark.parametrize("kind", KINDS)
async def test_openssh_reaches_it_too(tmp_path: Path, kind: type[DemoServer | DemoProcess]) -> None:
    """The same options in an sftp command line list the directory, which is all that is seen."""
    (tmp_path / "hello.dmp").write_bytes(b"x")
    async with kind(tmp_path) as server:
        options = server.ssh_options()
        words = ["sftp", "-q", "-F", "none", "-P", str(options.port), "-i", options.identities[0], "-b", "-"]
        words += [word for option in options.options for word in ("-o", option)]
        process = await asyncio.create_subprocess_exec(
            *words, f"demo@{server.host}", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        output, _ = await process.communicate(b"ls -1 /\nls -1 /../..\n")
    assert (process.returncode, output.count(b"hello.dmp")) == (0, 2)


async def test_a_stranger_is_refused(tmp_path: Path) -> None:
    """Only the key made for it logs in."""
    async with DemoServer(tmp_path) as server:
        stranger = new_key(tmp_path / "stranger")
        options = server.ssh_options()
        made = AsyncsshConnector(
            server.host,
            "demo",
            type(options)(port=options.port, options=options.options, config_file="none", identities=(str(stranger),)),
        )
        assert type(await refused(made)) is LoginRefused


async def test_it_can_be_without_sftp(tmp_path: Path) -> None:
    """For tests: a server that has no SFTP."""
    async with DemoServer(tmp_path, allow_sftp=False, process_factory=lambda process: process.exit(0)) as server:
        made = AsyncsshConnector(server.host, "demo", server.ssh_options())
        connection = await made.connect(interactive=False)
        with pytest.raises(NoSftp):
            await connection.open_sftp()
        await connection.close()


async def test_it_ends_under_its_clients(tmp_path: Path) -> None:
    """A server that ends while a client is connected does not wait for him."""
    async with DemoServer(tmp_path) as server:
        made = AsyncsshConnector(server.host, "demo", server.ssh_options())
        connection = await made.connect(interactive=False)
        transport = await connection.open_sftp()
        transport.write(INIT)
    await transport.wait_end(10)
    transport.close()
    await connection.close()


async def test_the_process_goes_with_its_parent(tmp_path: Path) -> None:
    """A client that is killed takes the server's process and its keys with it."""
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from fastcopy.demo.process import DemoProcess\n"
        "async def main():\n"
        "    async with DemoProcess(Path(sys.argv[1])) as server:\n"
        "        print(server.pid, server.client_key_path, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(tmp_path), stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid, key = (await parent.stdout.readline()).decode().split()
    server = psutil.Process(int(pid))
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await asyncio.to_thread(psutil.wait_procs, [server], 10)
    assert (server.is_running(), os.path.exists(key)) == (False, False)  # noqa: ASYNC240 -- a look


async def test_a_process_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot come up is an error with a sentence."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ConnectError, match="did not start"):
        async with DemoProcess(tmp_path):
            pass
