"""Events to transcript: messages are assembled while a task runs and sealed in order.

A part of the fold. Events do not come in the order of a message, so parts are grouped by `message_id` and
calls placed by `index`. A part is sealed into rows (one assistant message, then one tool message) when
nothing more can be added to it.
"""

from typing import Any, cast

import msgspec

from codesdk.contract.canonical import content_hash, hash_json
from codesdk.contract.messages import ContentBlock, Message, ToolUse
from codesdk.contract.records import MessageRow
from codesdk.engine.log.state import CallPart, Part, SessionState

OWN_CALL = "call:"
"""Prefix of message ids for calls that named no message of the model."""


def add_user(state: SessionState, messages: list[Message]) -> None:
    """Add user messages to the running task's parts."""
    if state.task is not None and state.task.summarizes_before is None:
        for place, message in enumerate(messages):
            # Several may have no id, or the same one.
            key = f"user:{state.seq}.{place}"
            state.task.parts[key] = Part(message_id=message.message_id or "", user=message)


def part_of(state: SessionState, message_id: str) -> Part | None:
    """Return the model part of this id in the running task, adding one at the end if there is none."""
    if state.task is None or state.task.summarizes_before is not None:
        return None
    return state.task.parts.setdefault(f"model:{message_id}", Part(message_id=message_id))


def has_part(state: SessionState, message_id: str) -> bool:
    """Return whether something of a model message has come in the running task."""
    return state.task is not None and f"model:{message_id}" in state.task.parts


def find_call(state: SessionState, tool_call_id: str, attempt: int) -> CallPart | None:
    """Return the part of a call of the running task."""
    if state.task is not None:
        for part in reversed(state.task.parts.values()):
            for call in part.calls:
                if call.tool_call_id == tool_call_id and call.attempt == attempt:
                    return call
    return None


def seal(state: SessionState, seq: int, *, everything: bool) -> list[MessageRow]:
    """Remove the parts that are done from the running task, in order, and return their rows.

    A model part is done when it is complete, its calls are answered and a later part
    exists, or none can be added to it; with `everything` (the task ends) all are.
    """
    task = state.task
    rows: list[MessageRow] = []
    if task is None:
        return rows
    done: list[str] = []
    for place, (key, part) in enumerate(task.parts.items(), start=1):
        if not everything and not _is_done(part, last=place == len(task.parts)):
            break
        rows += [row_for(state, seq, message) for message in _messages(part)]
        done.append(key)
    for key in done:
        del task.parts[key]
    return rows


def row_for(state: SessionState, seq: int, message: Message) -> MessageRow:
    """Give a message its place in the session's transcript and extend the chain."""
    chain = content_hash(f"{state.chain}\n{message_hash(message)}".encode())
    row = MessageRow(
        index=state.messages, seq=seq, tokens=estimate_tokens(message), chain=chain, message=message
    )
    state.messages += 1
    state.chain = chain
    state.context.tokens += row.tokens
    return row


def is_model_message(message: Message) -> bool:
    """Return whether the model wrote a message. One that only holds a reissued call is CodeSDK's own."""
    return message.role == "assistant" and not (message.message_id or "").startswith(OWN_CALL)


def message_hash(message: Message) -> str:
    """Return the hash of a message. Artifacts count by their content, not by their id."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    for block in cast("list[dict[str, Any]]", plain["content"]):
        block.pop("artifact_id", None)
        if isinstance(block.get("result_ref"), dict):
            block["result_ref"] = block["result_ref"]["content_hash"]
    return hash_json(plain)


def estimate_tokens(value: object) -> int:
    """Estimate tokens at four bytes of JSON each: rough, but the same everywhere and forever."""
    return (len(msgspec.json.encode(value)) + 3) // 4


def _is_done(part: Part, last: bool) -> bool:
    if part.user is not None:
        return True
    # The last part may still get calls; a later part shows that the model has gone on.
    whole = not last or part.message_id.startswith(OWN_CALL)
    return whole and part.content is not None and all(call.result is not None for call in part.calls)


def _messages(part: Part) -> list[Message]:
    if part.user is not None:
        return [part.user]
    content: list[ContentBlock] = list(part.content or [])
    calls = sorted(
        enumerate(part.calls), key=lambda item: (item[1].index is None, item[1].index or 0, item[0])
    )
    for _, call in calls:
        use = ToolUse(tool_call_id=call.tool_call_id, name=call.name, input=call.input, attempt=call.attempt)
        place = len(content) if call.index is None else min(call.index, len(content))
        content.insert(place, use)
    if not content:
        return []
    messages = [Message(role="assistant", content=content, message_id=part.message_id)]
    results: list[ContentBlock] = [call.result for _, call in calls if call.result is not None]
    if results:
        messages.append(Message(role="tool", content=results, message_id=part.message_id))
    return messages
