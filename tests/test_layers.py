"""The arrows of the architecture, read from the sources with `ast`: who may import whom, and what.

`problems` is a pure function over sources, so the checker itself is tested on made-up violations below.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = Path(__file__).resolve().parent.parent / "fastcopy"
MAX_LINES = 450

VALUES = {"model", "config", "events", "errors"}
PURE = VALUES | {"plan"}
BELOW_ENGINE = PURE | {"transport", "connection", "sftp", "stream", "store", "measure"}
BELOW_CLI = BELOW_ENGINE | {"engine", "job"}
#: What each layer may import of fastcopy, besides itself. "fastcopy" is the root module, the public library.
ARROWS: Mapping[str, set[str]] = {
    **dict.fromkeys(VALUES, VALUES),
    "plan": VALUES,
    "transport": PURE,
    "connection": PURE | {"transport"},
    "sftp": PURE | {"transport"},
    "stream": PURE | {"transport"},
    "store": PURE,
    "measure": PURE | {"transport", "connection"},
    "engine": BELOW_ENGINE,
    "job": BELOW_ENGINE | {"engine", "fastcopy"},
    "demo": PURE | {"transport", "connection"},
    "cli": BELOW_CLI | {"demo", "fastcopy"},
    "fastcopy": BELOW_CLI,
    "__main__": {"cli", "fastcopy"},
}
#: Which layers may import what is not in the standard library.
FOREIGN: Mapping[str, set[str]] = {
    "asyncssh": {"connection", "demo"},
    "psutil": {"measure"},
    "typer": {"cli"},
    "click": {"cli"},
    "tqdm": {"cli"},
}
#: All that plan/ may import of the standard library: nothing that waits, looks at a clock, draws lots or does I/O.
PLAN_MAY_IMPORT = {
    *("__future__", "bisect", "collections", "dataclasses", "enum", "fnmatch", "fractions", "functools", "heapq"),
    *("itertools", "math", "re", "stat", "string", "typing", "urllib.parse"),
}
#: Calls that do I/O without an import.
IO_CALLS = {"open", "input", "print", "exec", "eval", "__import__"}


def problems(sources: Mapping[str, str]) -> list[str]:
    """Return every broken rule in `sources` (path beneath the package -> text) as a line that names file and line."""
    return [line for path in sorted(sources) for line in _problems_of(path, sources[path], _modules(sources))]


def _modules(sources: Mapping[str, str]) -> set[str]:
    return {_module_of(path) for path in sources}


def _module_of(path: str) -> str:
    return f"fastcopy/{path}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _layer(module: str) -> str:
    """Return the layer of `fastcopy`, `fastcopy.plan.names` and so on: the part behind the first dot."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "fastcopy"


def _problems_of(path: str, text: str, modules: set[str]) -> Iterator[str]:
    module = _module_of(path)
    layer = _layer(module)
    tree = ast.parse(text, path)
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"{path}: {lines} lines, over {MAX_LINES}"
    if tree.body and ast.get_docstring(tree) is None:
        yield f"{path}: no docstring at its head"
    if layer not in ARROWS:
        yield f"{path}: no layer of the design"
        return
    is_package = path.endswith("__init__.py")
    for node in ast.walk(tree):
        place = f"{path}:{getattr(node, 'lineno', 0)}"
        for name in _imported(node, module, is_package=is_package, modules=modules):
            if reason := _refusal(layer, name):
                yield f"{place}: {reason}"
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if layer == "plan" and called in IO_CALLS:
            yield f"{place}: plan is pure and may not call {called}"


def _imported(node: ast.AST, module: str, *, is_package: bool, modules: set[str]) -> Iterator[str]:
    """Yield the full name of every module that `node` imports, at run time or for types, by name or by call."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = node.module or ""
        if node.level:
            parts = module.split(".")
            parents = parts[: len(parts) - node.level + is_package]
            start = ".".join([*parents, start] if start else parents)
        if start.split(".")[0] != "fastcopy":
            yield start
            return
        for alias in node.names:  # `from fastcopy.plan import names` imports a module, `... import __version__` none
            member = f"{start}.{alias.name}"
            yield member if member in modules or (start == "fastcopy" and alias.name in ARROWS) else start
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            yield node.args[0].value


def _refusal(layer: str, name: str) -> str:
    """Return why `layer` may not import the module `name`; "" when it may."""
    top = name.split(".")[0]
    if top == "fastcopy":
        target = _layer(name)
        return "" if target == layer or target in ARROWS[layer] else f"{layer} may not import {name}: arrows point down"
    if top in FOREIGN:
        return "" if layer in FOREIGN[top] else f"{layer} may not import {top}: only {', '.join(FOREIGN[top])} may"
    if top not in sys.stdlib_module_names:
        return f"{top} is no dependency of fastcopy"
    if layer == "plan" and name not in PLAN_MAY_IMPORT and top not in PLAN_MAY_IMPORT:
        return f"plan is pure and may not import {name}"
    return ""


def test_the_package_keeps_to_its_layers() -> None:
    """No file of fastcopy breaks an arrow, takes a foreign import that is not its own, or lacks its docstring."""
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    assert problems(sources) == []
    assert {"errors.py", "plan/names.py", "transport/base.py"} <= sources.keys()


DOC = '"""What it is."""\n'


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("plan/x.py", "import asyncio", "plan is pure and may not import asyncio"),
        ("plan/x.py", "import os.path", "plan is pure and may not import os.path"),
        ("plan/x.py", "from time import monotonic", "plan is pure and may not import time"),
        ("plan/x.py", "def f():\n    import socket", "plan is pure and may not import socket"),
        ("plan/x.py", "from urllib.request import urlopen", "plan is pure and may not import urllib.request"),
        ("plan/x.py", "open('x')", "plan is pure and may not call open"),
        ("plan/x.py", "import fastcopy.store.local", "plan may not import fastcopy.store.local"),
        ("plan/x.py", "from ..engine import pool", "plan may not import fastcopy.engine"),
        ("sftp/x.py", "from fastcopy.connection.base import Connection", "sftp may not import fastcopy.connection"),
        ("sftp/x.py", "from fastcopy import engine", "sftp may not import fastcopy.engine"),
        ("sftp/x.py", "from fastcopy import __version__", "sftp may not import fastcopy:"),
        (
            "transport/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fastcopy.sftp.client import SftpClient",
            "transport may not import fastcopy.sftp",
        ),
        ("engine/x.py", "import asyncssh", "engine may not import asyncssh"),
        ("engine/x.py", "from asyncssh import sftp", "engine may not import asyncssh"),
        ("engine/x.py", "from importlib import import_module\nimport_module('asyncssh')", "may not import asyncssh"),
        ("cli/x.py", "import psutil", "cli may not import psutil"),
        ("engine/x.py", "from tqdm import tqdm", "engine may not import tqdm"),
        ("job.py", "import typer", "job may not import typer"),
        ("job.py", "import fastcopy.cli.main", "job may not import fastcopy.cli"),
        ("job.py", "from fastcopy.demo import server", "job may not import fastcopy.demo"),
        ("demo/x.py", "from fastcopy.engine import pool", "demo may not import fastcopy.engine"),
        ("model.py", "from fastcopy.plan.names import join", "model may not import fastcopy.plan"),
        ("store/x.py", "import paramiko", "paramiko is no dependency"),
        ("utils/x.py", "", "no layer of the design"),
        ("store/x.py", "x = 1\n" * 450, "451 lines, over 450"),
    ],
)
def test_the_checker_goes_red(path: str, text: str, expected: str) -> None:
    """Each kind of violation, made up in one file, is found and named."""
    (problem,) = problems({path: DOC + text})
    assert expected in problem


def test_the_checker_wants_a_docstring() -> None:
    """A file with code but no head docstring is found; an empty one (a bare package marker) is none."""
    assert problems({"store/x.py": "x = 1", "store/__init__.py": ""}) == ["store/x.py: no docstring at its head"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "plan/x.py",
            "import re\nfrom urllib.parse import unquote\nfrom collections.abc import Sequence\nfrom . import y",
        ),
        ("plan/__init__.py", "from .names import join"),
        ("connection/x.py", "import asyncssh\nfrom fastcopy.transport.base import Transport"),
        ("demo/server.py", "import asyncssh"),
        ("measure/x.py", "def f():\n    import psutil"),
        ("cli/x.py", "import typer\nfrom fastcopy import __version__\nfrom fastcopy.demo.server import serve"),
        ("engine/x.py", "from fastcopy.sftp import packets\nfrom fastcopy import errors"),
        ("__init__.py", "from fastcopy.job import copy"),
        ("__main__.py", "from fastcopy.cli.main import app"),
    ],
)
def test_the_checker_lets_pass_what_points_down(path: str, text: str) -> None:
    """Imports along the arrows are no problem, relative and lazy ones included."""
    assert problems({path: DOC + text, "plan/y.py": "", "plan/names.py": "", "sftp/packets.py": ""}) == []
