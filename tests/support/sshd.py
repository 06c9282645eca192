"""A real OpenSSH sshd on a free loopback port, and the ssh_config that reaches it as host `t`.

Owns one server process, everything it forked, and a directory with its configuration and log. Imports nothing of
fastcopy. Works for root and for a plain user, who can then log in only as himself.
Invariant: after `close` no process of this server is left, whatever state its sessions were in.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Seconds a server may take until it listens; generous for a busy machine.
_START_S = 20.0
#: Seconds killed sessions may take to be gone.
_END_S = 5.0
#: sftp-server's places: Debian, Fedora, Arch, macOS.
_SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)


def sshd_path() -> str | None:
    """Return where sshd is, also where PATH lacks /usr/sbin; None where it is not installed."""
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")


def sftp_server_path() -> str:
    """Return where OpenSSH's sftp-server is; where it is nowhere, sshd's own internal one."""
    return next((path for path in _SFTP_SERVERS if os.access(path, os.X_OK)), "internal-sftp")


def obeying_modes(command: list[str]) -> list[str]:
    """Make `command` obey permission bits even for root, by dropping the capabilities that overrule them."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--", *command]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """One host key and one client key, made once and shared by all servers of a test session."""

    host: Path
    client: Path

    @classmethod
    def generate(cls, directory: Path) -> Self:
        """Make both keys below `directory`, or find them there."""
        keys = cls(host=directory / "host_key", client=directory / "client_key")
        for path in (keys.host, keys.client):
            if not path.exists():
                make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fastcopy-tests", "-f", str(path)]
                subprocess.run(make, check=True, stdin=subprocess.DEVNULL)
        return keys


class Sshd:
    """A running sshd. A context manager: `with Sshd(directory, keys, {"MaxSessions": 1}) as sshd: ...`."""

    def __init__(
        self,
        directory: Path,
        keys: Keys,
        options: dict[str, object] | None = None,
        *,
        obey_modes: bool = False,
    ) -> None:
        """Start the server and wait until it listens.

        Args:
            directory: where configuration and log go; made when missing.
            keys: what the server shows and what it accepts.
            options: sshd_config lines by keyword. None leaves a default line out (`{"Subsystem": None}`: no SFTP).
            obey_modes: permission bits hold for sessions of root too.
        Raises: RuntimeError with the log when the server does not come up.
        """
        self.directory = directory
        self.keys = keys
        self.host = "127.0.0.1"
        directory.mkdir(parents=True, exist_ok=True)
        self._log_file = directory / "sshd.log"
        self._options = {**self._default_options(), **(options or {})}
        self._obey_modes = obey_modes
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its privilege separation directory
        for _ in range(5):  # another process may take the port between our look and sshd's bind
            self.port = _free_port()
            self._write_files()
            if self._start():
                break
        else:
            raise RuntimeError(f"sshd did not start: {self.log}")

    def _default_options(self) -> dict[str, object]:
        return {
            "HostKey": self.keys.host,
            "AuthorizedKeysFile": self.directory / "authorized_keys",
            "PidFile": "none",
            "UsePAM": "no",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "MaxStartups": "100:30:200",
            "LogLevel": "VERBOSE",
            # bash reads ~/.bashrc for sshd's commands unless it believes to be a shell in a shell: whatever the
            # account's start-up files do (wait for a lock, print text, take 0.2 s) is not what is tested.
            "SetEnv": "SHLVL=2",
            "PrintMotd": "no",
            "PrintLastLog": "no",
            "Subsystem": f"sftp {sftp_server_path()}",
        }

    def _write_files(self) -> None:
        lines = [f"ListenAddress {self.host}:{self.port}"]
        lines += [f"{keyword} {value}" for keyword, value in self._options.items() if value is not None]
        (self.directory / "sshd_config").write_text("\n".join(lines) + "\n")
        shutil.copyfile(self.keys.client.with_suffix(".pub"), self.directory / "authorized_keys")
        kind, key = self.keys.host.with_suffix(".pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[{self.host}]:{self.port} {kind} {key}\n")
        self.write_client_config(self.client_config)

    @property
    def client_config(self) -> Path:
        """An ssh_config in which the host `t` is this server."""
        return self.directory / "client_config"

    @property
    def known_hosts(self) -> Path:
        """The known_hosts file that `client_config` names; holds this server's key."""
        return self.directory / "known_hosts"

    def write_client_config(self, path: Path, *, extra: Iterable[str] = (), **changes: object) -> Path:
        """Write an ssh_config for host `t` to `path`, with other or further keywords; None leaves one out."""
        keywords: dict[str, object] = {
            "HostName": self.host,
            "Port": self.port,
            "User": pwd.getpwuid(os.geteuid()).pw_name,
            "IdentityFile": self.keys.client,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            **changes,
        }
        lines = ["Host t", *(f"    {word} {value}" for word, value in keywords.items() if value is not None), *extra]
        path.write_text("\n".join(lines) + "\n")
        return path

    def config_through(self, port: int) -> Path:
        """Write an ssh_config that reaches this server as `t` through a proxy on `port` of this machine."""
        hosts = self.directory / f"known_hosts-{port}"
        hosts.write_text(self.known_hosts.read_text().replace(f":{self.port} ", f":{port} "))
        return self.write_client_config(self.directory / f"config-{port}", Port=port, UserKnownHostsFile=hosts)

    def _start(self) -> bool:
        self._log_file.write_bytes(b"")
        program = sshd_path()
        if program is None:
            raise RuntimeError("no sshd is installed")
        command = [program, "-D", "-f", str(self.directory / "sshd_config"), "-E", str(self._log_file)]
        if self._obey_modes:
            command = obeying_modes(command)
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if f"Server listening on {self.host} port {self.port}" in self.log:
                return True
            time.sleep(0.01)
        self.close()
        return False

    @property
    def pid(self) -> int:
        """The id of the listening process; its children are the sessions."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        return self._log_file.read_text(errors="replace")

    def logins(self) -> int:
        """Count the logins accepted so far."""
        return len(re.findall(r"^Accepted \S+ for ", self.log, re.MULTILINE))

    def session_pids(self) -> list[int]:
        """Return the ids of all living processes the server forked: sessions, and what runs in them."""
        return [process.pid for process in self._forked() if _lives(process)]

    def _forked(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def wait_idle(self, timeout_s: float = 5.0) -> list[int]:
        """Wait until every session has ended; return the ids of those that have not after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (alive := self.session_pids()) and time.monotonic() < deadline:
            time.sleep(0.005)
        return alive

    def close(self) -> None:
        """End the server and all its sessions. Idempotent."""
        if self._process is None:
            return
        forked = self._forked()
        self._process.terminate()
        self._process.wait()
        for process in forked:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        deadline = time.monotonic() + _END_S
        while any(_lives(process) for process in forked) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._process is None else f"pid {self._process.pid}"
        return f"<Sshd {self.host}:{self.port} {state}>"


def _lives(process: psutil.Process) -> bool:
    """Tell whether a process still runs; one that only waits for somebody to take its exit code does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
