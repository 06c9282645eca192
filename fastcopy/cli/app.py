"""The command line: which words and options there are and what --help says of them. Wiring only.

The only importer of typer, and only inside `run`'s reach: `fastcopy --version` never gets here. Every option's text
goes as it is to arguments.py, which checks it. Help is plain text: no boxes, no colours, no rich.
Invariant: whatever happens, the user reads one sentence and the exit code is one of the documented ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from fastcopy.cli import arguments, options
from fastcopy.cli.console import Console, raise_descriptor_limit
from fastcopy.errors import FastcopyError, UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

#: click's own UsageError, wherever this version of typer keeps it (a dependency once, a private copy now).
_Usage: type[Exception] = typer.BadParameter.__bases__[0]

_ABOUT = """Copy files and directories between hosts over many SFTP channels at once.

The far side needs nothing but sshd. `fastcopy SRC... DST` is the same as `fastcopy copy SRC... DST`;
a file that is named like a command is written ./copy. `fastcopy --version` prints the version.
"""
_EXIT_CODES = """\b
Exit codes: 0 all is copied; 2 usage; 3 could not connect or log in; 4 some files failed;
5 wrong bytes; 6 unsafe peer; 7 protocol error; 129, 130, 143 ended by a signal; 1 else.
"""
_COPY = """Copy SRC... to DST: put, get, or both ends here.

A directory SRC becomes DST/SRC; SRC/ means its contents. Several sources go into the directory DST, which is made if
missing. Files of equal size and time are skipped, so running the same command again continues. Nothing stands under
its final name until it is whole. Times are always kept; owner and ACL are not kept.
"""


class PlainCommand(TyperCommand):
    """A command that takes every value as the text it is, and lists its options under headings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Sort the words into options and arguments, and leave their values alone.

        arguments.py checks them. Some versions of typer import pydantic to check a str: 60 ms for every start.
        """
        given, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        for param in self.get_params(ctx):
            value = given.get(param.name)
            if not param.expose_value and value is True:  # --help prints and leaves
                param.handle_parse_result(ctx, given, [])
            elif isinstance(value, str | bool | list | tuple):
                ctx.params[param.name] = value
        if rest:
            raise UsageError(f"{printable(rest[0])} was not expected there")
        return []

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        formatter.write_usage(ctx.command_path, self.options_metavar)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and param.param_type_name == "argument":
                record = str(param.metavar), record[1]  # without its type
            if record is not None:
                groups.setdefault(getattr(param, "rich_help_panel", None) or options.OUTPUT, []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _new_app() -> typer.Typer:
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=_ABOUT,
        epilog=_EXIT_CODES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def copy(
    paths: options.Paths = None,
    parallel: options.Parallel = None,
    connections: options.Connections = None,
    request_size: options.RequestSize = None,
    queue_depth: options.QueueDepth = None,
    cipher: options.Cipher = None,
    compress: options.Compress = False,
    ssh: options.Ssh = "auto",
    port: options.Port = None,
    identity: options.Identity = [],  # noqa: B006  (typer reads it, nobody changes it)
    ssh_config: options.SshConfig = None,
    jump: options.Jump = None,
    ssh_option: options.SshOption = [],  # noqa: B006  (typer reads it, nobody changes it)
    ipv4: options.IPv4 = False,
    ipv6: options.IPv6 = False,
    reuse_master: options.ReuseMaster = False,
    timeout: options.Timeout = None,
    preserve: options.Preserve = False,
    force: options.Force = False,
    symlinks: options.Symlinks = "copy",
    recursive: options.Recursive = False,
    json: options.Json = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    from fastcopy.cli import copying

    wanted = arguments.copy_options(
        parallel=parallel,
        connections=connections,
        reuse_master=reuse_master,
        request_size=request_size,
        queue_depth=queue_depth,
        cipher=cipher,
        compress=compress,
        ssh=ssh,
        port=port,
        identity=identity,
        ssh_config=ssh_config,
        jump=jump,
        ssh_option=ssh_option,
        ipv4=ipv4,
        ipv6=ipv6,
        preserve=preserve,
        force=force,
        symlinks=symlinks,
        timeout=timeout,
    )
    request = arguments.copy_request(paths or (), wanted, json_to=json, quiet=quiet, verbose=verbose)
    return copying.copy(request, Console())


def demo(
    size: options.DemoSize = "100M",
    files: options.DemoFiles = "10",
) -> int:
    """Copy generated files up to a server built in and down again, compare, clean up. Needs nothing else."""
    from fastcopy.cli.demo import demo as run_demo

    return run_demo(arguments.demo_request(size, files), Console())


def _add_copy(app: typer.Typer) -> None:
    app.command(
        "copy",
        cls=PlainCommand,
        options_metavar="[OPTIONS] SRC... DST",
        help=_COPY,
        short_help="Copy files and directories to DST.",
        epilog=_EXIT_CODES,
    )(copy)


def _add_demo(app: typer.Typer) -> None:
    app.command(
        "demo",
        cls=PlainCommand,
        options_metavar="[OPTIONS]",
        short_help="Show it at work on a server of its own.",
    )(demo)


_ADD = {"copy": _add_copy, "demo": _add_demo}


def _command_line(words: Sequence[str]) -> tuple[typer.Typer, str, list[str]]:
    """Return the app that understands `words`, the name it goes by, and the words left for it.

    A command is built alone: what the others would need is never looked at. --help gets them all.
    """
    first, *rest = arguments.with_command(words)
    app = _new_app()
    if first in _ADD:
        _ADD[first](app)
        return app, f"fastcopy {first}", rest
    for add in _ADD.values():
        add(app)
    return app, "fastcopy", [first]


def run(words: Sequence[str]) -> int:
    """Do what the command line `words` (without the program's name) asks. Returns the exit code; never raises."""
    raise_descriptor_limit()
    console = Console()
    name = "fastcopy"
    try:
        if not words:
            raise UsageError("nothing to do; write: fastcopy SRC... DST, or see fastcopy --help")
        app, name, rest = _command_line(words)
        code = app(rest, prog_name=name, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except FastcopyError as error:
        console.complain(str(error))
        return error.exit_code
    except _Usage as error:
        console.complain(f"{_sentence(error)}; see {name} --help")
        return UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        where = "; -v shows where" if name == "fastcopy copy" else ""
        console.complain(f"this should not have happened ({type(error).__name__}: {error}){where}")
        if "-v" in words:
            from fastcopy.cli.copying import traceback_lines

            console.tell(traceback_lines(error))
        return 1


def _sentence(error: Exception) -> str:
    """Return what click has to say as one sentence without its layout."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return " ".join(str(message).split()).rstrip(".")
