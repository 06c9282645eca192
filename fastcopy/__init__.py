"""Copy file sets between servers over many SFTP channels at once. `await fastcopy.copy([...], "host:/dir")`."""

from __future__ import annotations

__version__ = "0.1.0"
