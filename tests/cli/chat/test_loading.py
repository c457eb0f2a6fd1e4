"""The prompt is there at once: what draws it loads nothing heavy."""

import subprocess
import sys

from tests.cli.shell import environment

LIGHT = ("codesdk.cli.app", "codesdk.cli.commands.chat", "codesdk.cli.chat.start", "codesdk.cli.chat.history")
HEAVY = {
    "codesdk.sdk",
    "codesdk.engine",
    "codesdk.handles",
    "codesdk.client",
    "rich",
    "sqlite3",
    "httpx2",
    "mcp",
    "pydantic",
}


def test_the_prompt_loads_neither_the_engine_nor_what_renders():
    code = f"import sys\nimport {', '.join(LIGHT)}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment({}), capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "prompt_toolkit.application" in loaded
    assert loaded & HEAVY == set()
