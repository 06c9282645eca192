"""The directory of one connector's sockets, closed to others, and the guardian that cleans up if we are killed.

Owns the directory, its names and the guardian: a small shell that waits for the end of a pipe only we hold. When this
process dies, even by SIGKILL, the guardian ends the ssh masters whose sockets lie here and removes the directory.
Invariant: no master outlives us; one that is still logging in finds its directory gone and gives up.
"""

from __future__ import annotations

import os
import shutil
import tempfile

from fastcopy.connection.process import ChildProcess

#: Bytes. Source: sun_path holds 104 bytes on macOS, 108 on Linux; ssh appends 17 while it sets a socket up.
LONGEST_SOCKET_BYTES = 80
#: Renamed first: a master that binds or links its socket after that fails instead of being missed.
_GUARDIAN = """
read -r line
[ -d "$1" ] || exit 0
mv -- "$1" "$1~" && for socket in "$1~"/*.sock; do
    [ -S "$socket" ] && "$2" -F /dev/null -S "$socket" -O exit fastcopy
done
rm -rf -- "$1~"
"""


class PrivateDirectory:
    """A directory of mode 0700 with a short path."""

    def __init__(self, ssh: str) -> None:
        """Make the directory and start its guardian; needs a running event loop.

        Not under XDG_RUNTIME_DIR: that one is removed at logout, and a night's job must survive its terminal.

        Args:
            ssh: the ssh program, for the guardian.
        """
        self._path = _make(tempfile.gettempdir())
        self._names = 0
        self._held_fd: int | None
        read_fd, self._held_fd = os.pipe()
        try:
            self._guardian = ChildProcess(
                ["/bin/sh", "-c", _GUARDIAN, "fastcopy-guardian", self._path, ssh], stdin=read_fd
            )
        except BaseException:
            os.close(self._held_fd)
            os.rmdir(self._path)
            raise
        finally:
            os.close(read_fd)

    def new_name(self, suffix: str) -> str:
        """Return a path in the directory that was not given out before."""
        self._names += 1
        return os.path.join(self._path, f"{self._names}{suffix}")

    async def close(self) -> None:
        """Remove the directory and end the guardian. Idempotent."""
        if self._held_fd is None:
            return
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._held_fd)
        self._held_fd = None
        await self._guardian.end()


def _make(parent: str) -> str:
    path = tempfile.mkdtemp(prefix="fastcopy-", dir=parent)
    is_plain = not {"%", "$"} & set(path)  # ssh would expand those in the path of a socket
    if is_plain and len(os.fsencode(path)) + len("/9999.sock") <= LONGEST_SOCKET_BYTES:
        return path
    os.rmdir(path)
    return tempfile.mkdtemp(prefix="fastcopy-", dir="/tmp")
