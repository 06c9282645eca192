"""How to log in to one host, as values: the command line, then ssh_config, then ssh's defaults.

Owns what the keywords of ssh_config mean to the way without an ssh program, and which of them it cannot honour (it says
so in `warnings`). Reads the configuration files; must not import asyncssh or reach anybody.
Invariant: the first value said wins, in ssh's own order: flags, -o, the user's file, the system's file.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastcopy.config import AddressFamily, SshOptions
from fastcopy.connection.config_file import ConfigReader
from fastcopy.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Source: OpenSSH's pathnames.h.
USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
#: Tried when nobody names an identity. Source: readconf.c, fill_default_options (without DSA, which is gone).
DEFAULT_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
#: Seconds and times: a dead peer is noticed after 45 s. Source: ours, design section 3; ssh's own default is never.
SERVER_ALIVE_S = 15
SERVER_ALIVE_COUNT = 3
#: Keywords that ssh would honour and this way does not, unless their value is one of those given.
_IGNORED: dict[str, tuple[str, ...]] = {
    "canonicalizehostname": ("no", "none"),
    "controlmaster": ("no",),
    "controlpath": ("none",),
    "gssapiauthentication": ("no",),
    "hostbasedauthentication": ("no",),
    "knownhostscommand": ("none",),
    "pkcs11provider": ("none",),
    "proxyusefdpass": ("no",),
    "pubkeyacceptedalgorithms": (),
    "revokedhostkeys": ("none",),
    "securitykeyprovider": ("internal",),
    "verifyhostkeydns": ("no",),
}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSettings:
    """What holds for one login. `host` is as typed; None and () leave a choice to the library's default."""

    host: str
    hostname: str
    port: int = 22
    user: str
    family: AddressFamily = AddressFamily.ANY
    bind_address: str | None = None
    ciphers: str | None = None
    macs: str | None = None
    key_exchanges: str | None = None
    host_key_algorithms: str | None = None
    ca_signature_algorithms: str | None = None
    compress: bool = False
    connect_timeout_s: float = 30.0
    alive_interval_s: int = SERVER_ALIVE_S
    alive_count: int = SERVER_ALIVE_COUNT
    tcp_keepalive: bool = True
    rekey_bytes: int | None = None
    rekey_s: int | None = None
    identities: tuple[str, ...] = ()
    #: The identities were named by somebody, so that a missing one is worth a warning.
    identities_named: bool = False
    identities_only: bool = False
    certificates: tuple[str, ...] = ()
    #: Path of the agent's socket; None: there is none to be asked.
    agent: str | None = None
    pubkey_auth: bool = True
    password_auth: bool = True
    kbdint_auth: bool = True
    preferred_auth: tuple[str, ...] = ()
    batch_mode: bool = False
    host_key_alias: str | None = None
    user_known_hosts: tuple[str, ...] = ()
    global_known_hosts: tuple[str, ...] = ()
    #: "yes" | "ask" | "accept-new" | "no"
    strict_host_keys: str = "ask"
    hash_known_hosts: bool = False
    proxy_jump: str | None = None
    proxy_command: str | None = None
    warnings: tuple[str, ...] = ()


def login_settings(host: str, user: str | None, options: SshOptions) -> LoginSettings:
    """Find out what holds for a login to `host`. Reads files: run it off the event loop.

    Args:
        host: as typed: an address, a name, or a Host of ssh_config.
        user: from `user@host`; None leaves it to ssh_config.
    Raises: InvalidValue, UsageError for an option or a line of ssh_config that makes no sense.
    """
    local_user = _local_user()
    reader = ConfigReader(host, local_user)
    _say_flags(reader, user, options)
    for option in options.options:
        reader.read_option(option)
    reader.read_files(options.config_file)
    meaning = _Meaning(reader, host, local_user, options)
    if reader.wants_final_pass:
        reader.read_final_pass(options.config_file, meaning.hostname())
    return meaning.settings()


def jump_options(options: SshOptions) -> SshOptions:
    """Return what the login to a jump host takes over from the command line: what `ssh -J` does, and deadlines."""
    return SshOptions(
        config_file=options.config_file, family=options.family, connect_timeout_s=options.connect_timeout_s
    )


def split_jumps(jumps: str) -> tuple[tuple[str | None, str, int | None], ...]:
    """Split `[user@]host[:port],...` (or ssh:// URIs) into (user, host, port), the nearest first.

    Raises: InvalidValue when one is not of that form.
    """
    return tuple(_jump(text.strip()) for text in jumps.split(","))


_JUMP = re.compile(r"(?:ssh://)?(?:(?P<user>.+)@)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:@\[\]]+))(?::(?P<port>\d+))?/?")


def _jump(text: str) -> tuple[str | None, str, int | None]:
    found = _JUMP.fullmatch(text)
    if found is None:
        raise InvalidValue(f"{text!r} is not [user@]host[:port]", option="--jump")
    return found["user"], found["v6"] or found["host"], int(found["port"]) if found["port"] else None


def _say_flags(reader: ConfigReader, user: str | None, options: SshOptions) -> None:
    if options.family is not AddressFamily.ANY:
        reader.set("AddressFamily", options.family.value)
    if options.port is not None:
        reader.set("Port", str(options.port))
    if user is not None:
        reader.set("User", user)
    for identity in options.identities:
        reader.set("IdentityFile", identity)
    if options.jump is not None:
        reader.set("ProxyJump", options.jump)
    if options.compress:
        reader.set("Compression", "yes")


class _Meaning:
    """Turns words into values."""

    def __init__(self, reader: ConfigReader, host: str, local_user: str, options: SshOptions) -> None:
        self._reader = reader
        self._host = host
        self._local_user = local_user
        self._options = options
        self._tokens: dict[str, Callable[[], str]] = {"%": lambda: "%"}

    def hostname(self) -> str:
        """Return the name to connect to."""
        said = self._reader.get("hostname") or "%h"
        return self._expand(said, "HostName", {"h": lambda: self._host}).lower()

    def settings(self) -> LoginSettings:
        get = self._reader.get
        hostname = self.hostname()
        user = get("user") or self._local_user
        port = self._number("port", 22, 1, 65535)
        jump, command = self._way(get("proxyjump"), get("proxycommand"))
        alias = get("hostkeyalias")
        self._tokens |= _tokens(self._host, hostname, port, user, self._local_user, alias, jump)
        rekey_bytes, rekey_s = self._rekey_limit()
        named = self._reader.values.get("identityfile", [])
        return LoginSettings(
            host=self._host,
            hostname=hostname,
            port=port,
            user=user,
            family=self._choice("addressfamily", AddressFamily, AddressFamily.ANY),
            bind_address=get("bindaddress"),
            ciphers=get("ciphers"),
            macs=get("macs"),
            key_exchanges=get("kexalgorithms"),
            host_key_algorithms=get("hostkeyalgorithms"),
            ca_signature_algorithms=get("casignaturealgorithms"),
            compress=self._flag("compression", False),
            connect_timeout_s=self._connect_timeout(),
            alive_interval_s=self._alive_interval(),
            alive_count=self._number("serveralivecountmax", SERVER_ALIVE_COUNT, 1, 1_000_000),
            tcp_keepalive=self._flag("tcpkeepalive", True),
            rekey_bytes=rekey_bytes,
            rekey_s=rekey_s,
            identities=self._identities(named),
            identities_named=bool(named),
            identities_only=self._flag("identitiesonly", False),
            certificates=tuple(self._path(path) for path in self._reader.values.get("certificatefile", [])),
            agent=self._agent(),
            pubkey_auth=(get("pubkeyauthentication") or "yes").lower() not in ("no", "false"),
            password_auth=self._flag("passwordauthentication", True),
            kbdint_auth=self._flag("kbdinteractiveauthentication", self._flag("challengeresponseauthentication", True)),
            preferred_auth=tuple(name for name in (get("preferredauthentications") or "").split(",") if name),
            batch_mode=self._flag("batchmode", False),
            host_key_alias=alias,
            user_known_hosts=self._paths("userknownhostsfile", USER_KNOWN_HOSTS),
            global_known_hosts=self._paths("globalknownhostsfile", GLOBAL_KNOWN_HOSTS),
            strict_host_keys=self._strictness(),
            hash_known_hosts=self._flag("hashknownhosts", False),
            proxy_jump=jump,
            proxy_command=None if command is None else self._expand(command, "ProxyCommand"),
            warnings=(*self._reader.warnings, *self._not_honoured()),
        )

    def _way(self, jump: str | None, command: str | None) -> tuple[str | None, str | None]:
        """Return (ProxyJump, ProxyCommand), of which ssh takes the one that was said first; `none` means neither."""
        first = next((word for word in self._reader.values if word in ("proxyjump", "proxycommand")), None)
        if first == "proxyjump" and jump is not None:
            return (None if jump.lower() == "none" else jump), None
        return None, (None if command is None or command.lower() == "none" else command)

    def _identities(self, named: list[str]) -> tuple[str, ...]:
        if named:
            return tuple(self._path(path) for path in named if path.lower() != "none")
        return tuple(os.path.expanduser(f"~/.ssh/{name}") for name in DEFAULT_IDENTITIES)

    def _agent(self) -> str | None:
        named = self._reader.get("identityagent")
        if named is None or named == "SSH_AUTH_SOCK":
            return os.environ.get("SSH_AUTH_SOCK") or None
        if named.lower() == "none":
            return None
        return os.environ.get(named[1:].strip("{}")) or None if named.startswith("$") else self._path(named)

    def _strictness(self) -> str:
        word = (self._reader.get("stricthostkeychecking") or "ask").lower()
        names = {"true": "yes", "false": "no", "off": "no"}
        word = names.get(word, word)
        if word not in ("yes", "ask", "accept-new", "no"):
            raise self._wrong("StrictHostKeyChecking", word)
        return word

    def _connect_timeout(self) -> float:
        word = self._reader.get("connecttimeout")
        if word is None or word.lower() == "none":
            return self._options.connect_timeout_s
        return float(self._seconds("ConnectTimeout", word)) or self._options.connect_timeout_s

    def _alive_interval(self) -> int:
        word = self._reader.get("serveraliveinterval")
        return (0 if word is None else self._seconds("ServerAliveInterval", word)) or SERVER_ALIVE_S

    def _rekey_limit(self) -> tuple[int | None, int | None]:
        words = self._reader.values.get("rekeylimit")
        if not words:
            return None, None
        size = re.fullmatch(r"(\d+)([kmg]?)", words[0].lower())
        if size is None and words[0].lower() != "default":
            raise self._wrong("RekeyLimit", words[0])
        size_bytes = int(size[1]) * _BYTES[size[2]] if size is not None else 0
        after = words[1].lower() if len(words) > 1 else "none"
        return size_bytes or None, None if after == "none" else self._seconds("RekeyLimit", after) or None

    def _not_honoured(self) -> tuple[str, ...]:
        """Name what the user set and ssh would have done. What the system's file sets is no choice of his."""
        names = []
        for keyword, harmless in _IGNORED.items():
            word = self._reader.get(keyword)
            if word is not None and keyword in self._reader.by_user and word.lower() not in ("false", *harmless):
                names.append(keyword)
        return (f"--ssh asyncssh does not honour these ssh options: {', '.join(names)}",) if names else ()

    # --- kinds of value ---

    def _flag(self, keyword: str, default: bool) -> bool:
        word = self._reader.get(keyword)
        if word is None:
            return default
        if word.lower() in ("yes", "true"):
            return True
        if word.lower() in ("no", "false"):
            return False
        raise self._wrong(keyword, word)

    def _number(self, keyword: str, default: int, low: int, high: int) -> int:
        word = self._reader.get(keyword)
        if word is None:
            return default
        if not word.isdecimal() or not low <= int(word) <= high:
            raise self._wrong(keyword, word)
        return int(word)

    def _seconds(self, keyword: str, word: str) -> int:
        parts = re.findall(r"(\d+)([smhdw]?)", word.lower())
        if not parts or "".join(number + unit for number, unit in parts) != word.lower():
            raise self._wrong(keyword, word)
        return sum(int(number) * _SECONDS[unit] for number, unit in parts)

    def _choice(self, keyword: str, kind: type[AddressFamily], default: AddressFamily) -> AddressFamily:
        word = self._reader.get(keyword)
        try:
            return default if word is None else kind(word.lower())
        except ValueError:
            raise self._wrong(keyword, word) from None

    def _paths(self, keyword: str, default: tuple[str, ...]) -> tuple[str, ...]:
        words = self._reader.values.get(keyword)
        if words is None:
            return tuple(os.path.expanduser(path) for path in default)
        return tuple(self._path(word) for word in words if word.lower() != "none")

    def _path(self, word: str) -> str:
        return os.path.expanduser(self._expand(word, "a path"))

    def _expand(self, text: str, keyword: str, tokens: dict[str, Callable[[], str]] | None = None) -> str:
        known = self._tokens if tokens is None else {**self._tokens, **tokens}

        def value(found: re.Match[str]) -> str:
            if found[2] is not None:
                return os.environ.get(found[2]) or ""
            if found[1] not in known:
                raise UsageError(f"ssh_config: unknown %{found[1]} in {keyword}: {text}")
            return known[found[1]]()

        return re.sub(r"%(.)|\$\{([^}]*)\}", value, text)

    def _wrong(self, keyword: str, word: str | None) -> UsageError:
        return UsageError(f"ssh_config: {keyword} cannot be {word!r}")


def _tokens(
    host: str, hostname: str, port: int, user: str, local_user: str, alias: str | None, jump: str | None
) -> dict[str, Callable[[], str]]:
    """Return the %-tokens of ssh_config(5), each worked out when it is used."""
    own_name = socket.gethostname
    return {
        "C": lambda: hashlib.sha1(f"{own_name()}{hostname}{port}{user}{jump or ''}".encode()).hexdigest(),
        "d": lambda: os.path.expanduser("~"),
        "h": lambda: hostname,
        "i": lambda: str(os.getuid()),
        "j": lambda: jump or "",
        "k": lambda: alias or host,
        "L": lambda: own_name().partition(".")[0],
        "l": own_name,
        "n": lambda: host,
        "p": lambda: str(port),
        "r": lambda: user,
        "u": lambda: local_user,
    }


def _local_user() -> str:
    with contextlib.suppress(KeyError, OSError):  # a user id without a name, as in containers
        return getpass.getuser()
    return str(os.getuid())
