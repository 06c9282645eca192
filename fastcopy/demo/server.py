"""An embedded SFTP server (asyncssh) on a free loopback port, with keys made for it alone.

Owns the listener, everybody connected to it, and a private directory with the keys. Imports nothing of fastcopy but the
options that reach it. Serves one directory as `/` to whoever has the key. Not meant to be reached by others.
Invariant: after the `async with` block there is no listener, connection, key or file of it left.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import asyncssh

from fastcopy.config import SshOptions, SshWay

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPBACK = "127.0.0.1"
#: Bytes between changes of keys: never within a demonstration. Source: as sshd does for AES.
_REKEY_BYTES = 1 << 36


class DemoLogin(asyncssh.SSHServer):
    """One client of a DemoServer. Tests subclass it for a server that misbehaves."""

    def __init__(self, demo: DemoServer) -> None:
        self.demo = demo
        self.connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.connection = conn
        self.demo.connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.connection is not None:
            self.demo.connections.discard(self.connection)


class DemoServer:
    """A running server: `async with DemoServer(root) as server: ...`. It lives on the loop that entered it."""

    def __init__(
        self,
        root: Path,
        *,
        sftp_factory: Callable[[asyncssh.SSHServerChannel[bytes]], asyncssh.SFTPServer] | None = None,
        process_factory: Callable[[asyncssh.SSHServerProcess[bytes]], Any] | None = None,
        login_class: type[DemoLogin] = DemoLogin,
        allow_sftp: bool = True,
        **server_options: Any,
    ) -> None:
        """Prepare; nothing is reached before the block is entered.

        Args:
            root: the directory that clients see as `/`.
            sftp_factory: makes the SFTP side of a session; by default asyncssh's own server below `root`.
            process_factory: runs commands; without it there is no shell.
            login_class: one is made for each client.
            allow_sftp: False makes a server that has no SFTP subsystem; give it a `process_factory` then, since
                asyncssh refuses every session where there is neither.
            server_options: further arguments of asyncssh.listen.
        """
        self.root = root
        self.host = LOOPBACK
        self.port = 0
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self._has_sftp = allow_sftp
        self._sftp_factory = sftp_factory or self._sftp
        self._process_factory = process_factory
        self._login_class = login_class
        self._server_options = server_options
        self._directory: Path | None = None
        self._acceptor: asyncssh.SSHAcceptor | None = None

    def _sftp(self, channel: asyncssh.SSHServerChannel[bytes]) -> asyncssh.SFTPServer:
        return asyncssh.SFTPServer(channel, chroot=bytes(self.root))

    async def __aenter__(self) -> Self:
        self._directory = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="fastcopy-demo-"))
        try:
            host_key = self._host_key = asyncssh.generate_private_key("ssh-ed25519")
            client_key = asyncssh.generate_private_key("ssh-ed25519")
            client_key.write_private_key(self.client_key_path)
            self.client_key_path.chmod(0o600)
            client_key.write_public_key(self.authorized_keys_path)
            options: dict[str, Any] = {
                "server_host_keys": [host_key],
                "authorized_client_keys": str(self.authorized_keys_path),
                "process_factory": self._process_factory,
                "sftp_factory": self._sftp_factory if self._has_sftp else None,
                "allow_scp": False,
                "encoding": None,
                "compression_algs": ["none", "zlib@openssh.com"],
                "gss_host": None,
                "x509_trusted_certs": None,
                "rekey_bytes": _REKEY_BYTES,
                "rekey_seconds": 0,
                **self._server_options,
            }
            self._acceptor = await asyncssh.listen(
                LOOPBACK, 0, config=None, server_factory=lambda: self._login_class(self), **options
            )
            self.port = self._acceptor.get_port()
            self.known_hosts_path.write_text(self.host_key_line + "\n")
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._end()

    async def _end(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            connections = list(self.connections)
            for connection in connections:
                connection.abort()
            for connection in connections:
                await connection.wait_closed()
            await self._acceptor.wait_closed()
            self._acceptor = None
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
            self._directory = None

    def __repr__(self) -> str:
        return f"<DemoServer {self.host}:{self.port}: {len(self.connections)} clients>"

    @property
    def directory(self) -> Path:
        """Where the keys are, while the server runs."""
        if self._directory is None:
            raise RuntimeError("the demo server is not running")
        return self._directory

    @property
    def client_key_path(self) -> Path:
        """The private key that may log in."""
        return self.directory / "client_key"

    @property
    def authorized_keys_path(self) -> Path:
        """The public keys that may log in."""
        return self.directory / "authorized_keys"

    @property
    def known_hosts_path(self) -> Path:
        """A known_hosts file with this server's key."""
        return self.directory / "known_hosts"

    @property
    def host_key_line(self) -> str:
        """This server's line for a known_hosts file."""
        kind, blob = self._host_key.export_public_key().decode("ascii").split()[:2]
        return f"[{self.host}]:{self.port} {kind} {blob}"

    def ssh_options(self, *, way: SshWay = SshWay.AUTO) -> SshOptions:
        """Return the options that reach this server, and nothing of the user's own configuration."""
        return demo_ssh_options(self.port, self.client_key_path, self.known_hosts_path, way=way)


def demo_ssh_options(port: int, client_key: Path, known_hosts: Path, *, way: SshWay) -> SshOptions:
    """Return the options that reach a server with these files, and nothing of the user's own configuration."""
    return SshOptions(
        way=way,
        port=port,
        identities=(str(client_key),),
        config_file="none",
        options=(
            f'UserKnownHostsFile="{known_hosts}"',
            "GlobalKnownHostsFile=none",
            "StrictHostKeyChecking=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "BatchMode=yes",
        ),
    )
