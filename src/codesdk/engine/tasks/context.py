"""Compiles and records a runtime's input: the whole conversation as far as it fits, or what is new.

The compiled input is a short manifest: a range of the transcript with the hash chain up to its end, the tools, the
settings and what was left out. It is recorded in a `model.input` event; replay compiles it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from codesdk.contract.canonical import hash_json
from codesdk.contract.capabilities import InputCapture
from codesdk.contract.errors import StorageFailure
from codesdk.contract.events import Compacted, ContextWindow, ModelInput, Omission, Replacement
from codesdk.contract.messages import Message, ToolResult
from codesdk.contract.records import MessageRow
from codesdk.contract.runtime import History, Instructions, RuntimeEnv, TaskInput
from codesdk.contract.tools import ManifestEntry, ToolSpec
from codesdk.engine.log.loading import refold_transcript
from codesdk.engine.log.state import EMPTY_CHAIN
from codesdk.engine.log.transcript import estimate_tokens, message_hash
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.instructions import Captured
from codesdk.engine.tasks.window import RESULT, Window

NO_SOURCES = {
    "disabled": True,
    "reason": "This runtime reads nothing that CodeSDK did not hand to it.",
}
LISTED_LATER = {
    "deferred": True,
    "reason": "What this runtime adds is listed with each exact request of the task.",
}
OVER_BUDGET = "over the context budget"
COMPACTED = "compacted"


NOT_SEEN = {
    "disabled": True,
    "reason": "The program uses an account of its own, beside the gateway, so what it adds is not seen.",
}


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime is given, and the record of it. `through`: the messages of the transcript before this are in it."""

    messages: Sequence[Message]
    manifest: dict[str, Any]
    tool_manifest: list[ManifestEntry]
    context_window: ContextWindow
    through: int


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """What a task's input has beside its messages, and how it is recorded."""

    capture: InputCapture
    captured: Captured | None = None
    unseen: bool = False
    """Whether the runtime's requests go beside the gateway, so that nobody sees what it adds."""


def schema_hashes(tools: Sequence[ToolSpec], redact: Callable[[str], str]) -> list[ManifestEntry]:
    """Return the record of the offered tools. Names are redacted because MCP servers choose theirs."""
    return [
        ManifestEntry(name=redact(tool.name), schema_hash=_schema_hash(tool.input_schema)) for tool in tools
    ]


_hashes: dict[int, tuple[dict[str, Any], str]] = {}
_MOST_HASHES = 1_000


def _schema_hash(schema: dict[str, Any]) -> str:
    """Return a schema's hash, kept by identity: a registry offers the same objects to every task."""
    known = _hashes.get(id(schema))
    if known is None:
        if len(_hashes) >= _MOST_HASHES:
            _hashes.clear()
        # With the schema itself, so that no other object gets its id.
        known = _hashes[id(schema)] = schema, hash_json(schema)
    return known[1]


def compile_input(
    window: Window,
    tool_manifest: list[ManifestEntry],
    runtime_config: dict[str, Any],
    new_messages: int,
    asked: Sequence[Message] = (),
) -> Compiled:
    """Make the window fit and return the input compiled from it.

    `asked` are messages beside the transcript that come last: the words that ask for a summary.
    """
    added = sum(estimate_tokens(message) for message in asked)
    window.fit(new_messages, window.budget_tokens - added)
    rows = window.rows
    first = rows[0].index if rows else window.next_index
    context_window = ContextWindow(
        strategy="window" if first > 0 else "full",
        budget_tokens=window.budget_tokens,
        estimated_tokens=window.tokens + added,
        omitted=_omitted(first, window.compacted),
        replaced=_replaced(rows),
    )
    compiled = _compiled(rows, first, window.next_index, context_window, tool_manifest, runtime_config)
    return _with_others(compiled, window.summary, asked)


def compile_delta(
    rows: Sequence[MessageRow],
    through: int,
    chain: str,
    budget_tokens: int,
    tool_manifest: list[ManifestEntry],
    runtime_config: dict[str, Any],
) -> Compiled:
    """Return the input of a runtime that goes on with its own conversation: the new rows. Nothing is left out."""
    context_window = ContextWindow(
        strategy="delta",
        budget_tokens=budget_tokens,
        estimated_tokens=sum(row.tokens for row in rows),
        omitted=[],
        replaced=_replaced(rows),
    )
    first = rows[0].index if rows else through
    return _compiled(rows, first, through, context_window, tool_manifest, runtime_config, chain)


def _compiled(
    rows: Sequence[MessageRow],
    first: int,
    through: int,
    context_window: ContextWindow,
    tool_manifest: list[ManifestEntry],
    runtime_config: dict[str, Any],
    chain: str | None = None,
) -> Compiled:
    last = -1 if chain is None else through - 1
    manifest: dict[str, Any] = {
        "format": "codesdk.compiled_input/1",
        "messages": {
            "first": first,
            "last": rows[-1].index if rows else last,
            "chain_through": rows[-1].chain if rows else chain or EMPTY_CHAIN,
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
        through=through,
    )


def _with_others(compiled: Compiled, summary: MessageRow | None, asked: Sequence[Message]) -> Compiled:
    """Return an input with a summary before its messages and words beside the transcript after them."""
    if summary is None and not asked:
        return compiled
    named = compiled.manifest["messages"]
    if summary is not None:
        named["summary"] = summary.index
    if asked:
        named["asked"] = [message_hash(message) for message in asked]
    before = [summary.message] if summary is not None else []
    return msgspec.structs.replace(compiled, messages=[*before, *compiled.messages, *asked])


def _omitted(first: int, compacted: Compacted) -> list[Omission]:
    """Return what comes before the first message that is given, by why it is not."""
    runs = [(0, min(first, compacted.first), COMPACTED), (compacted.first, first, OVER_BUDGET)]
    return [Omission(first=start, last=end - 1, reason=reason) for start, end, reason in runs if start < end]


def _replaced(rows: Sequence[MessageRow]) -> list[Replacement]:
    return [
        Replacement(tool_call_id=block.tool_call_id, content_hash=block.result_ref.content_hash)
        for row in rows
        if row.message.role == "tool"
        for block in row.message.content
        if isinstance(block, ToolResult) and block.result_ref is not None
    ]


async def write_whole(scope: SessionScope, window: Window, offered: Offered) -> tuple[Compiled, int]:
    """Compile as much of the conversation as fits, and record it. Return it with the seq of its event."""
    task = scope.state.task
    asked = task.asked if task is not None else []

    async def compile_whole(tools: list[ManifestEntry], config: dict[str, Any]) -> Compiled:
        await load_window(scope, window)
        new = window.since(task.started_seq) if task is not None and not asked else 0
        compiled = compile_input(window, tools, config, new, asked)
        for kept in window.unstored:  # what a preview refers to must be there before it is given
            await scope.put_artifact(kept.data, kept.content_type, RESULT)
        window.unstored = []
        return compiled

    return await _write(scope, offered, compile_whole)


async def write_delta(scope: SessionScope, start: int, offered: Offered) -> tuple[Compiled, int]:
    """Compile the messages from `start` on, and record them. Return the input with the seq of its event."""

    async def compile_new(tools: list[ManifestEntry], config: dict[str, Any]) -> Compiled:
        through, chain = scope.state.messages, scope.state.chain
        rows = await read_rows(scope, start, through)
        return compile_delta(rows, through, chain, scope.settings.context_budget_tokens, tools, config)

    return await _write(scope, offered, compile_new)


async def load_window(scope: SessionScope, window: Window) -> None:
    """Read what the stored transcript holds beyond a window. If a stored message is damaged, the log has it."""
    try:
        await window.catch_up(scope.ports.log, scope.state.messages)
    except StorageFailure:
        window.replace(await refold_transcript(scope.ports.log, scope.ports.blobs, scope.state.session_id))


async def read_rows(scope: SessionScope, start: int, end: int) -> list[MessageRow]:
    """Return the messages from one index to before another."""
    if start >= end:
        return []
    try:
        return await scope.ports.log.messages(scope.state.session_id, before=end, limit=end - start)
    except StorageFailure:
        rows = await refold_transcript(scope.ports.log, scope.ports.blobs, scope.state.session_id)
        return rows[start:end]


async def _write(
    scope: SessionScope,
    offered: Offered,
    compile_rows: Callable[[list[ManifestEntry], dict[str, Any]], Awaitable[Compiled]],
) -> tuple[Compiled, int]:
    config = scope.redactor.value(scope.settings.runtime_config)
    sources = LISTED_LATER if offered.capture == "exact" else NO_SOURCES
    if offered.unseen:
        sources = NOT_SEEN
    if offered.captured is not None:
        sources = offered.captured.document
    beside = scope.state.task is not None and scope.state.task.asked
    while True:
        await scope.recorder.settle()
        while scope.recorder.backlog:  # somebody steered meanwhile, and that message must be included
            await scope.recorder.settle()
        tools = schema_hashes(scope.offered(), scope.redactor.text)
        compiled = await compile_rows(tools, config)
        # At once: the store then commits both together.
        sources_ref, input_ref = await asyncio.gather(
            scope.put_json(sources, "implicit sources"), scope.put_json(compiled.manifest, "compiled input")
        )
        if beside or compiled.through == scope.state.messages:
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


def runtime_env(scope: SessionScope) -> RuntimeEnv:
    """Return where a session's runtime works, where its state lives, and who pays for its model as things are now."""
    config, ports = scope.state.config, scope.ports
    payer = scope.permits.payer(scope.state.principal)
    return RuntimeEnv(
        cwd=config.workspace,
        identity=scope.workspace.identity,
        env={},
        credential_namespace=config.credential_namespace,
        isolation=config.isolation,
        state_dir=ports.state_dir,
        payer=payer,
        models={} if ports.models is None else ports.models.access(payer, scope.settings.gateway),
        login=scope.permits.logins.get(scope.state.runtime_name),
        allow_untested=scope.permits.allow_untested,
    )


def task_input(
    scope: SessionScope,
    task_id: str,
    messages: Sequence[Message],
    history: History,
    instructions: Sequence[Instructions] = (),
) -> TaskInput:
    """Return everything that a runtime is given for a task."""
    state, config, task = scope.state, scope.state.config, scope.state.task
    native = task is not None and task.output_way == "native"
    return TaskInput(
        session_id=state.session_id,
        task_id=task_id,
        env=runtime_env(scope),
        messages=messages,
        model_messages=state.model_messages,
        tools=scope.offered(),
        permission_mode=config.permission_mode,
        interaction_mode=config.interaction_mode,
        runtime_config=scope.settings.runtime_config,
        model=state.model,
        runtime_session_id=state.runtime_session_id,
        native_tools=() if config.native_tools == "off" else config.native_tools,
        instructions=instructions,
        history=history,
        output_schema=task.output_schema if task is not None and native else None,
    )
