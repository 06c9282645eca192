"""What the user's ssh_config says for one host, read by ourselves for the way without an ssh program.

Owns the grammar: Host, Match, Include, tokens, and that the first value wins. Reaches nobody, and runs nothing: a
`Match exec` never matches and is warned of. Must not import asyncssh. What the words mean is decided elsewhere.
Invariant: for the keywords in login_settings.py the values are those of `ssh -G`; a test compares both.
Source of every rule: ssh_config(5) of OpenSSH 9.2, readconf.c.
"""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING

from fastcopy.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
#: Source: readconf.c, READCONF_MAX_DEPTH.
_DEEPEST_INCLUDE = 16
#: Keywords whose value is the rest of the line, as it stands.
_UNSPLIT = frozenset({"proxycommand", "remotecommand", "localcommand", "knownhostscommand"})
#: Keywords that gather values instead of keeping the first.
_GATHERED = frozenset({"identityfile", "certificatefile"})
_LINE = re.compile(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+|$)(.*)", re.DOTALL)


class ConfigReader:
    """Gathers the values that hold for one host. Give it the sources in their order: what was said first wins."""

    def __init__(self, host: str, local_user: str) -> None:
        """Begin with nothing.

        Args:
            host: as the user typed it.
            local_user: who runs this process.
        """
        self.values: dict[str, list[str]] = {}
        #: Keywords that were set by the user, not by the system's file.
        self.by_user: set[str] = set()
        self.warnings: list[str] = []
        self.wants_final_pass = False
        self._host = host
        self._matched_host = host
        self._local_user = local_user
        self._is_final_pass = False
        self._is_system = False

    def get(self, keyword: str) -> str | None:
        """Return the first word set for `keyword` (in small letters); None where it is not set."""
        words = self.values.get(keyword)
        return words[0] if words else None

    def set(self, keyword: str, *words: str) -> None:
        """Say a value as the command line does."""
        self._keep(keyword.lower(), list(words))

    def read_option(self, option: str) -> None:
        """Take one `-o NAME=VALUE`. Raises: InvalidValue when it is not that."""
        try:
            self._line(option, True, None, 0)
        except UsageError as exc:
            raise InvalidValue(exc.message, option="-o") from None

    def read_files(self, config_file: str | None) -> None:
        """Read `config_file` alone (`none`: nothing), or the user's and the system's where it is None.

        Raises: InvalidValue when the named file cannot be read; UsageError for a line that makes no sense.
        """
        if config_file is not None:
            if config_file.lower() != "none":
                try:
                    self._file(os.path.expanduser(config_file), True, 0)
                except OSError as exc:
                    raise InvalidValue(f"{config_file}: {exc.strerror}", option="--ssh-config") from exc
            return
        for path in (os.path.expanduser("~/.ssh/config"), SYSTEM_CONFIG):
            self._is_system = path == SYSTEM_CONFIG
            try:
                self._file(path, True, 0)
            except OSError:
                continue  # as ssh does: both files may be missing or unreadable
        self._is_system = False

    def read_final_pass(self, config_file: str | None, hostname: str) -> None:
        """Read the files again for `Match final`, as ssh does: Host lines now speak of `hostname`, which stands."""
        self._is_final_pass = True
        self._matched_host = hostname
        self.set("HostName", hostname)
        self.read_files(config_file)

    def _file(self, path: str, is_active: bool, depth: int) -> None:
        with open(path, encoding="utf-8", errors="surrogateescape") as lines:
            applies = is_active
            for number, line in enumerate(lines, 1):
                try:
                    applies = self._line(line, applies, is_active, depth)
                except UsageError as exc:
                    raise UsageError(f"{path} line {number}: {exc.message}") from None

    def _line(self, line: str, applies: bool, may_apply: bool | None, depth: int) -> bool:
        """Take one line; return whether the following ones apply.

        Args:
            applies: whether the Host or Match block that the line stands in matches.
            may_apply: whether a Host or Match here may match at all; None on the command line, which has none.
        """
        found = _LINE.match(line)
        if found is None or line.lstrip().startswith("#"):
            if line.strip() and not line.lstrip().startswith("#"):
                raise UsageError(f"not understood: {line.strip()}")
            return applies
        keyword, rest = found[1].lower(), found[2].strip()
        words = [rest] if keyword in _UNSPLIT and rest else list(split_words(rest))
        if not words:
            raise UsageError(f"{found[1]} has no value")
        if keyword == "host" and may_apply is not None:
            return may_apply and matches_host(words, self._matched_host)
        if keyword == "match" and may_apply is not None:
            return self._matches(words) and may_apply
        if keyword == "include":
            self._include(words, applies, depth)
        elif applies:
            self._keep(keyword, words)
        return applies

    def _keep(self, keyword: str, words: list[str]) -> None:
        if not self._is_system:
            self.by_user.add(keyword)
        if keyword in _GATHERED:
            gathered = self.values.setdefault(keyword, [])
            gathered.extend(word for word in words[:1] if word not in gathered)
        else:
            self.values.setdefault(keyword, words)

    def _include(self, patterns: Sequence[str], applies: bool, depth: int) -> None:
        if depth >= _DEEPEST_INCLUDE:
            raise UsageError("too many levels of Include")
        base = os.path.dirname(SYSTEM_CONFIG) if self._is_system else os.path.expanduser("~/.ssh")
        for pattern in patterns:
            for path in sorted(glob.glob(os.path.join(base, os.path.expanduser(pattern)))):
                try:
                    self._file(path, applies, depth + 1)
                except OSError:
                    continue  # as ssh does

    def _matches(self, words: list[str]) -> bool:
        """Say whether every criterion of a Match line holds."""
        holds = True
        rest = iter(words)
        for word in rest:
            name, _, argument = word.partition("=")
            is_negated = name.startswith("!")
            name = name.lstrip("!").lower()
            if name in {"all", "canonical", "final"}:
                self.wants_final_pass |= name == "final"
                result = name == "all" or self._is_final_pass
            else:
                argument = argument or next(rest, "")
                if not argument:
                    raise UsageError(f"Match {name} has no value")
                result = self._holds(name, argument)
            holds &= result != is_negated
        return holds

    def _holds(self, name: str, argument: str) -> bool:
        if name == "exec":
            self.warnings.append(f"Match exec is not run by --ssh asyncssh and counts as not matching: {argument}")
            return False
        if name == "localnetwork":
            self.warnings.append("Match localnetwork is not known to --ssh asyncssh and counts as not matching")
            return False
        subject = {
            "host": (self.get("hostname") or self._host).replace("%h", self._host),
            "originalhost": self._host,
            "user": self.get("user") or self._local_user,
            "localuser": self._local_user,
            "tagged": self.get("tag") or "",
        }.get(name)
        if subject is None:
            raise UsageError(f"unknown Match criterion {name}")
        return matches_host(argument.split(","), subject)


def split_words(text: str) -> Iterator[str]:
    """Split a line's value at white space; quotes of both kinds keep it together, `#` before a word ends the line."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        if text[at] == "#":
            return
        word, quote = "", ""
        while at < len(text) and (quote or not text[at].isspace()):
            char = text[at]
            if char == "\\" and text[at + 1 : at + 2] in ("\\", '"', "'", *(() if quote else (" ",))):
                at += 1
                word += text[at : at + 1]
            elif char == quote:
                quote = ""
            elif not quote and char in "\"'":
                quote = char
            else:
                word += char
            at += 1
        if quote:
            raise UsageError(f"a quote is not closed: {text.strip()}")
        yield word


def matches_host(patterns: Sequence[str], subject: str) -> bool:
    """Say whether `subject` fits one of `patterns` and none of those that begin with `!`."""
    fits = False
    for pattern in patterns:
        if pattern.startswith("!"):
            if _fits(pattern[1:], subject):
                return False
        else:
            fits |= _fits(pattern, subject)
    return fits


def _fits(pattern: str, subject: str) -> bool:
    """Match with `*` and `?` as the only wildcards."""
    expression = "".join({"*": ".*", "?": "."}.get(char) or re.escape(char) for char in pattern)
    return re.fullmatch(expression, subject, re.DOTALL) is not None
