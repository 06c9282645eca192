"""Copy the same directory to several servers at once; one that fails holds up nobody.

usage: copy_to_many.py DIRECTORY HOST:DIRECTORY...
"""

import asyncio
import sys

import fastcopy


async def copy_one(source: str, destination: str) -> bool:
    try:
        report = await fastcopy.copy(source, destination)
    except fastcopy.FastcopyError as error:
        sys.stderr.write(f"{destination}: {error}\n")
        return False
    sys.stdout.write(f"{destination}: {report.files.copied} copied, {report.files.failed} failed\n")
    return report.exit_code == 0


async def main(source: str, destinations: list[str]) -> bool:
    return all(await asyncio.gather(*(copy_one(source, destination) for destination in destinations)))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.stderr.write("usage: copy_to_many.py DIRECTORY HOST:DIRECTORY...\n")
        sys.exit(2)
    sys.exit(0 if asyncio.run(main(sys.argv[1], sys.argv[2:])) else 1)
