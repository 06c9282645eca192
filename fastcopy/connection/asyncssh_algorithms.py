"""Which algorithms to offer a server: ssh_config's lists in terms of what asyncssh has.

PURE but for what asyncssh says it has. Invariant: a cipher list is only put in another order, never widened beyond what
the user's or site's configuration allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncssh.encryption import get_default_encryption_algs, get_encryption_algs
from asyncssh.kex import get_default_kex_algs, get_kex_algs
from asyncssh.mac import get_default_mac_algs, get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from fastcopy.connection.config_file import matches_host
from fastcopy.connection.ssh_config import GONE_CIPHERS, aes_in_hardware, asked_ciphers, preferred_ciphers
from fastcopy.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastcopy.connection.known_hosts import KnownHosts
    from fastcopy.connection.login_settings import LoginSettings

#: Bytes after which asyncssh changes the keys, instead of its 1 GiB: each time costs a round trip and empties the
#: pipeline. Source: sshd's own default for AES and RFC 4344 section 3.2: 2^32 blocks of 16 bytes. sshd may ask
#: for it earlier (RekeyLimit there, chacha20 after 1 GiB), and then it is done.
REKEY_BYTES = 1 << 36
#: Bytes. For ciphers of 64-bit blocks. Source: RFC 4344 section 3.2.
REKEY_SMALL_BLOCKS_BYTES = 1 << 30
#: Host key types, best first. Source: OpenSSH 9.2 (`ssh -Q HostKeyAlgorithms`), without those in hardware tokens.
_HOST_KEYS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
_HOST_CERTIFICATES = tuple(f"{name}-cert-v01@openssh.com" for name in _HOST_KEYS)


def ciphers(settings: LoginSettings, asked: Sequence[str]) -> list[str]:
    """Return the ciphers to offer, best first.

    Args:
        asked: named on the command line; taken as they are.
    Raises: InvalidValue for a name that is gone or was never known, or where asyncssh has none of those allowed.
    """
    known = [name for name in _names(get_encryption_algs()) if name not in GONE_CIPHERS]
    if asked:
        return list(asked_ciphers(asked, known))
    allowed = expand(settings.ciphers, known, _names(get_default_encryption_algs()), option="Ciphers")
    if settings.ciphers is not None and settings.ciphers.startswith("^"):
        return allowed  # an order somebody asked for
    return list(preferred_ciphers(allowed, aes_in_hardware()))


def macs(settings: LoginSettings) -> list[str]:
    """Return the MACs to offer, best first."""
    return expand(settings.macs, _names(get_mac_algs()), _names(get_default_mac_algs()), option="MACs")


def key_exchanges(settings: LoginSettings) -> list[str]:
    """Return the key exchange methods to offer, best first."""
    known, default = _names(get_kex_algs()), _names(get_default_kex_algs())
    return expand(settings.key_exchanges, known, default, option="KexAlgorithms")


def host_keys(settings: LoginSettings, known_hosts: KnownHosts) -> list[str]:
    """Return the host key types to ask for: those we know a key of come first, so that the server shows that one."""
    known = _names(get_certificate_algs()) + _names(get_public_key_algs())
    if settings.host_key_algorithms is not None:
        default = [*_HOST_CERTIFICATES, *_HOST_KEYS]
        return expand(settings.host_key_algorithms, known, default, option="HostKeyAlgorithms")
    first = [name for kind in known_hosts.kinds for name in _signatures(kind)]
    wanted = [*(_HOST_CERTIFICATES if known_hosts.has_authority else ()), *first, *_HOST_KEYS]
    return [name for name in dict.fromkeys(wanted) if name in known]


def _signatures(kind: str) -> tuple[str, ...]:
    """Return the algorithms a key of this type signs with; SHA-1 is not among them."""
    return ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)


def rekey_bytes(settings: LoginSettings, offered: Sequence[str]) -> int:
    """Return after how many bytes to change the keys."""
    if settings.rekey_bytes is not None:
        return settings.rekey_bytes
    has_large_blocks = all(name.startswith(("aes", "chacha20")) for name in offered)
    return REKEY_BYTES if has_large_blocks else REKEY_SMALL_BLOCKS_BYTES


def expand(spec: str | None, known: Sequence[str], default: Sequence[str], *, option: str) -> list[str]:
    """Read an algorithm list of ssh_config(5): names or patterns; `+` adds to, `-` removes from, `^` leads `default`.

    Names that are not `known` are passed over: a site's list is written for OpenSSH, which has others.
    Raises: InvalidValue when nothing is left.
    """
    if spec is None:
        return list(default)
    sign, patterns = (spec[0], spec[1:]) if spec[:1] in ("+", "-", "^") else ("", spec)
    matched = [name for pattern in patterns.split(",") for name in known if matches_host([pattern], name)]
    chosen = {
        "": matched,
        "+": [*default, *matched],
        "-": [name for name in default if name not in matched],
        "^": [*matched, *default],
    }[sign]
    if not chosen:
        raise InvalidValue(f"asyncssh has none of {spec}; it has: {', '.join(known)}", option=option)
    return list(dict.fromkeys(chosen))


def _names(algorithms: Sequence[bytes]) -> list[str]:
    return [name.decode("ascii") for name in algorithms]
