"""Names of tools that others chose → names by our rules, unique also in the form that providers see.

`mcp.SERVER.tool`. Providers allow 64 characters, and runtimes put a prefix of their own in front.
"""

import hashlib
import re
from collections.abc import Iterable

from codesdk.tools.registry import wire_name

MAX_CHARS = 48


def owned_name(server: str, tool: str, taken: set[str]) -> str:
    """Return a free name for a server's tool and add its wire form to `taken`.

    A name that is too long or taken gets a part of the hash of the original at its end: the same one every time.
    """
    name = f"mcp.{_word(server)}.{_word(tool)}"
    if len(name) > MAX_CHARS or wire_name(name) in taken:
        digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()
        name = f"{name[: MAX_CHARS - 9].rstrip('._')}_{digest[:8]}"
    taken.add(wire_name(name))
    return name


def wire_names(names: Iterable[str]) -> set[str]:
    """Return names in the form that providers see."""
    return {wire_name(name) for name in names}


def _word(text: str) -> str:
    """Return a word of small letters, digits and `_` that begins with a letter: `readFile` is `read_file`."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    word = re.sub(r"[^a-z0-9]+", "_", split.lower()).strip("_")
    return word if word[:1].isalpha() else f"t_{word}".rstrip("_")
