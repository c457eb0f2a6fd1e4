"""Transcript to model input: the newest messages that fit the budget, and what was left out.

`Window` keeps the part of the transcript that fits, so that each task adds only what is new; a loaded session
reads back no more than the budget holds. The compiled input is a short manifest: a range of the transcript
with the hash chain up to its end, the tools, the settings and the omissions. `write_input` records it in a
`model.input` event; replay compiles it again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from codesdk.contract.canonical import hash_json
from codesdk.contract.capabilities import InputCapture
from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.contract.events import ContextWindow, ModelInput, Omission, Replacement
from codesdk.contract.messages import Message, Reasoning, ToolResult
from codesdk.contract.ports import EventLog
from codesdk.contract.records import MessageRow
from codesdk.contract.runtime import Instructions, RuntimeEnv, TaskInput
from codesdk.contract.tools import ManifestEntry, ToolSpec
from codesdk.engine.log.loading import refold_transcript
from codesdk.engine.log.state import EMPTY_CHAIN
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.instructions import Captured

PAGE_MESSAGES = 64
NO_SOURCES = {
    "disabled": True,
    "reason": "This runtime reads nothing that CodeSDK did not hand to it.",
}
LISTED_LATER = {
    "disabled": True,
    "reason": "What this runtime adds is listed with each exact request of the task.",
}


NOT_SEEN = {
    "disabled": True,
    "reason": "The program uses an account of its own, beside the gateway, so what it adds is not seen.",
}


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime is given, and the record of it."""

    messages: Sequence[Message]
    manifest: dict[str, Any]
    tool_manifest: list[ManifestEntry]
    context_window: ContextWindow


class Window:
    """The newest messages of a transcript that fit a budget, starting with a user's message."""

    def __init__(self, budget_tokens: int) -> None:
        self.budget_tokens = budget_tokens
        self.tokens = 0
        self.next_index = 0
        self.rows: deque[MessageRow] = deque()

    async def catch_up(self, log: EventLog, session_id: str, count: int) -> None:
        """Read what the stored transcript of `count` messages holds beyond this window."""
        missing = count - self.next_index
        if self.rows and missing <= PAGE_MESSAGES:
            self.extend(await log.messages(session_id, before=count, limit=missing) if missing else [])
        else:
            await self._load(log, session_id, count)

    async def _load(self, log: EventLog, session_id: str, count: int) -> None:
        """Read the stored transcript backwards until the budget is full."""
        before: int | None = count
        total = 0
        rows: deque[MessageRow] = deque()
        while before and total <= self.budget_tokens:
            page = await log.messages(session_id, before=before, limit=PAGE_MESSAGES)
            if not page:
                break
            rows.extendleft(reversed(page))
            total += sum(row.tokens for row in page)
            before = page[0].index
        self.replace(rows)
        self.next_index = count

    def replace(self, rows: Iterable[MessageRow]) -> None:
        """Replace all rows."""
        self.rows.clear()
        self.tokens = 0
        self.extend(rows)

    def extend(self, rows: Iterable[MessageRow]) -> None:
        """Add rows at the end."""
        for row in rows:
            self.rows.append(_without_reasoning(row))
            self.tokens += row.tokens
            self.next_index = row.index + 1

    def since(self, seq: int) -> int:
        """Return how many messages were sealed at this seq or later: those of the running task."""
        return sum(1 for _ in takewhile(lambda row: row.seq >= seq, reversed(self.rows)))

    def fit(self, new_messages: int) -> None:
        """Drop the oldest rows until the budget holds, then up to the next user message.

        The last `new_messages` rows are the task itself. Raise `InvalidRequest` if those alone do not fit.
        """
        while self.tokens > self.budget_tokens and len(self.rows) > new_messages:
            self._drop()
        dropped = self.rows and self.rows[0].index > 0
        # Starting with a user's message, the window cannot begin with a tool result without its call.
        while dropped and len(self.rows) > new_messages and self.rows[0].message.role != "user":
            self._drop()
        if self.tokens > self.budget_tokens:
            raise InvalidRequest(
                f"The new messages alone need about {self.tokens} tokens; the context budget is "
                f"{self.budget_tokens}. Shorten or compact them, or raise context_budget_tokens.",
                code="CONTEXT_TOO_LARGE",
            )

    def _drop(self) -> None:
        row = self.rows.popleft()
        self.tokens -= row.tokens


def schema_hashes(tools: Sequence[ToolSpec], redact: Callable[[str], str]) -> list[ManifestEntry]:
    """Return the record of the offered tools. Names are redacted because MCP servers choose theirs."""
    return [ManifestEntry(name=redact(tool.name), schema_hash=hash_json(tool.input_schema)) for tool in tools]


def compile_input(
    window: Window,
    tool_manifest: list[ManifestEntry],
    runtime_config: dict[str, Any],
    new_messages: int,
) -> Compiled:
    """Make the window fit and return the input compiled from it."""
    window.fit(new_messages)
    rows = window.rows
    omitted: list[Omission] = []
    if rows and rows[0].index > 0:
        omitted.append(Omission(first=0, last=rows[0].index - 1, reason="over the context budget"))
    replaced = [
        Replacement(tool_call_id=block.tool_call_id, content_hash=block.result_ref.content_hash)
        for row in rows
        if row.message.role == "tool"
        for block in row.message.content
        if isinstance(block, ToolResult) and block.result_ref is not None
    ]
    context_window = ContextWindow(
        strategy="drop_oldest" if omitted else "full",
        budget_tokens=window.budget_tokens,
        estimated_tokens=window.tokens,
        omitted=omitted,
        replaced=replaced,
    )
    manifest: dict[str, Any] = {
        "format": "codesdk.compiled_input/1",
        "messages": {
            "first": rows[0].index if rows else 0,
            "last": rows[-1].index if rows else -1,
            "chain_through": rows[-1].chain if rows else EMPTY_CHAIN,
        },
        "tools": msgspec.to_builtins(tool_manifest),
        "runtime_config": runtime_config,
        "context_window": msgspec.to_builtins(context_window),
    }
    return Compiled(
        messages=[row.message for row in rows if row.message.content],
        manifest=manifest,
        tool_manifest=tool_manifest,
        context_window=context_window,
    )


def _without_reasoning(row: MessageRow) -> MessageRow:
    """Return the row as a runtime may see it: without reasoning, which is never sent to another runtime."""
    content = row.message.content
    if not any(isinstance(block, Reasoning) for block in content):
        return row
    kept = [block for block in content if not isinstance(block, Reasoning)]
    return msgspec.structs.replace(row, message=msgspec.structs.replace(row.message, content=kept))


async def write_input(
    scope: SessionScope,
    window: Window,
    capture: InputCapture,
    captured: Captured | None = None,
    *,
    beside: bool = False,
) -> tuple[Compiled, int]:
    """Compile the input from the transcript and record it. `beside`: the runtime's requests do not pass the gateway.

    Return it with the seq of its event: messages before that seq are part of it.
    """
    config = scope.redactor.value(scope.settings.runtime_config)
    sources = LISTED_LATER if capture == "exact" else NO_SOURCES
    if beside:
        sources = NOT_SEEN
    sources_ref = await scope.put_json(captured.document if captured else sources, "implicit sources")
    while True:
        await scope.recorder.settle()
        while scope.recorder.backlog:  # somebody steered meanwhile, and that message must be included
            await scope.recorder.settle()
        try:
            await window.catch_up(scope.ports.log, scope.state.session_id, scope.state.messages)
        except StorageFailure:  # a stored message is damaged; the log still has it
            window.replace(
                await refold_transcript(scope.ports.log, scope.ports.blobs, scope.state.session_id)
            )
        task = scope.state.task
        new = window.since(task.started_seq) if task is not None else 0
        offered = schema_hashes(scope.tools.specs(), scope.redactor.text)
        compiled = compile_input(window, offered, config, new)
        input_ref = await scope.put_json(compiled.manifest, "compiled input")
        if window.next_index == scope.state.messages:
            break  # else the task was steered meanwhile
    written = scope.journal.write(
        ModelInput(
            capture="compiled",
            input_ref=input_ref,
            input_hash=hash_json(compiled.manifest),
            implicit_sources_ref=sources_ref,
            tool_manifest=compiled.tool_manifest,
            runtime_config=compiled.manifest["runtime_config"],
            context_window=compiled.context_window,
        )
    )
    return compiled, written.seq


def task_input(
    scope: SessionScope,
    task_id: str,
    env: RuntimeEnv,
    compiled: Compiled,
    instructions: Sequence[Instructions] = (),
) -> TaskInput:
    """Return everything that a runtime is given for a task."""
    state, config = scope.state, scope.state.config
    return TaskInput(
        session_id=state.session_id,
        task_id=task_id,
        env=env,
        messages=compiled.messages,
        model_messages=state.model_messages,
        tools=scope.tools.specs(),
        permission_mode=config.permission_mode,
        interaction_mode=config.interaction_mode,
        runtime_config=scope.settings.runtime_config,
        model=state.model,
        runtime_session_id=state.runtime_session_id,
        native_tools=() if config.native_tools == "off" else config.native_tools,
        instructions=instructions,
    )
