"""Rooms for minicode's files: configurations of a user and of a project, and sessions as they are kept."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.minicode.config.rig import Machine

from codesdk.contract.messages import Message, Reasoning, Text, ToolResult, ToolUse, user
from codesdk.minicode.storage import FsSessionRepository
from codesdk.minicode.types import SessionState, Usage

Run = Callable[[bytes], None]


def configs() -> list[bytes]:
    """Return configurations: what a project may say, what it may not, and all kinds of values."""
    allowed: Any = {
        "provider": "openai",
        "model": "m",
        "catalog": {"openai": ["m", "n"]},
        "tools": {"timeout_ms": 1000, "max_output_bytes": 1000},
        "agent": {"max_steps": 5, "instructions": "Be kind."},
    }
    refused: Any = {
        "providers": {
            "openai-compatible": {"base_url": "https://a.example:1/v1", "api_key": "k", "name": "n"}
        },
        "paths": {"sessions": "~x/s"},
        "sandbox": {"backend": "host"},
        "plugins": {"a.b": {"c": [1]}},
    }
    return [json.dumps(each).encode() for each in (allowed, refused, {**allowed, **refused})]


@contextmanager
def configured() -> Iterator[Run]:
    """A user and a project, each with the input as the configuration. A project's loosens nothing."""
    with tempfile.TemporaryDirectory(prefix="codesdk-fuzz-") as folder:
        machine = Machine(Path(folder))
        plain = machine.load(OPENAI_API_KEY="k").resolved

        def run(data: bytes) -> None:
            machine.global_file.unlink(missing_ok=True)
            machine.project_file.write_bytes(data)
            found = machine.load(OPENAI_API_KEY="k")
            msgspec.json.encode(found.resolved)
            assert (found.resolved.plugins, found.resolved.paths, found.resolved.sandbox, found.resolved.providers) == (
                plain.plugins, plain.paths, plain.sandbox, plain.providers,
            )  # fmt: skip
            machine.global_file.write_bytes(data)
            machine.global_file.chmod(0o600)
            msgspec.json.encode(machine.load(OPENAI_API_KEY="k").resolved)

        yield run


def sessions() -> list[bytes]:
    """Return a session with every kind of message."""
    said = [
        Reasoning(text="Hm."),
        Text(text="Hi."),
        ToolUse(tool_call_id="c", name="read", input={"a": 1}),
    ]
    messages = [
        user("Go."),
        Message(role="assistant", content=[*said]),
        Message(role="tool", content=[ToolResult(tool_call_id="c", result="x")]),
    ]
    state = SessionState(
        id="one", cwd="/", created_at=1, updated_at=2, provider="openai", model="m", messages=messages,
        metadata={"title": "A"}, usage_totals=Usage(input=3, cost_usd=0.5),
    )  # fmt: skip
    return [msgspec.json.encode(state)]


@contextmanager
def stored() -> Iterator[Run]:
    """A directory whose only session is the input: it is listed or reported; read, it can be written again."""
    with tempfile.TemporaryDirectory(prefix="codesdk-fuzz-") as folder:
        repository = FsSessionRepository(Path(folder))
        path = Path(folder) / "one.json"

        def run(data: bytes) -> None:
            path.write_bytes(data)
            found, damaged = repository._survey()
            assert len(found) + len(damaged) == 1
            state = repository._load("one")
            repository._save(state, state)
            assert repository._load("one") == state

        yield run
