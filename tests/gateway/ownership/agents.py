"""Agents that repeat what they saw, each in the way of its format: literally, or with all texts joined to one."""

from typing import Any

import msgspec

from codesdk.contract.models import Wire
from codesdk.gateway.wires.exchange import Ask, AskCall, AskResult

RESULT = "what our tool returned"
NEXT = "And now something else."


def repeat(wire: Wire, body: dict[str, Any], answer: bytes, *, joins: bool) -> dict[str, Any]:
    """The next request of an agent: what it was told, the results of the calls that it saw, a new message."""
    heard = msgspec.json.decode(answer)
    said, told = _AGENTS[wire](heard, joins)
    key = {"responses": "input", "gemini": "contents"}.get(wire, "messages")
    return {**body, key: [*body[key], *said, *told]}


def _anthropic(heard: Any, joins: bool) -> tuple[list[Any], list[Any]]:
    content = heard["content"]
    if joins:
        text = "".join(block["text"] for block in content if block["type"] == "text")
        calls = [block for block in content if block["type"] == "tool_use"]
        content = ([{"type": "text", "text": text}] if text.strip() else []) + calls
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": RESULT}
        for block in content
        if block["type"] == "tool_use"
    ]
    said = [{"role": "assistant", "content": content}] if content else []
    return said, [{"role": "user", "content": [*results, {"type": "text", "text": NEXT}]}]


def _responses(heard: Any, joins: bool) -> tuple[list[Any], list[Any]]:
    output = heard["output"]
    if joins:
        messages = [item for item in output if item["type"] == "message"]
        text = "".join(part["text"] for item in messages for part in item["content"])
        said = [{"role": "assistant", "content": text}] if text.strip() else []
        output = [*said, *(item for item in output if item["type"].endswith("_call"))]
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": RESULT}
        for item in output
        if item.get("type") == "function_call"
    ]
    return output, [*results, {"role": "user", "content": NEXT}]


def _chat(heard: Any, joins: bool) -> tuple[list[Any], list[Any]]:
    message = heard["choices"][0]["message"]
    if joins and message.get("content"):
        message = {**message, "content": [{"type": "text", "text": message["content"]}]}
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": RESULT}
        for call in message.get("tool_calls") or []
    ]
    return [message], [*results, {"role": "user", "content": NEXT}]


def _gemini(heard: Any, joins: bool) -> tuple[list[Any], list[Any]]:
    content = heard["candidates"][0].get("content") or {"role": "model", "parts": []}
    parts = content["parts"]
    if joins:
        text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
        parts = [*([{"text": text}] if text else []), *(part for part in parts if "functionCall" in part)]
    results = [
        {
            "functionResponse": {
                **{k: part["functionCall"][k] for k in ("id", "name")},
                "response": {"output": RESULT},
            }
        }
        for part in parts
        if "functionCall" in part
    ]
    said = [{"role": "model", "parts": parts}] if parts else []
    told = [{"role": "user", "parts": results}] if results else []
    return said, [*told, {"role": "user", "parts": [{"text": NEXT}]}]


_AGENTS = {"anthropic": _anthropic, "responses": _responses, "chat": _chat, "gemini": _gemini}


def check_order(ask: Ask) -> None:
    """Every call must be followed by its result at once, as providers demand; no result may stand alone."""
    owed: set[str] = set()
    answered = False
    for message in ask.messages:
        for block in message.blocks:
            if isinstance(block, AskCall):
                # Only in Responses may the next call stand between a result and its end of turn.
                assert ask.wire == "responses" or not answered or not owed
                owed.add(block.id)
                answered = False
            elif isinstance(block, AskResult):
                assert block.id in owed, f"a result without a call: {block}"
                owed.discard(block.id)
                answered = True
            elif message.role == "user":
                assert not owed, f"the user speaks before the results of {owed}"
        if ask.wire != "responses" and message.role == "assistant" and owed:
            assert all(
                (isinstance(b, AskCall) and b.id in owed) or not isinstance(b, AskCall)
                for b in message.blocks
            )
    assert not owed


def results_follow(ask: Ask) -> None:
    """In all formats but Responses, a message with calls is followed by one, or several, with just their results."""
    if ask.wire == "responses":
        return
    for number, message in enumerate(ask.messages):
        calls = [block.id for block in message.blocks if isinstance(block, AskCall)]
        following: list[str] = []
        for later in ask.messages[number + 1 :]:
            results = [block.id for block in later.blocks if isinstance(block, AskResult)]
            if not results or (following and ask.wire != "chat"):
                break
            following += results
        if calls:
            assert sorted(calls) == sorted(following)
