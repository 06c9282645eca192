"""Where a source or a destination lies, as typed: `[user@]host:path`, a URL, or a local path.

Pure text. scp's rules: a colon before the first slash makes it remote, so `./a:b` is local; the path stays bytes.
Invariant: a host or user taken from here cannot be read as an option by ssh, nor as more than a word by a shell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from fastcopy.errors import UsageError, printable

#: Schemes of URLs that name an SFTP server.
_SCHEMES = ("ssh", "sftp")
#: Schemes that are surely not meant as the host of `host:path`; any other word before `://` is a host, as in scp.
_FOREIGN_SCHEMES = ("http", "https", "ftp", "ftps", "file", "rsync", "scp")
#: Characters OpenSSH refuses too. Source: valid_hostname and valid_ruser in OpenSSH 9.6's ssh.c.
_BAD_IN_HOST = frozenset("'`\"$\\;&<>|(){},/@[]")
_BAD_IN_USER = frozenset("'`\";&<>|(){}")
_BAD_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """One place: a path, on a host or here.

    `host` is None for a local path; an IPv6 address stands without its brackets. `port` is only what a URL said. A
    remote path that is not absolute begins in the login directory; "." is that directory itself.
    """

    host: str | None = None
    user: str | None = None
    port: int | None = None
    path: bytes

    @property
    def is_remote(self) -> bool:
        return self.host is not None

    def __str__(self) -> str:
        """Return it as it would be typed, printable: the path's unprintable bytes escaped."""
        path = printable(self.path)
        if self.host is None:
            return path
        host = f"[{self.host}]" if ":" in self.host else self.host
        login = f"{self.user}@{host}" if self.user else host
        if self.port is None:
            return f"{login}:{path}"
        slash = "" if path.startswith("/") else "/" if path.startswith("~") else "/~/"
        return f"sftp://{login}:{self.port}{slash}{path}"


def parse_location(text: str | bytes) -> Location:
    """Read one SRC or DST of the command line.

    | typed | means |
    | --- | --- |
    | `host:path`, `user@host:path` | remote; `host:` alone is the login directory |
    | `[v6]:path`, `user@[fe80::1%lo]:path` | remote |
    | `ssh://user@host:port/path`, `sftp://...` | remote; the path is absolute and percent-decoded |
    | `ssh://host/~/path`, `ssh://host` | remote, beginning in the login directory |
    | anything with a slash before the first colon, or a colon first | local |

    Source: scp(1) for all but URLs; for those draft-ietf-secsh-scp-sftp-ssh-uri-04, which git, curl and lftp follow.

    Args:
        text: str as it comes in argv (undecodable bytes as surrogates), or bytes.
    Raises: UsageError for an empty one, an empty or unsafe host or user, a bad port, a password, a broken escape.
    """
    typed = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    if not typed:
        raise UsageError("an empty name is neither a path nor a host")
    if b"\0" in typed:
        raise UsageError(f"{printable(typed)}: a name cannot hold a NUL byte")
    scheme = _scheme(typed)
    if scheme in _SCHEMES:
        return _parse_url(typed)
    if scheme in _FOREIGN_SCHEMES:
        raise UsageError(f"{scheme}:// is not spoken here; write host:path, or sftp://host/path")
    colon = _colon(typed)
    if colon is None:
        return Location(path=typed)
    user, host = _login(typed[:colon], typed)
    return Location(host=host, user=user, path=typed[colon + 1 :] or b".")


def local_reading(text: str | bytes) -> bytes | None:
    """Return the file name `text` would be if its colon did not make it remote; None where that is not in doubt.

    Whoever has a file system can look whether such a file is there, and then show `colon_hint`.
    """
    typed = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    if _scheme(typed) in _SCHEMES or _colon(typed) is None:
        return None
    return typed


def colon_hint(text: str | bytes) -> str:
    """Return the sentence for someone who may have meant a local file by `text`; "" where that is not in doubt."""
    typed = local_reading(text)
    if typed is None:
        return ""
    host, _, _ = typed.partition(b":")
    name = printable(typed)
    return f"{name} was read as a path on the host '{printable(host)}'; for the local file write ./{name}"


def needs_expansion(path: bytes) -> bool:
    """Tell whether a remote path begins with `~` or `~user`, which a shell expands and an SFTP server does not."""
    return path.startswith(b"~")


def home_relative(path: bytes) -> bytes:
    """Return a remote `~` or `~/x` as a path relative to the login directory; any other path as it is (`~user` too)."""
    if path != b"~" and not path.startswith(b"~/"):
        return path
    rest = path[2:].lstrip(b"/") or b"."
    return b"./" + rest if needs_expansion(rest) else rest


def _scheme(typed: bytes) -> str:
    word, mark, _ = typed.partition(b"://")
    return word.decode("ascii", "replace").lower() if mark else ""


def _colon(typed: bytes) -> int | None:
    """Return where the colon between host and path stands; None for a local path.

    Source: colon() in OpenSSH's misc.c.
    """
    if typed.startswith(b":"):
        return None
    head, _, _ = typed.partition(b"/")
    if head.startswith(b"[") or b"@[" in head.partition(b":")[0]:
        end = head.find(b"]:")
        return None if end < 0 else end + 1
    colon = head.find(b":")
    return None if colon < 0 else colon


def _login(login: bytes, typed: bytes) -> tuple[str | None, str]:
    """Split and check `[user@]host`."""
    user, at, host = login.rpartition(b"@")
    if host.startswith(b"[") and host.endswith(b"]"):
        host = host[1:-1]
    return (_checked(user, "user", _BAD_IN_USER, typed) if at else None), _checked(host, "host", _BAD_IN_HOST, typed)


def _checked(word: bytes, what: str, bad: frozenset[str], typed: bytes) -> str:
    """Return `word` as text if ssh may see it as a host or a user."""
    if not word:
        raise UsageError(f"{printable(typed)}: the {what} is empty")
    text = word.decode("utf-8", "surrogateescape")
    if text.startswith("-"):
        raise UsageError(f"{printable(typed)}: a {what} cannot begin with a dash; for a local file write ./NAME")
    if text.endswith("\\") or any(char in bad or char.isspace() or not char.isprintable() for char in text):
        raise UsageError(f"{printable(typed)}: '{printable(word)}' cannot be a {what}; for a local file write ./NAME")
    return text


def _parse_url(typed: bytes) -> Location:
    _, _, rest = typed.partition(b"://")
    authority, slash, path = rest.partition(b"/")
    userinfo, at, address = authority.rpartition(b"@")
    if b":" in userinfo:  # never shown again: what follows the colon is a secret
        raise UsageError("a password cannot stand in a URL: others on this machine could read it. Leave it out")
    host, port = _split_port(address, typed)
    login = (_unescaped(userinfo, typed) + b"@" if at else b"") + host
    user, name = _login(login, typed)
    path = _unescaped(slash + path, typed)
    if path.startswith(b"/~"):
        path = path[1:]
    return Location(host=name, user=user, port=port, path=path or b".")


def _split_port(address: bytes, typed: bytes) -> tuple[bytes, int | None]:
    if address.startswith(b"["):
        literal, closed, tail = address.partition(b"]")
        host = literal.replace(b"%25", b"%") + closed  # RFC 6874: the zone's percent sign is escaped
        if not closed or (tail and not tail.startswith(b":")):
            raise UsageError(f"{printable(typed)}: an address in brackets is written like [::1] or [::1]:2222")
    else:
        name, colon, port = address.partition(b":")
        host, tail = _unescaped(name, typed), colon + port
    if not tail:
        return host, None
    digits = tail[1:]
    if not re.fullmatch(rb"[0-9]{1,5}", digits) or not 1 <= int(digits) <= 65535:
        raise UsageError(f"{printable(typed)}: '{printable(digits)}' is not a port (1 to 65535)")
    return host, int(digits)


def _unescaped(text: bytes, typed: bytes) -> bytes:
    if _BAD_PERCENT.search(text):
        raise UsageError(f"{printable(typed)}: a percent sign in a URL is written %25")
    plain = unquote_to_bytes(text)
    if b"\0" in plain:
        raise UsageError(f"{printable(typed)}: a name cannot hold a NUL byte")
    return plain
