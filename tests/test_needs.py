"""What a test needs is found wherever it is hidden: in the test, a helper, a class, a constant, an inner function."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.needs import needs
from tests.sandbox.oci.engine import running_engine

from codesdk.testing.network import alone
from codesdk.tools.mcp_client.servers import StdioServer

SERVER = StdioServer(command="outside")


class Shell:
    def run(self) -> None:
        subprocess.run(["true"], check=True)


def helper() -> Shell:
    return Shell()


def nothing() -> None:
    assert [str(number) for number in range(3)]


def by_a_helper() -> None:
    helper().run()


async def on_the_loop() -> None:
    await asyncio.create_subprocess_exec("true")


def by_a_constant() -> None:
    assert SERVER.command


def in_an_inner_function() -> None:
    def inner() -> None:
        helper()

    inner()


@given(st.integers())
def with_examples(number: int) -> None:
    helper()


@contextmanager
def as_a_context() -> Iterator[None]:
    with alone():
        yield


def container_and_process() -> None:
    with running_engine():
        helper()


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (nothing, set()),
        (by_a_helper, {"process"}),
        (on_the_loop, {"process"}),
        (by_a_constant, {"process"}),
        (in_an_inner_function, {"process"}),
        (with_examples, {"process"}),
        (as_a_context, {"program"}),
        (container_and_process, {"container", "process"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_test_needs_is_found(function: Callable[..., Any], found: set[str]):
    assert needs(function) == found


@pytest.fixture
def shell() -> Shell:
    return helper()


def test_a_test_has_the_markers_of_its_fixtures(request: pytest.FixtureRequest, shell: Shell):
    assert [mark.name for mark in request.node.iter_markers()] == ["process"]
