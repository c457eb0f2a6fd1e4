"""A recorded session and a program → the same session on that program, and what it does in another way.

The model's answers are the recorded ones, tools answer from the log, and people decide as they did. Nothing runs and
nobody is asked.
"""

import asyncio
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from codesdk.contract.canonical import canonical
from codesdk.contract.codec import decode
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.messages import ArtifactBlock, Message
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import SessionSettings
from codesdk.engine import Archive
from codesdk.gateway import LenientReplay
from codesdk.sdk import CodeSDK, Task
from codesdk.store import MemoryBlobs, MemoryLog
from codesdk.testing.fakes import memory_sdk
from codesdk.testing.recordings import NOT_RECORDED, LoggedCall, LoggedTools, Recording, read_calls

TASK_S = 300.0


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in one session. Each text is for people."""

    session_id: str
    tasks: int
    left_out: int
    inputs: Sequence[str]
    """Requests to the model that differ from the recorded ones."""
    calls: Sequence[str]
    """Calls of tools that were made only then (-) or only now (+)."""
    decisions: Sequence[str]
    """Calls that were decided in another way."""
    problem: str | None = None
    """Why a task did not end as it did then."""

    @property
    def behaves(self) -> bool:
        """Whether it does the same: inputs may be worded in another way."""
        return not self.calls and not self.decisions and self.problem is None


async def compare(runtime: Runtime, recording: Recording, *, timeout_s: float = TASK_S) -> Comparison:
    """Play a recording on a runtime. `timeout_s` is for each task."""
    log, blobs = MemoryLog(), MemoryBlobs()
    settings = msgspec.convert(recording.created.settings, type=SessionSettings)
    model = LenientReplay(recording.exchanges)
    with tempfile.TemporaryDirectory(prefix="codesdk-") as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        async with memory_sdk(
            runtimes=[runtime],
            tools=LoggedTools(recording),
            log=log,
            blobs=blobs,
            state_dir=str(Path(folder) / "state"),
        ) as sdk:
            session = await sdk.create_session(
                runtime=runtime.name,
                workspace=workspace,
                # Every call is asked about, whatever the mode was then: so each gets its recorded answer.
                permission_mode="ask",
                model=recording.created.model,
                # Whatever tools it had, of MCP servers or not, answer from the log.
                settings=msgspec.structs.replace(settings, gateway="replay", mcp_servers=[]),
                plays=model,
            )
            decisions = _decisions(recording.calls)
            problem = None
            for started in recording.tasks:
                messages = await _uploaded(sdk, recording, started.messages)
                task = await session.start(messages, output_schema=started.output_schema)
                problem = await _play(task, decisions, timeout_s)
                if problem is not None:  # what follows would only show the same once more
                    break
        events = [decode(frame.data) for frame in await log.read(session.id, 0, 2**31)]
    now = await read_calls(Archive(log, blobs), events)
    return Comparison(
        session_id=recording.session_id,
        tasks=len(recording.tasks),
        left_out=recording.left_out,
        inputs=model.changes,
        calls=_changed(recording.calls, now),
        decisions=_redecided(recording.calls, now),
        problem=problem,
    )


async def _play(
    task: Task, decisions: dict[tuple[str, str], list[LoggedCall]], timeout_s: float
) -> str | None:
    """See a task through, and answer its questions as they were answered. Return why it did not end well."""
    try:
        async with asyncio.timeout(timeout_s):
            asked: dict[str, tuple[str, str]] = {}
            async for event in task.events():
                if event.type == "tool.call.requested":
                    asked[event.payload.tool_call_id] = event.payload.name, event.payload.input_hash
                elif event.type == "approval.requested":
                    call_id = event.payload.tool_call_id or ""
                    if call_id not in asked:
                        return f"it asks for something else than a call: {event.payload.summary}"
                    known = decisions[asked[call_id]]
                    logged = known.pop(0) if known else None
                    if logged is not None and logged.decision == "approved":
                        await task.approve(call_id)
                    else:
                        await task.deny(call_id, NOT_RECORDED if logged is None else logged.reason)
            await task.result()
    except TimeoutError:
        return f"the task was not done after {timeout_s:g} s"
    except CodeSDKError as error:
        return f"the task failed: {error.message}"
    return None


def _decisions(calls: Sequence[LoggedCall]) -> dict[tuple[str, str], list[LoggedCall]]:
    found: dict[tuple[str, str], list[LoggedCall]] = defaultdict(list)
    for call in calls:
        found[call.key].append(call)
    return found


async def _uploaded(sdk: CodeSDK, recording: Recording, messages: Sequence[Message]) -> list[Message]:
    """Return messages whose attachments are in this store."""
    taken: list[Message] = []
    for message in messages:
        content = list(message.content)
        for place, block in enumerate(content):
            if isinstance(block, ArtifactBlock):
                kind = block.content_type or "application/octet-stream"
                ref = await sdk.put_artifact(recording.files[block.artifact_id], kind, block.name)
                content[place] = msgspec.structs.replace(block, artifact_id=ref.artifact_id)
        taken.append(msgspec.structs.replace(message, content=content))
    return taken


def _changed(before: Sequence[LoggedCall], now: Sequence[LoggedCall]) -> list[str]:
    """Return the calls that are only in one of the two. Those of one answer are made at once, in any order."""
    then, since = (
        Counter(f"{call.name} {canonical(call.input).decode()}" for call in calls) for calls in (before, now)
    )
    gone, new = (then - since).elements(), (since - then).elements()
    return [*(f"- {line}" for line in gone), *(f"+ {line}" for line in new)]


def _redecided(before: Sequence[LoggedCall], now: Sequence[LoggedCall]) -> list[str]:
    """Return the calls that were made both times and decided in another way."""
    then = _decisions(before)
    found: list[str] = []
    for call in now:
        known = then[call.key]
        logged = known.pop(0) if known else None
        if logged is not None and logged.decision != call.decision:
            found.append(f"{call.name}: {logged.decision} then, {call.decision} now")
    return found
