"""What a turn expects and what was seen → the first expectation that does not hold, as a sentence."""

from collections.abc import Collection, Sequence

import msgspec

from codesdk.script.model import Expect

_SHOWN = 200


class ScriptContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the player of a script knows when the next turn is requested.

    `results` are the texts of tool results and denials since the last model message.
    """

    user: str | None
    results: Sequence[str]
    offered: Collection[str]


def unmet(expect: Expect, seen: ScriptContext) -> str | None:
    """Return the first expectation that does not hold, and what was seen instead, or None."""
    for text in expect.user_contains:
        if seen.user is None:
            return f"expected a user message that contains {_show(text)}, but there is none"
        if text not in seen.user:
            return f"expected the last user message to contain {_show(text)}, but it is {_show(seen.user)}"
    for text in expect.tool_result_contains:
        if not any(text in result for result in seen.results):
            there = ", ".join(_show(result) for result in seen.results) or "no result"
            return f"expected a tool result that contains {_show(text)}, but there is {there}"
    for name in expect.offered:
        if name not in seen.offered:
            return f"expected the tool {name} to be offered, but offered are: {_list(seen.offered)}"
    for name in expect.not_offered:
        if name in seen.offered:
            return f"expected the tool {name} not to be offered, but offered are: {_list(seen.offered)}"
    return None


def _show(text: str) -> str:
    # A tool result may be very long.
    return f'"{text}"' if len(text) <= _SHOWN else f'"{text[:_SHOWN]}…" ({len(text)} characters)'


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
