"""What the integration tests share: the four routes, and one tree of everything odd with what it holds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.support.route import DIRECTIONS, WAYS, Route
from tests.support.trees import Node, odd_tree, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sshd import Sshd

ROUTES = [pytest.param(pair, id="-".join(pair)) for pair in itertools.product(DIRECTIONS, WAYS)]


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest, sshd: Sshd) -> Route:
    """Put and get, over OpenSSH and over asyncssh, through the plain sshd."""
    direction, way = request.param
    return Route(direction=direction, way=way, sshd=sshd)


@pytest.fixture(params=[("put", "openssh"), ("get", "asyncssh")], ids="-".join)
def each_direction(request: pytest.FixtureRequest, sshd: Sshd) -> Route:
    """Put over OpenSSH and get over asyncssh: for tests whose subject lies above the transports."""
    direction, way = request.param
    return Route(direction=direction, way=way, sshd=sshd)


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of every odd size and name. Never changed by a test."""
    return odd_tree(tmp_path_factory.mktemp("odd") / "tree")


@pytest.fixture(scope="session")
def odd_nodes(odd: Path) -> dict[bytes, Node]:
    """What a right copy of `odd` holds."""
    return snapshot(odd)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Each way to speak SSH, for tests of one direction."""
    chosen: str = request.param
    return chosen
