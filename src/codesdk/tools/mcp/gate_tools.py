"""The tools behind a `ToolGate` → tools of MCP, and a tool's reply → content that a model reads."""

from typing import Any

import mcp_types as types
import msgspec

from codesdk.contract.ports import ToolGate
from codesdk.contract.tools import ToolSpec
from codesdk.tools.registry import wire_name

_SIZE = {"anthropic/maxResultSizeChars": 500_000}
"""Up to where claude hands a result on to its model. It keeps a longer one for itself, of which the model can read nothing."""


class GateTools:
    """The tools of one session. Names are written as providers allow them, and mapped back."""

    def __init__(self, gate: ToolGate, session_id: str) -> None:
        self._gate = gate
        self._session_id = session_id

    async def offer(self) -> list[types.Tool]:
        """Return what the session offers now."""
        return [described(spec) for spec in self._gate.specs(self._session_id)]

    async def call(
        self, name: str, arguments: dict[str, Any], runtime_tool_call_id: str | None
    ) -> types.CallToolResult:
        """Have the gate decide and run. A name that is not on offer passes as it is, so that the attempt is recorded."""
        offered = {wire_name(spec.name): spec for spec in self._gate.specs(self._session_id)}
        spec = offered.get(name)
        reply = await self._gate.call(
            self._session_id,
            spec.name if spec else name,
            arguments,
            runtime_tool_call_id=runtime_tool_call_id,
        )
        structured = reply.result if spec and spec.output_schema and not reply.is_error else None
        return types.CallToolResult(
            content=[types.TextContent(text=_text(reply.result))],
            structured_content=structured,
            is_error=reply.is_error,
        )


def described(spec: ToolSpec) -> types.Tool:
    """Return a tool as MCP describes it. The hints follow from its class and its own description."""
    kind = spec.tool_class
    return types.Tool(
        name=wire_name(spec.name),
        description=spec.description,
        input_schema=spec.input_schema,
        output_schema=spec.output_schema,
        annotations=types.ToolAnnotations(
            title=spec.annotations.title,
            read_only_hint=kind == "read_only",
            destructive_hint=spec.annotations.destructive or kind == "dangerous",
            idempotent_hint=spec.annotations.idempotent or spec.safe_replay,
            open_world_hint=kind in ("network", "dangerous"),
        ),
        _meta=_SIZE,
    )


def _text(result: Any) -> str:
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    # Half of a surrogate pair cannot be sent.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
