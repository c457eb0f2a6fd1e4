"""The public names: few, there, and cheap to import."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import codesdk

HEAVY = [
    "anthropic",
    "asyncio",
    "click",
    "google.genai",
    "httpx2",
    "mcp",
    "msgspec",
    "openai",
    "opentelemetry",
    "prometheus_client",
    "pydantic_ai",
    "rich",
    "sqlite3",
    "uvicorn",
    "uvloop",
    "yaml",
    "codesdk.sdk",
    "codesdk.contract",
    "codesdk.observe",
]


def test_the_public_names_are_few_and_sorted():
    assert len(codesdk.__all__) <= 55
    assert sorted(codesdk.__all__) == list(codesdk.__all__)


def test_what_ordinary_work_needs_is_among_the_public_names():
    needed = {
        *("CodeSDK", "CodeSDKClient", "SyncClient"),
        *("ExecOptions", "FetchOptions", "HttpServer", "StdioServer"),
        *("load_script", "parse_script"),
    }
    assert needed <= set(codesdk.__all__)


@pytest.mark.parametrize("name", codesdk.__all__)
def test_a_public_name_is_there_and_has_a_docstring(name: str):
    assert getattr(codesdk, name).__doc__


def test_type_checkers_see_the_same_names_as_programs():
    tree = ast.parse(Path(codesdk.__file__ or "").read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    imported = [
        (alias.name, node.module)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(name for name, _ in imported) == list(codesdk.__all__)
    for name, home in imported:
        assert getattr(importlib.import_module(home or ""), name) is getattr(codesdk, name)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        codesdk.no_such_name  # noqa: B018


def test_importing_the_package_loads_nothing_heavy():
    code = f"import codesdk, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_sdk_loads_nothing_that_an_open_or_a_session_loads_by_itself():
    later = [
        *("ctypes", "difflib", "shutil", "sqlite3", "tempfile", "tomllib", "uvicorn"),
        *("codesdk.runtimes.acp", "codesdk.runtimes.program.pinned", "codesdk.policy.rules"),
        *(
            "codesdk.sandbox.egress",
            "codesdk.serving.server",
            "codesdk.store.audit.trail",
            "codesdk.tools.registry",
            "codesdk.tools.json_schema",
        ),
    ]
    code = (
        f"from codesdk import CodeSDK; import sys; print([name for name in {later!r} if name in sys.modules])"
    )
    # Coverage, if it is measured, loads some of these itself.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


def test_opening_an_sdk_loads_neither_terminal_nor_testing_code_nor_mcp():
    code = (
        "import asyncio, sys\n"
        "from codesdk import CodeSDK\n"
        "async def main():\n"
        "    async with CodeSDK.open():\n"
        "        pass\n"
        "asyncio.run(main())\n"
        "unwanted = ('rich', 'click', 'mcp', 'opentelemetry', 'prometheus_client', 'pydantic_ai', 'codesdk.testing', 'codesdk.cli', 'codesdk.runtimes.acp')\n"
        "print([name for name in unwanted if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
