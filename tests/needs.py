"""A test → what it needs of the machine, as markers: read from its code, so that nobody has to remember to mark it.

Followed are the names that a test uses, its fixtures, and the functions and classes of the tests behind those names.
"""

import inspect
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

MARKER_OF = {
    "codesdk.testing.network": "program",
    "claude_agent_sdk": "program",
    "tests.sandbox.oci.engine": "container",
    "subprocess": "process",
    "mcp.client.stdio": "process",
    "codesdk.sandbox.bubblewrap.sandbox": "process",
    "codesdk.sandbox.host": "process",
    "codesdk.minicode.tools.builtin": "process",
    "codesdk.processes.child": "process",
    "codesdk.processes.guard": "process",
    "codesdk.tools.mcp_client.servers": "process",
    "codesdk.runtimes.external.hosting": "process",
    "codesdk.channel.process": "process",
}
"""A module, and what whoever uses it needs; the markers are described in pyproject.toml."""
STARTS = frozenset({"create_subprocess_exec", "posix_spawn", "fork"})
"""Functions of modules that every test may use."""


def needs_of(item: pytest.Function) -> frozenset[str]:
    """Return the markers of a test."""
    fixtures = item._fixtureinfo.name2fixturedefs
    used = [fixtures[name][-1].func for name in item.fixturenames if name in fixtures]
    return frozenset[str]().union(*map(needs, [item.obj, *used]))


@cache
def needs(start: Any) -> frozenset[str]:
    """Return the markers for what a function, or a class, starts."""
    found, seen, waiting = set[str](), set[Any](), [start]
    while waiting:
        for function in _functions(waiting.pop()):
            names = set(_names(function.__code__))
            if names & STARTS:
                found.add("process")
            for value in map(function.__globals__.get, names):
                # A constant stands for its class: a server's settings mean that the server is started.
                value = value if isinstance(value, ModuleType | FunctionType | type) else type(value)
                home = value.__name__ if isinstance(value, ModuleType) else value.__module__
                if marker := MARKER_OF.get(home):
                    found.add(marker)
                elif home.startswith("tests.") and value not in seen:
                    seen.add(value)
                    waiting.append(value)
    return frozenset(found)


def _functions(value: Any) -> Iterator[FunctionType]:
    """Give a function as it was written, or the methods of a class."""
    if isinstance(value, type):
        for part in vars(value).values():
            yield from _functions(part)
        return
    if hypothesis := getattr(value, "hypothesis", None):
        value = hypothesis.inner_test
    value = inspect.unwrap(getattr(value, "__func__", value))
    if isinstance(value, FunctionType):
        yield value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
