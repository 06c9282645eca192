"""What a user may ask for, as validated values. Imports only the other value modules.

Defaults here are the product's; `None` means "choose for me". Numbers are checked where they are made, so no other
layer checks them again: a wrong one raises InvalidValue, which names the option.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from fastcopy.errors import InvalidValue

#: Bytes. Source: OpenSSH 9.2 sftp-server announces this as max-read/write-length in limits@openssh.com.
DEFAULT_REQUEST_BYTES = 261_120
#: Bytes. What every server must take. Source: draft-ietf-secsh-filexfer-02 section 3 (packets of 34000 bytes).
SAFE_REQUEST_BYTES = 32_768
#: Requests in flight on a channel. Source: our measurement; 64 x 255 KiB covers OpenSSH's 2 MiB window at any RTT.
DEFAULT_QUEUE_DEPTH = 64
#: Bytes of payload that may stand in this process's memory at once, all channels together (law 14).
DEFAULT_MEMORY_BYTES = 64 << 20
#: Seconds without a byte or an answer after which a channel counts as lost.
DEFAULT_TIMEOUT_S = 60.0
MAX_CHANNELS = 256
MAX_QUEUE_DEPTH = 8192
MAX_REQUEST_BYTES = 4 << 20


class SshWay(enum.Enum):
    """How to speak SSH: the system's `ssh`, or asyncssh in this process."""

    AUTO = "auto"
    OPENSSH = "openssh"
    ASYNCSSH = "asyncssh"


class AddressFamily(enum.Enum):
    ANY = "any"
    IPV4 = "inet"
    IPV6 = "inet6"


class SymlinkPolicy(enum.Enum):
    """What a symlink in the source becomes."""

    COPY = "copy"
    FOLLOW = "follow"
    SKIP = "skip"


def _check(option: str, value: int | float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise InvalidValue(f"{value} is outside {low:g} to {high:g}", option=option)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """How to log in. Field by field what ssh's own flags say (-P -i -F -J -o -c -C -4 -6)."""

    way: SshWay = SshWay.AUTO
    port: int | None = None
    identities: tuple[str, ...] = ()
    config_file: str | None = None
    jump: str | None = None
    options: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    compress: bool = False
    family: AddressFamily = AddressFamily.ANY
    reuse_master: bool = False
    #: Seconds a login may take.
    connect_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        _check("--port", self.port, 1, 65535)
        _check("--timeout", self.connect_timeout_s, 0.001, 1e6)
        for option in self.options:
            if "=" not in option and " " not in option.strip():
                raise InvalidValue(f"{option!r} is not NAME=VALUE", option="-o")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOptions:
    """How to move the bytes."""

    parallel: int | None = None
    connections: int | None = None
    request_bytes: int | None = None
    queue_depth: int = DEFAULT_QUEUE_DEPTH
    preserve: bool = False
    force: bool = False
    symlinks: SymlinkPolicy = SymlinkPolicy.COPY
    timeout_s: float = DEFAULT_TIMEOUT_S
    memory_bytes: int = DEFAULT_MEMORY_BYTES

    def __post_init__(self) -> None:
        _check("--parallel", self.parallel, 1, MAX_CHANNELS)
        _check("--connections", self.connections, 1, MAX_CHANNELS)
        _check("--request-size", self.request_bytes, 512, MAX_REQUEST_BYTES)
        _check("--queue-depth", self.queue_depth, 1, MAX_QUEUE_DEPTH)
        _check("--timeout", self.timeout_s, 0.001, 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Everything one copy is asked to do, apart from what to copy where."""

    ssh: SshOptions = field(default_factory=SshOptions)
    transfer: TransferOptions = field(default_factory=TransferOptions)
