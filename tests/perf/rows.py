"""The table: every figure of the speed goals, and the races it takes to measure them.

Values only; row.py does the arithmetic, race.py the running. Goals are ratios to peers that run in the same minutes
on the same machine, apart from memory and start-up.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.perf import peers
from tests.perf.dataset import DataSet
from tests.perf.race import Contestant, Race, Setting
from tests.perf.row import Quantity, Row

_MIB = 1 << 20
_GIB = 1 << 30
_DIRECTIONS = ("put", "get")
_RTT_S = 0.1
_FAR_SFTP_ROUNDS = 2
#: Channels and connections a user would try on two to four cores.
_COMBINATIONS = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))
_ASYNCSSH = "fastcopy --ssh asyncssh"
_AUTO = "fastcopy, auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much each race moves."""

    file: DataSet
    dumps: DataSet
    far_file: DataSet
    small_files: DataSet
    memory_file: DataSet


FULL = Sizes(
    file=DataSet(files=1, file_bytes=2 * _GIB),
    dumps=DataSet(files=10, file_bytes=100_000_000),
    far_file=DataSet(files=1, file_bytes=600 * _MIB),
    small_files=DataSet(files=10_000, file_bytes=4096, directories=100),
    memory_file=DataSet(files=1, file_bytes=4 * _GIB),
)
QUICK = Sizes(
    file=DataSet(files=1, file_bytes=128 * _MIB),
    dumps=DataSet(files=10, file_bytes=5_000_000),
    far_file=DataSet(files=1, file_bytes=40 * _MIB),
    small_files=DataSet(files=500, file_bytes=4096, directories=5),
    memory_file=DataSet(files=1, file_bytes=256 * _MIB),
)


def _fastcopy(channels: int, connections: int, *more: str) -> Setting:
    options = ("-n", str(channels), "--connections", str(connections))
    return Setting(label=f"N={channels} M={connections}", build=peers.fastcopy(*options, *more))


def _only(name: str, build: peers.Build, label: str = "", program: str | None = None) -> Contestant:
    return Contestant(name=name, settings=(Setting(label=label, build=build),), program=program)


_BEST = Contestant(name="fastcopy", settings=tuple(_fastcopy(*pair) for pair in _COMBINATIONS))
_SFTP = _only("sftp", peers.sftp, program="sftp")
_SCP = _only("scp", peers.scp, program="scp")


def _file_race(direction: str, sizes: Sizes) -> Race:
    if direction == "put":
        lftp: tuple[Setting, ...] = (Setting(label="", build=peers.lftp()),)
        rclone = tuple(Setting(label=f"chunk={chunk}", build=peers.rclone(chunk)) for chunk in ("32k", "255k"))
    else:
        pieces = (1, 2, 4)
        lftp = tuple(Setting(label=f"pget -n {number}", build=peers.lftp(number)) for number in pieces)
        rclone = tuple(Setting(label=f"streams={number}", build=peers.rclone(streams=number)) for number in pieces)
    contestants = (
        _SFTP,
        _BEST,
        Contestant(name=_ASYNCSSH, settings=(_fastcopy(1, 1, "--ssh", "asyncssh"),)),
        Contestant(name="lftp", settings=lftp, program="lftp"),
        Contestant(name="rclone", settings=rclone, program="rclone"),
        _only("rsync", peers.rsync("-W"), "-W", "rsync"),
        Contestant(
            name="mscp",
            settings=tuple(Setting(label=f"n={number}", build=peers.mscp(number)) for number in (1, 2, 4)),
            program="mscp",
        ),
        Contestant(name="scp", settings=_SCP.settings, program="scp", rounds=2),
    )
    return Race(name=direction, contestants=contestants, data=sizes.file, direction=direction)


def _far_race(direction: str, sizes: Sizes) -> Race:
    # sftp takes 40 s each time, window by window: what its rounds differ by is far below what the figures are about.
    sftp = Contestant(name="sftp", settings=_SFTP.settings, program="sftp", rounds=_FAR_SFTP_ROUNDS)
    openssh = Contestant(name="fastcopy", settings=(_fastcopy(8, 4),))
    asyncssh = Contestant(name=_ASYNCSSH, settings=(_fastcopy(8, 8, "--ssh", "asyncssh"),))
    return Race(
        name=f"far {direction}",
        contestants=(sftp, openssh, *([asyncssh] if direction == "get" else []), _only(_AUTO, peers.fastcopy())),
        data=sizes.far_file,
        direction=direction,
        rtt_s=_RTT_S,
        first_pass=False,
    )


def _memory_race(direction: str, sizes: Sizes) -> Race:
    # As many connections as channels: the most processes that 8 channels can mean.
    eight = Contestant(name="fastcopy", settings=(_fastcopy(8, 8),))
    return Race(
        name=f"memory {direction}",
        contestants=(eight,),
        data=sizes.memory_file,
        direction=direction,
        memory=True,
        first_pass=False,
        rounds=2,
    )


def races(sizes: Sizes) -> list[Race]:
    """Return the races; neighbours share their data where they can."""
    batch = (_only("ten sftp", peers.background_sftps, program="sftp"), _only("fastcopy", peers.fastcopy(), "auto"))
    small = (
        _only("fastcopy", peers.fastcopy(), "auto"),
        _only("lftp", peers.lftp_mirror(4), "mirror -R -P 4", "lftp"),
        _only("scp", peers.scp, "-r", "scp"),
        _only("rsync", peers.rsync("-a"), "-a", "rsync"),
    )
    return [
        *(_file_race(direction, sizes) for direction in _DIRECTIONS),
        Race(name="batch", contestants=batch, data=sizes.dumps),
        *(_far_race(direction, sizes) for direction in _DIRECTIONS),
        Race(name="small", contestants=small, data=sizes.small_files),
        *(_memory_race(direction, sizes) for direction in _DIRECTIONS),
        Race(name="start", contestants=(_only("fastcopy", peers.fastcopy_version),)),
    ]


def rows(sizes: Sizes) -> list[Row]:
    """Return the table's rows in the order they are shown."""
    file_bytes, far_bytes = sizes.file.total_bytes, sizes.far_file.total_bytes
    small, count = sizes.small_files, f"{sizes.small_files.files:,} files of 4 KiB"
    rate, cpu = Quantity.RATE, Quantity.CPU

    def by_direction(
        figure: str, quantity: Quantity, theirs: str, *, ours: str = "fastcopy", **reach: float
    ) -> list[Row]:
        return [
            Row(
                figure=f"{direction}, {figure}",
                race=direction,
                quantity=quantity,
                ours=ours,
                theirs=theirs,
                total_bytes=file_bytes,
                at_least=reach.get(f"{direction}_at_least"),
                at_most=reach.get(f"{direction}_at_most"),
            )
            for direction in _DIRECTIONS
        ]

    def far(direction: str, figure: str, ours: str, at_least: float) -> Row:
        return Row(
            figure=f"{direction}, RTT 100 ms, {figure}, against sftp",
            race=f"far {direction}",
            quantity=rate,
            ours=ours,
            theirs="sftp",
            total_bytes=far_bytes,
            at_least=at_least,
        )

    def tree(theirs: str, shown: str, at_least: float) -> Row:
        return Row(
            figure=f"put, {count}, against {shown}",
            race="small",
            quantity=Quantity.TIME,
            theirs=theirs,
            total_bytes=small.total_bytes,
            at_least=at_least,
        )

    return [
        *by_direction("best of N, M = 1, 2, 4, against sftp", rate, "sftp", put_at_least=1.15, get_at_least=1.08),
        Row(
            figure="put, 10 files of 100 MB, against ten background sftp",
            race="batch",
            quantity=rate,
            theirs="ten sftp",
            total_bytes=sizes.dumps.total_bytes,
            at_least=1.6,
        ),
        *(
            row
            for peer in ("lftp", "rclone", "rsync")
            for row in by_direction(f"against {peer}", rate, peer, put_at_least=1.2, get_at_least=1.2)
        ),
        *by_direction("local CPU against sftp's", cpu, "sftp", put_at_most=1.05, get_at_most=1.15),
        *by_direction(
            "--ssh asyncssh, one channel, against sftp",
            rate,
            "sftp",
            ours=_ASYNCSSH,
            put_at_least=1.0,
            get_at_least=0.85,
        ),
        far("put", "8 channels", "fastcopy", 5),
        far("get", "8 channels", "fastcopy", 5),
        far("get", "8 channels, --ssh asyncssh", _ASYNCSSH, 8),
        far("put", "--parallel auto", _AUTO, 7),
        far("get", "--parallel auto", _AUTO, 7),
        tree("lftp", "lftp mirror -R -P 4", 2.5),
        tree("scp", "scp -r", 3.8),
        tree("rsync", "rsync -a", 0.6),
        *(
            Row(
                figure=f"{direction}, peak memory (PSS) of the process tree, 8 channels",
                race=f"memory {direction}",
                quantity=Quantity.MEMORY,
                total_bytes=sizes.memory_file.total_bytes,
                at_most=150,
            )
            for direction in _DIRECTIONS
        ),
        Row(figure="fastcopy --version", race="start", quantity=Quantity.TIME, at_most=0.25),
        *by_direction("against scp", rate, "scp"),
        *by_direction("against mscp, its best of n = 1, 2, 4", rate, "mscp"),
    ]
