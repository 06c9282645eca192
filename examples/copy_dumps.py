"""Copy a directory of dumps to a server and print what it cost. usage: copy_dumps.py DIRECTORY HOST:DIRECTORY"""

import asyncio
import sys

import fastcopy


async def main(source: str, destination: str) -> int:
    report = await fastcopy.copy([source], destination, parallel=8)
    for failure in report.failures:
        sys.stderr.write(f"{failure.kind}: {failure.message}\n")
    rate = (report.bytes_per_s or 0) / 2**20
    sys.stdout.write(f"{report.files.copied} files, {report.bytes.copied} bytes, {rate:.0f} MiB/s\n")
    for side, cpu in (("here", report.cpu_local), ("there", report.cpu_remote)):
        cost = cpu.seconds_per_gib(report.bytes.copied)
        sys.stdout.write(f"CPU {side}: {'not known' if cost is None else f'{cost:.2f} s/GiB'}\n")
    return report.exit_code


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.stderr.write("usage: copy_dumps.py DIRECTORY HOST:DIRECTORY\n")
        sys.exit(2)
    try:
        sys.exit(asyncio.run(main(*sys.argv[1:])))
    except fastcopy.FastcopyError as error:
        sys.exit(str(error))
