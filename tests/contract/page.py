"""The examples into docs/contract.md and the golden lines: `python -m tests.contract.page` writes both.

The page has a pair of comments around each example; what stands between them comes from here.
"""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
from tests.contract import examples

from codesdk.contract.codec import encode
from codesdk.contract.events import EVENT_TYPES

PAGE = Path(__file__).parents[2] / "docs" / "contract.md"
GOLDEN = Path(__file__).parent / "golden_events.jsonl"
WIDTH = 118

_SLOT = re.compile(r"(<!-- example: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def golden_lines() -> str:
    """Return one line per event type, in the order of the contract."""
    return "".join(encode(examples.EVENTS[name]).decode() + "\n" for name in EVENT_TYPES)


def fill(page: str) -> str:
    """Return the page with every example as it is now."""
    return _SLOT.sub(lambda match: match[1] + _slot(match[2]) + match[4], page)


def slots(page: str) -> list[str]:
    """Return the names of the examples that a page has room for."""
    return [match[2] for match in _SLOT.finditer(page)]


def pretty(value: Any, indent: str = "", room: int = WIDTH) -> str:
    """Return JSON for people: an object or array on one line if it fits, else one item per line."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or len(flat) <= room:
        return flat
    deeper = indent + "  "
    names = [f"{json.dumps(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    items = value.values() if isinstance(value, dict) else value
    lines = [
        f"{deeper}{name}{pretty(item, deeper, WIDTH - len(deeper) - len(name) - 1)}"
        for name, item in zip(names, items, strict=True)
    ]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{opening}\n" + ",\n".join(lines) + f"\n{indent}{closing}"


def _slot(name: str) -> str:
    if name in examples.EVENTS:
        return _fields(name) + _block(examples.EVENTS[name])
    values: dict[str, Any] = {
        "compiled_input": examples.COMPILED_INPUT,
        "error": examples.ERROR,
        "transcript": examples.TRANSCRIPT,
    }
    return _block(values[name])


def _block(value: Any) -> str:
    # Through the wire form, so that defaults are left out as they are in the log.
    return f"```json\n{pretty(json.loads(msgspec.json.encode(value)))}\n```\n"


def _fields(name: str) -> str:
    fields = msgspec.structs.fields(EVENT_TYPES[name])
    always = ", ".join(f"`{field.encode_name}`" for field in fields if field.required)
    sometimes = ", ".join(f"`{field.encode_name}`" for field in fields if not field.required)
    text = f"Always: {always}." + (f" Where known: {sometimes}." if sometimes else "")
    return f"{text} [Schema](schema/{name}.json)\n\n"


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text()))
    GOLDEN.write_text(golden_lines())
