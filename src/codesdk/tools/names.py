"""A tool's name in CodeSDK (`workspace.read`) ↔ its names on the wire. Only this module knows the rule.

Providers allow letters, digits, `_` and `-`, so the dot becomes an underscore. A runtime that gets its
tools over MCP prefixes the server's name. Tools of other MCP servers get names by our rules, which are
unique on the wire too.
"""

import hashlib
import re
from collections.abc import Iterable

EXEC = "workspace.exec"
"""The tool that runs commands."""
SERVER = "codesdk"
"""The name under which runtimes know the MCP server that offers our tools."""
NAMESPACE = f"mcp__{SERVER}"
"""How codex groups our tools in a request."""
PREFIX = f"{NAMESPACE}__"
"""The prefix that claude gives each of our tools."""
MAX_CHARS = 48
"""The longest name given to another server's tool: providers allow 64, and runtimes add a prefix."""


def wire_name(name: str) -> str:
    """Return a name in the form that providers allow."""
    return name.replace(".", "_")


def by_wire_name(names: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Return our names by the names that models see. A registry has no two names with the same wire name."""
    return {prefix + wire_name(name): name for name in names}


def offered_as(name: str, offered: Iterable[str]) -> str | None:
    """Return a request's name for one of our tools, or None if the request does not offer it.

    Each runtime prefixes the server's name in its own way, so only the end of the name is compared.
    """
    plain = wire_name(name)
    candidates = list(offered)
    exact = next((found for found in candidates if found in (name, plain)), None)
    # A separator before it: `reread` must not be taken for `read`.
    endings = (f"_{plain}", f".{plain}", f"-{plain}", f".{name}", f"_{name}")
    return exact or next((found for found in candidates if found.endswith(endings)), None)


def owned_name(server: str, tool: str, taken: set[str]) -> str:
    """Return a free name `mcp.SERVER.tool` for a server's tool and add its wire name to `taken`.

    A name that is too long or taken ends with part of a hash of the original, so that it is the same every
    time.
    """
    name = f"mcp.{_word(server)}.{_word(tool)}"
    if len(name) > MAX_CHARS or wire_name(name) in taken:
        digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()
        name = f"{name[: MAX_CHARS - 9].rstrip('._')}_{digest[:8]}"
    taken.add(wire_name(name))
    return name


def _word(text: str) -> str:
    """Return a word of lower case letters, digits and `_` that begins with a letter, like `read_file`."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    word = re.sub(r"[^a-z0-9]+", "_", split.lower()).strip("_")
    return word if word[:1].isalpha() else f"t_{word}".rstrip("_")
