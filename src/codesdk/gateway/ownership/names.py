"""The name of a call → whether it is one of ours, and how each side spells it.

The model sees our names, the agent gets what it needs to call our MCP server: a prefix, a namespace, or a piece of
code for agents that call tools only from code.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from codesdk.contract.ownership import CodeNaming
from codesdk.gateway.ownership.acts import Plan
from codesdk.gateway.ownership.values import read_json, write_json
from codesdk.gateway.wires.responses_tools import joined
from codesdk.tools import SERVER, offered_as, wire_name

_WORD = re.compile(r"[A-Za-z0-9_.-]+")


class CodeCall(NamedTuple):
    """A call of ours that was written as code."""

    name: str
    input: Any


class Names:
    """The names of one request. `declared` are the tools of the request, by their single names."""

    def __init__(self, plan: Plan, declared: Iterable[str] = ()) -> None:
        self.natives = plan.natives
        self._naming = plan.naming
        self.is_kept = plan.naming is None
        """Whether our tools have the names under which the agent declares them, on both sides."""
        self.code: CodeNaming | None = None if plan.naming is None else plan.naming.code
        self._ours = _kept(plan, declared) if plan.naming is None else _spellings(plan)

    def ours(self, name: str, namespace: object = None) -> str | None:
        """Return the model's name for a tool of ours that is called by any of its names, or None."""
        return self._ours.get(joined(name, namespace))

    def is_native(self, name: str, namespace: object = None) -> bool:
        """Return whether it is a tool of the agent's own, or of the provider's, that the session enabled."""
        return joined(name, namespace) in self.natives

    def spell(self, name: str) -> tuple[str, str | None]:
        """Return what the agent calls a tool of ours, and the namespace that it is in. Not for code."""
        if self._naming is None:
            return name, None
        return self._naming.prefix + name, self._naming.namespace

    def flat(self, name: str) -> str:
        """Return what the agent calls a tool of ours, in a format without namespaces."""
        return joined(*self.spell(name))

    def is_code(self, name: str) -> bool:
        """Return whether it is the agent's tool that runs code."""
        return self.code is not None and name == self.code.tool

    def write_code(self, name: str, value: Any) -> dict[str, str]:
        """Return the input of the agent's tool that runs code, for a call of ours."""
        assert self.code is not None
        head, middle, tail = _template(self.code)
        # Encoded again: whatever the model wrote, it can only be a value in the code.
        written = write_json({} if value is None else value).decode()
        return {self.code.argument: f"{head}{name}{middle}{written}{tail}"}

    def read_code(self, value: Any) -> CodeCall | None:
        """Return the call of ours in the input of the agent's tool that runs code, if it has exactly our form."""
        if self.code is None or not isinstance(value, dict):
            return None
        code: Any = value.get(self.code.argument)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        head, middle, tail = _template(self.code)
        if not isinstance(code, str) or not code.startswith(head) or not code.endswith(tail):
            return None
        name, found, written = code[len(head) : len(code) - len(tail)].partition(middle)
        if not found or _WORD.fullmatch(name) is None or name not in self._ours:
            return None
        try:
            given = read_json(written.encode())
        except (RecursionError, UnicodeEncodeError):
            return None
        # Compared in our own writing: code that only looks like a value must not pass.
        if given is None or write_json(given).decode() != written:
            return None
        return CodeCall(name, given)


def _template(code: CodeNaming) -> tuple[str, str, str]:
    head, _, rest = code.template.partition("{name}")
    middle, _, tail = rest.partition("{input}")
    return head, middle, tail


def _spellings(plan: Plan) -> dict[str, str]:
    naming = plan.naming
    assert naming is not None
    found: dict[str, str] = {}
    for name in plan.tools:
        found[joined(naming.prefix + name, naming.namespace)] = name
        found[naming.prefix + name] = name
    # Last, so that a name of the model's is never taken for the agent's name of another tool.
    return found | {name: name for name in plan.tools}


def _kept(plan: Plan, declared: Iterable[str]) -> dict[str, str]:
    """Return the names under which the agent itself declares our tools."""
    ours = {plain for spec in plan.tools.values() for plain in (spec.name, wire_name(spec.name))}
    # Only what comes from our server: the agent may have a tool of its own whose name ends like one of ours.
    candidates = [name for name in declared if SERVER in name or name in ours]
    found = (offered_as(spec.name, candidates) for spec in plan.tools.values())
    return {name: name for name in found if name is not None}
