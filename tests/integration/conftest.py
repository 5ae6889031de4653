"""Process groups that several tests share: they leave them idle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.group import ROOT, Group, costs, eventually, running


def idle_afterwards(group: Group) -> Iterator[Group]:
    yield group
    eventually(group.idle)


@pytest.fixture(scope="session")
def mini_group() -> Iterator[Group]:
    with running() as group:
        yield group


@pytest.fixture(scope="session")
def tiny_group() -> Iterator[Group]:
    with running("--model", str(ROOT / "tests" / "data" / "checkpoint_tiny")) as group:
        yield group


@pytest.fixture(scope="session")
def cost_group() -> Iterator[Group]:
    with running(*costs()) as group:
        yield group


@pytest.fixture
def mini(mini_group: Group) -> Iterator[Group]:
    """The bundled model, computed."""
    yield from idle_afterwards(mini_group)


@pytest.fixture
def tiny(tiny_group: Group) -> Iterator[Group]:
    """The golden checkpoint of random weights, computed."""
    yield from idle_afterwards(tiny_group)


@pytest.fixture
def fast(cost_group: Group) -> Iterator[Group]:
    """Cost models instead of models: steps of 2 ms."""
    yield from idle_afterwards(cost_group)
