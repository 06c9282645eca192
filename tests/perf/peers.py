"""Every contestant's command line, at its own best setting, always with the same cipher.

Pure: a trip in, a command out. What a peer has no option for is left at its default; what only verifies (rclone's
hashes after the copy) is switched off where it can be, as fastcopy and sftp do no such thing by default.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tests.perf.measure import Command
from tests.support.command import fastcopy_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.perf.trip import Trip

    Build = Callable[[Trip], Command]

CIPHER = "aes128-gcm@openssh.com"


def _ssh(trip: Trip) -> tuple[str, ...]:
    """Return the options ssh, sftp and scp share."""
    return "-F", str(trip.server.config), "-c", CIPHER


def _ssh_program(trip: Trip) -> str:
    """Return the command by which others start ssh."""
    return shlex.join(["ssh", "-a", "-x", *_ssh(trip)])


def fastcopy(*options: str) -> Build:
    """Copy every source into the destination; one alone under its full new name."""

    def build(trip: Trip) -> Command:
        into = "" if trip.is_put else "t:"
        sources = [f"{into}{source}" for source in trip.sources]
        target = f"t:{trip.into}/" if trip.is_put else f"{trip.into}/"
        common = ("copy", "-q", "-F", str(trip.server.config), "-c", CIPHER)
        return Command(words=(*fastcopy_command(), *common, *options, *sources, target))

    return build


def fastcopy_version(_: Trip) -> Command:
    return Command(words=(*fastcopy_command(), "--version"))


def sftp(trip: Trip) -> Command:
    """As tuned by hand for years: large requests, many of them in flight."""
    line = f"{trip.direction} {trip.source} {trip.target}"
    return Command(words=("sftp", *_sftp_options(trip), "-b", "-", "t"), stdin=f"{line}\n")


def _sftp_options(trip: Trip) -> tuple[str, ...]:
    return "-q", "-B", "260000", "-R", "512", *_ssh(trip)


def background_sftps(trip: Trip) -> Command:
    """Do what `batch.ksh` does: one sftp per file in the background, and `wait`."""
    one = shlex.join(["sftp", *_sftp_options(trip), "-b", "-", "t"])
    lines = [f"echo {trip.direction} {source} {trip.into / source.name} | {one} &" for source in trip.sources]
    return Command(words=("sh", "-c", "\n".join([*lines, "wait"])))


def scp(trip: Trip) -> Command:
    source, into = trip.ends(trip.source, trip.into)
    return Command(words=("scp", "-q", "-r", *_ssh(trip), source, f"{into}/"))


def rsync(*options: str) -> Build:
    """-W on the command line of one file: no delta search. Its own checksum over what it sent cannot be left out."""

    def build(trip: Trip) -> Command:
        source, into = trip.ends(trip.source, trip.into)
        return Command(words=("rsync", *options, "-e", _ssh_program(trip), source, f"{into}/"))

    return build


def lftp(pieces: int = 1) -> Build:
    """One file, many large requests in flight (it hangs when told to write more than 64k each). A get may be cut."""

    def build(trip: Trip) -> Command:
        how = "put" if trip.is_put else f"pget -n {pieces}"
        return _lftp(trip, f"{how} {trip.source} -o {trip.target}")

    return build


def lftp_mirror(pieces: int) -> Build:
    """A directory, `pieces` files at once."""

    def build(trip: Trip) -> Command:
        way = "-R " if trip.is_put else ""
        return _lftp(trip, f"mirror {way}-P {pieces} {trip.source} {trip.target}")

    return build


def _lftp(trip: Trip, line: str) -> Command:
    settings = {
        "cmd:fail-exit": "yes",
        "net:max-retries": "1",
        "sftp:auto-confirm": "yes",
        "sftp:connect-program": f'"{_ssh_program(trip)}"',
        "sftp:size-read": "255k",
        "sftp:size-write": "64k",
        "sftp:max-packets-in-flight": "64",
    }
    lines = [f"set {name} {value}" for name, value in settings.items()]
    script = "; ".join([*lines, f"open -u {trip.server.user},x sftp://t", line])
    return Command(words=("lftp", "--norc", "-c", script))


def rclone(chunk: str = "255k", streams: int = 1) -> Build:
    """One file in requests of `chunk`, and in `streams` pieces where rclone can do that: on a get."""

    def build(trip: Trip) -> Command:
        server = trip.server
        flags = {
            "--config": "",
            "--sftp-host": server.host,
            "--sftp-port": server.port,
            "--sftp-user": server.user,
            "--sftp-key-file": server.identity,
            "--sftp-known-hosts-file": server.known_hosts,
            "--sftp-chunk-size": chunk,
            "--sftp-concurrency": 64,
            "--sftp-disable-hashcheck": "true",
            "--multi-thread-streams": streams,
        }
        words = [f"{flag}={value}" for flag, value in flags.items()]
        # Not --sftp-ciphers: rclone before 1.62 has no such flag, and asks for this cipher first by itself.
        rclone = "env", f"RCLONE_SFTP_CIPHERS={CIPHER}", "rclone"
        return Command(words=(*rclone, "copyto", *words, *trip.ends(trip.source, trip.target, ":sftp:")))

    return build


def mscp(connections: int) -> Build:
    """The other program that copies over several SSH connections."""

    def build(trip: Trip) -> Command:
        source, target = trip.ends(trip.source, trip.target)
        return Command(words=("mscp", "-q", "-n", str(connections), *_ssh(trip), source, target))

    return build
