"""Builds the transcript from events: messages are assembled while a task runs and sealed in order.

A part of the fold. Events do not come in the order of a message, so parts are grouped by `message_id` and
calls placed by `index`. A part is sealed into rows (one assistant message, then one tool message) when
nothing more can be added to it. A call that its runtime has not told of yet holds back what follows it: it may
belong there.
"""

from itertools import takewhile
from typing import Any, cast

import msgspec

from codesdk.contract.call_payloads import ToolCallAnnounced
from codesdk.contract.canonical import content_hash, hash_json
from codesdk.contract.messages import ContentBlock, Message, ToolUse
from codesdk.contract.records import MessageRow
from codesdk.contract.tools import ToolIdentity
from codesdk.engine.log.state import CallPart, Part, SessionState, call_key

OWN_CALL = "call:"
"""Prefix of message ids for calls that named no message of the model."""
MAX_HELD = 64
"""How many parts wait for the place of a call. A runtime that tells of none must not make the state grow."""


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


def own_id(call: ToolIdentity) -> str:
    """Return the id of the message of a call that belongs to no message of the model, so far."""
    return f"{OWN_CALL}{call_key(call.tool_call_id, call.attempt)}"


def place_call(state: SessionState, announced: ToolCallAnnounced) -> None:
    """Move an early call into the message that made it, with its result if it has one."""
    task, message_id = state.task, announced.message_id
    own = f"model:{own_id(announced)}"
    part = None if task is None else task.parts.get(own)
    if task is None or part is None:
        return  # it was held back for too long, and is sealed
    part.early = False
    completed = message_id in task.completed_messages
    if message_id is None or (completed and not has_part(state, message_id)):
        return  # no message made it, or one that is sealed: it stands for itself
    del task.parts[own]
    [call] = part.calls
    call.index = announced.index
    made = task.parts.setdefault(f"model:{message_id}", Part(message_id=message_id))
    made.calls.append(call)
    if completed:
        made.content = made.content or []


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

    A model part is done when it is complete, its calls are answered and a later part shows that the model has
    gone on, or none can be added to it; with `everything` (the task ends) all are.
    """
    task = state.task
    rows: list[MessageRow] = []
    if task is None:
        return rows
    done: list[str] = []
    spoken = len(task.parts) - _early_at_end(task.parts)
    for place, (key, part) in enumerate(task.parts.items(), start=1):
        later = len(task.parts) - place
        if not everything and not _is_done(part, gone_on=place < spoken, held=later < MAX_HELD):
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


def _early_at_end(parts: dict[str, Part]) -> int:
    """Return how many parts at the end may yet belong to one before them."""
    return sum(1 for _ in takewhile(lambda part: part.early, reversed(parts.values())))


def _is_done(part: Part, *, gone_on: bool, held: bool) -> bool:
    if part.user is not None:
        return True
    if part.early and held:
        return False
    # Without a later part that is no early call, the model may still be about to call something.
    whole = gone_on or not held or part.message_id.startswith(OWN_CALL)
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
