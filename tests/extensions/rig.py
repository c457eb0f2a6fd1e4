"""Extensions written for a test, loaded by themselves or beside a real engine."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from codesdk import CodeSDK, Session
from codesdk.contract.api import ExtensionInfo
from codesdk.extensions import (
    AgentEventEmitResult,
    AgentRuntimeProfile,
    ExtensionOptions,
    ExtensionSet,
    Pins,
    Signal,
    load_set,
)
from codesdk.extensions.worker import Hosting
from codesdk.policy import parse_policy
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object

both = pytest.mark.parametrize(
    "hosting", ["in_process", pytest.param("subprocess", marks=pytest.mark.process)], indirect=True
)
"""A test of extensions that run in threads, and of such that run in processes."""
PROFILES = [AgentRuntimeProfile(runtime_profile_id="scripted", runtime_profile_version="1.4.2")]
ASKS = """
[[rules]]
id = "ask-an-extension"
result = "ask"
tool = "workspace.write"
answer_by = ["extension:helper"]
"""
"""A policy by which the extension `helper` may answer."""
WRITE = {"call": {"tool": "workspace.write", "input": {"path": "a.txt", "content": "hello"}}}
WRITES = [[WRITE], [{"text": "Done."}]]


class Extensions:
    """A directory with extensions."""

    def __init__(self, root: Path, hosting: Hosting = "in_process") -> None:
        self.root = root
        self.hosting: Hosting = hosting
        self.notes = root.with_name("notes.jsonl")
        """What extensions in processes of their own note."""

    def write(
        self,
        folder: str,
        source: str | None = None,
        /,
        events: Sequence[str] = ("turn.completed", "task.started", "approval.requested"),
        actions: Sequence[str] = ("approval.decide", "turn.steer.create"),
        **manifest: Any,
    ) -> Path:
        """Write an extension. Without a source it registers nothing. `manifest` replaces fields; None removes one."""
        root = self.root / folder
        root.mkdir(parents=True, exist_ok=True)
        fields = {
            "name": folder,
            "version": "1.0.0",
            "agent_id": folder,
            "display_name": folder.title(),
            "runtime": {"core_api_version": 1},
            "entrypoints": {"events": "events.py"},
            "capabilities": {"events": list(events), "actions": list(actions)},
            **manifest,
        }
        fields = {key: value for key, value in fields.items() if value is not None}
        (root / "extension.json").write_bytes(msgspec.json.encode(fields))
        source = source or "def register(registry): pass\n"
        # Only where it is needed: another process may not have the tests.
        head = ""
        if "note(" in source and self.hosting == "in_process":
            head = "from tests.extensions.probe import note\n"
        elif "note(" in source:
            head = f"from tests.extensions.probe import noting\nnote = noting({str(self.notes)!r})\n"
        (root / "events.py").write_text(head + source)
        return root

    def options(self, **options: Any) -> ExtensionOptions:
        return ExtensionOptions(roots=(str(self.root),), **{"hosting": self.hosting, **options})

    async def load(self, load_s: float = 10.0, **options: Any) -> ExtensionSet:
        """Load all of them without an engine."""
        return await load_set(self.options(**options), Pins(None), PROFILES, 1, load_s)

    async def reasons(self, **options: Any) -> dict[str, str | None]:
        """Return why each was rejected, by directory; None for one that was loaded."""
        loaded = await self.load(**options)
        await loaded.end()
        return {Path(info.root).name: info.reason for info in loaded.inventory}

    async def reason(self, **options: Any) -> str:
        """Return why the only one was rejected."""
        (reason,) = (await self.reasons(**options)).values()
        assert reason is not None
        return reason


def info_of(loaded: ExtensionSet, name: str) -> ExtensionInfo:
    return next(info for info in loaded.inventory if info.name == name)


class Emitted:
    """Every dispatch of a host: the type of its event, and what came of it."""

    def __init__(self, sdk: CodeSDK) -> None:
        self.all: list[tuple[str, list[AgentEventEmitResult]]] = []
        self._waiting: dict[int, asyncio.Future[None]] = {}
        sdk.extensions.on_emitted = self._take

    def _take(self, signal: Signal, results: Sequence[AgentEventEmitResult]) -> None:
        self.all.append((signal.event.type, list(results)))
        if (waiting := self._waiting.pop(len(self.all), None)) is not None:
            waiting.set_result(None)

    def reached(self, count: int) -> "asyncio.Future[None]":
        """Return what is done once there were so many."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if len(self.all) >= count:
            future.set_result(None)
        else:
            self._waiting[count] = future
        return future

    def of(self, name: str) -> list[AgentEventEmitResult]:
        return [one for kind, results in self.all if kind == name for one in results]


@contextlib.asynccontextmanager
async def extended(
    ext: Extensions,
    tmp_path: Path,
    turns: Sequence[Any] = WRITES,
    *,
    policy: str = ASKS,
    stored: bool = False,
    options: ExtensionOptions | None = None,
) -> AsyncGenerator[CodeSDK]:
    """Open an SDK with these extensions, whose scripted runtime plays these turns."""
    script = parse_object({"turns": [{"steps": steps} for steps in turns]}, "test")
    (tmp_path / "ws").mkdir(exist_ok=True)
    async with CodeSDK.open(
        tmp_path / "data" if stored else None,
        runtimes={"scripted": ScriptedRuntime(script)},
        policy=parse_policy(policy, "test"),
        extensions=options or ext.options(),
    ) as sdk:
        yield sdk


async def session_in(sdk: CodeSDK, tmp_path: Path, **fields: Any) -> Session:
    return await sdk.create_session(runtime="scripted", workspace=tmp_path / "ws", **fields)


async def settle(sdk: CodeSDK) -> None:
    """Wait until all that is committed was dispatched."""
    assert sdk.extensions.settle is not None
    await sdk.extensions.settle()
