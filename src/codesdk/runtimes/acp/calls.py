"""What an agent says of a tool call → which of our tools it is, with which input. Pure; `Reading` says where to look."""

from collections.abc import Mapping
from typing import Any

import msgspec

from codesdk.runtimes.acp.row import Reading, fill
from codesdk.runtimes.program.jsonrpc import Frame, as_dict, as_list

_SHOWN = 400


def own_tool(reading: Reading, told: Frame, tools: Mapping[str, str]) -> str | None:
    """Return the wire name of the tool of ours that a call is of, or None if it is not one of ours."""
    found = [name for place in reading.names if isinstance(name := at_place(told, place), str)]
    for wire in tools:
        spelled = [fill(pattern, {"name": wire}) for pattern in reading.spelled]
        # An id may follow the name, as in gemini's ids of calls.
        if any(name == known or name.startswith(f"{known}__") for name in found for known in spelled):
            return wire
    return None


def input_of(reading: Reading, told: Frame) -> Any:
    """Return the input of a call, or None if it has not been said yet."""
    for place in reading.inputs:
        value = at_place(told, place)
        if isinstance(value, str):
            try:
                value = msgspec.json.decode(value)
            except (ValueError, RecursionError):
                continue
        if as_dict(value):
            return as_dict(value)
    return None


def is_quiet(reading: Reading, told: Frame) -> bool:
    """Return whether an announcement is not of a call at all, by its title."""
    return any(at_place(told, place) in reading.quiet for place in reading.names)


def merged(told: Frame, update: Frame) -> Frame:
    """Return all that is known of a call: an update says only what has changed."""
    new = {key: value for key, value in update.items() if value not in (None, [], {}, "")}
    return {**told, **new}


def words_of(told: Frame) -> str:
    """Return what an agent says became of a call, shortened."""
    texts = [
        str(as_dict(as_dict(item).get("content")).get("text") or "") for item in as_list(told.get("content"))
    ]
    text = " ".join(part for part in texts if part).strip()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def name_of(reading: Reading, told: Frame) -> str:
    """Return the agent's name of a call that is not one of ours."""
    found = [name for place in reading.names if isinstance(name := at_place(told, place), str) and name]
    return (found[0] if found else str(told.get("kind") or "a tool"))[:200]


def at_place(told: Any, place: str) -> Any:
    """Return what is at a place; lists are entered by number."""
    for part in place.split("."):
        if isinstance(told, list):
            told = as_list(told)[int(part)] if part.isdigit() and int(part) < len(as_list(told)) else None
        else:
            told = as_dict(told).get(part)
    return told
