"""What a user types once per job (a password, a passphrase), and the keys unlocked with it.

Owns the only copies of them in this process; they are never logged, put into an error, or shown by repr.
Must not import asyncssh. Invariant: nobody is asked for the same secret twice, nor by two logins at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Secrets:
    """Asks, and remembers. One per job."""

    def __init__(self, ask: Callable[[str], Awaitable[str | None]] | None) -> None:
        """Keep how to ask: a function from the prompt to what was typed, None when nothing was; None: never ask."""
        self._ask = ask
        self._lock = asyncio.Lock()
        self._typed: dict[str, str | None] = {}
        #: Unlocked private keys by file.
        self.keys: dict[str, Any] = {}
        #: Files whose passphrase was wrong or not given.
        self.locked: set[str] = set()
        self._refused: set[str] = set()

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._typed)} asked for, {len(self.keys)} keys unlocked>"

    async def get(self, name: str, prompt: str, *, may_ask: bool) -> str | None:
        """Return the secret `name`, asking with `prompt` if it was not asked for before.

        Args:
            name: what it is for: "password of u@h", "passphrase of FILE".
            may_ask: False answers only from what is known.
        Returns: None where nobody can be asked, nothing was typed, or the secret was refused before.
        """
        async with self._lock:
            if name in self._refused:
                return None
            if name not in self._typed:
                if not may_ask or self._ask is None:
                    return None
                self._typed[name] = await self._ask(prompt)
            return self._typed[name]

    async def confirm(self, question: str, *, may_ask: bool) -> bool:
        """Ask a question to be answered with yes; anything else, and nobody to ask, is no."""
        if not may_ask or self._ask is None:
            return False
        async with self._lock:
            answer = await self._ask(question)
        return (answer or "").strip().lower() == "yes"

    async def ask_once(self, prompt: str, *, may_ask: bool) -> str | None:
        """Ask for something that is good for one use only, such as a code."""
        if not may_ask or self._ask is None:
            return None
        async with self._lock:
            return await self._ask(prompt)

    def refuse(self, name: str) -> None:
        """Forget a secret that turned out wrong; it is neither asked for nor sent again."""
        self._refused.add(name)
        self._typed.pop(name, None)

    def forget(self) -> None:
        """Forget everything."""
        self._typed.clear()
        self.keys.clear()
