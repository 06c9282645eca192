"""The options of the command line, each with its names, its place in --help and what --help says of it.

Declarations only: a value arrives as text and arguments.py reads it. Names are those of sftp and scp where they have
one (README, "Tuning"); tests/test_public.py holds them against the design's list. Imports typer alone.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

PLACES, SPEED, REACH, FILES, OUTPUT = "Places", "Speed", "Reaching the host", "Files", "Output"


def _option(group: str, *names: str, metavar: str | None = None, help: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=group, show_default=False)


Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SRC, DST",
        help="[user@]host:path, sftp://user@host:port/path, or a path here (./a:b if it has a colon).",
        rich_help_panel=PLACES,
        show_default=False,
    ),
]
Parallel = Annotated[
    str | None,
    _option(SPEED, "--parallel", "-n", metavar="N|auto", help="Channels that move bytes at once. Default: auto."),
]
Connections = Annotated[
    str | None,
    _option(
        SPEED,
        "--connections",
        metavar="M|auto",
        help="SSH logins the channels are spread over; each uses one core per side. Default: auto.",
    ),
]
RequestSize = Annotated[
    str | None,
    _option(
        SPEED,
        "--request-size",
        "-B",
        metavar="SIZE",
        help="Bytes per read or write request, as in sftp. Default: what the server allows, at most 255K.",
    ),
]
QueueDepth = Annotated[
    str | None,
    _option(
        SPEED,
        "--queue-depth",
        "-R",
        metavar="N",
        help="Requests in flight on each channel, as in sftp. Default: 64.",
    ),
]
Cipher = Annotated[
    str | None,
    _option(
        SPEED,
        "--cipher",
        "-c",
        metavar="NAME[,NAME]",
        help="Ciphers, best first. Default: AES-GCM first where both sides have it and the CPU does AES in hardware.",
    ),
]
Compress = Annotated[bool, _option(SPEED, "-C", help="Compress inside SSH. Default: no.")]
Ssh = Annotated[
    str,
    _option(
        REACH,
        "--ssh",
        metavar="auto|openssh|asyncssh",
        help="Use the system's ssh, or the one built in. Default: auto, the system's if it is there.",
    ),
]
Port = Annotated[
    str | None, _option(REACH, "--port", "-P", metavar="PORT", help="Port of sshd. Default: ssh_config's.")
]
Identity = Annotated[
    list[str], _option(REACH, "--identity", "-i", metavar="FILE", help="Private key to log in with; repeatable.")
]
SshConfig = Annotated[
    str | None, _option(REACH, "--ssh-config", "-F", metavar="FILE", help="Use this ssh_config. Default: as ssh does.")
]
Jump = Annotated[str | None, _option(REACH, "--jump", "-J", metavar="HOST", help="Reach the host through this one.")]
SshOption = Annotated[
    list[str], _option(REACH, "-o", metavar="OPT=VALUE", help="An ssh_config option, as in ssh; repeatable.")
]
IPv4 = Annotated[bool, _option(REACH, "-4", help="IPv4 only.")]
IPv6 = Annotated[bool, _option(REACH, "-6", help="IPv6 only.")]
ReuseMaster = Annotated[
    bool,
    _option(
        REACH,
        "--reuse-master",
        help="Go through your own ControlMaster: no further login, one connection. Default: no.",
    ),
]
Timeout = Annotated[
    str | None,
    _option(
        REACH,
        "--timeout",
        metavar="SECONDS",
        help="How long a login may take, and a channel may stay silent. Default: 30 and 60.",
    ),
]
Preserve = Annotated[
    bool,
    _option(
        FILES,
        "--preserve",
        "-p",
        help="Keep mode and access time too. Default: mtime; mode of the file replaced, else the source's & ~umask.",
    ),
]
Force = Annotated[bool, _option(FILES, "--force", help="Copy also what looks the same (size and time). Default: no.")]
Symlinks = Annotated[
    str,
    _option(
        FILES, "--symlinks", metavar="copy|follow|skip", help="What to do with links in a directory. Default: copy."
    ),
]
Recursive = Annotated[bool, _option(FILES, "-r", help="No effect: directories are always copied whole.")]
Json = Annotated[
    str | None,
    _option(OUTPUT, "--json", metavar="FILE|-", help="Write the report as JSON; - is standard output."),
]
Quiet = Annotated[bool, _option(OUTPUT, "-q", help="Say nothing unless something failed.")]
Verbose = Annotated[
    bool, _option(OUTPUT, "-v", help="Print the whole report: CPU per side, settings, every failure; tracebacks.")
]
DemoSize = Annotated[str, _option(FILES, "--size", metavar="SIZE", help="Size of each file. Default: 100M.")]
DemoFiles = Annotated[str, _option(FILES, "--files", metavar="N", help="How many files. Default: 10.")]
