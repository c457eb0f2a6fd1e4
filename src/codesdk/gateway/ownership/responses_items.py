"""The output items of a Responses answer: which are calls, of which tool, and what stands in place of a denied one."""

import re
from typing import Any

from codesdk.gateway.ownership.acts import DeniedCall
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.values import made_up_id, read_input, write_json
from codesdk.gateway.wires.fields import mapping, string
from codesdk.gateway.wires.responses_tools import joined

Item = dict[str, Any]
FUNCTIONS = ("function_call", "custom_tool_call")
"""Calls by name, which whoever asked carries out."""
_OTHERS = ("mcp_list_tools", "mcp_approval_request")
_OUTPUTS = ("_call_output", "tool_search_output")
_INPUTS = ("arguments", "input", "action", "operation", "code", "queries")
_VERSION = re.compile(r"(?:_preview|_use)*(?:_\d{4}_\d{2}_\d{2})?$")


def is_call(item: Item) -> bool:
    """Return whether an item is a call, whoever carries it out."""
    kind = string(item.get("type"))
    return kind.endswith("_call") or kind in _OTHERS


def is_output(item: Item) -> bool:
    """Return whether an item is the result of a call that the provider carried out."""
    return string(item.get("type")).endswith(_OUTPUTS)


def name_of(item: Item) -> str:
    """Return the single name of the tool that an item calls; the provider's own are known by their type."""
    kind = string(item.get("type"))
    if kind in FUNCTIONS:
        return joined(string(item.get("name")), item.get("namespace"))
    if kind.startswith("mcp_"):
        return joined(string(item.get("name")) or kind, item.get("server_label"))
    return kind.removesuffix("_output").removesuffix("_call")


def input_of(item: Item) -> Any:
    """Return the input of a call."""
    value: Any = next((item[key] for key in _INPUTS if item.get(key) is not None), None)
    if value is None:
        return {}
    return read_input(value) if isinstance(value, str) and item.get("type") != "custom_tool_call" else value


def is_enabled(item: Item, names: Names) -> bool:
    """Return whether an item is of a tool of the agent's or the provider's that the session enabled."""
    kind = string(item.get("type"))
    if kind in FUNCTIONS:
        return names.is_native(string(item.get("name")), item.get("namespace"))
    if kind.startswith("mcp_"):
        return names.is_native(string(item.get("server_label")))
    return any(tool_kind(native) == name_of(item) for native in names.natives)


def tool_kind(tool: str) -> str:
    """Return the type of a provider's tool without its version, as the items that call it have it."""
    return _VERSION.sub("", tool)


def id_of(item: Item) -> str:
    """Return the id by which a result refers to a call."""
    return string(item.get("call_id")) or string(item.get("id"))


def stand_in(item: Item, mark: str) -> Item:
    """Return the message that stands in place of a denied call. It keeps the id, by which agents may refer to it."""
    part: Item = {"type": "output_text", "text": mark, "annotations": [], "logprobs": []}
    item_id = string(item.get("id")) or made_up_id(mark)
    return {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def call_items(call: DeniedCall) -> tuple[Item, Item]:
    """Return a denied call and its result as items of a request.

    A call of another kind than a function becomes one: a provider takes others only beside their tools.
    """
    item, call_id = call.item, id_of(call.item) or made_up_id(call.mark)
    kind = item.get("type")
    if kind not in FUNCTIONS:
        written = write_json(call.input).decode()
        item = {"type": "function_call", "name": call.name or "unknown", "arguments": written}
        kind = "function_call"
    result = {"type": f"{kind}_output", "call_id": call_id, "output": call.reason}
    return {**item, "call_id": call_id}, result


def is_sendable(item: Item, body: Item) -> bool:
    """Return whether an item of an answer may be sent back: reasoning that nobody stored only if it is encrypted."""
    if item.get("type") != "reasoning" or body.get("store") is not False:
        return True
    return bool(item.get("encrypted_content"))


def place_of(event: Item) -> int:
    """Return the index of the item that an event is about."""
    index = event.get("output_index")
    return index if isinstance(index, int) else 0


def item_in(event: Item) -> Item:
    """Return the item in an event."""
    return mapping(event.get("item"))
