"""The tools behind a `ToolGate` → tools of MCP, and a tool's reply → content that a model reads."""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
import msgspec

from codesdk.contract.entry import ANY_CLIENT, McpClient
from codesdk.contract.ports import ToolGate
from codesdk.contract.tools import ToolSpec
from codesdk.tools.names import wire_name


class GateTools:
    """The tools of one session. Names are written as providers allow them, and mapped back."""

    def __init__(self, gate: ToolGate, session_id: str, client: McpClient = ANY_CLIENT) -> None:
        self._gate = gate
        self._session_id = session_id
        self._client = client

    async def offer(self) -> list[types.Tool]:
        """Return what the session offers now."""
        return [described(spec, self._client) for spec in self._gate.specs(self._session_id)]

    async def call(
        self, name: str, arguments: dict[str, Any], marks: Mapping[str, str]
    ) -> types.CallToolResult:
        """Have the gate decide and run. A name that is not on offer passes as it is, so that the attempt is recorded."""
        offered = {wire_name(spec.name): spec for spec in self._gate.specs(self._session_id)}
        spec = offered.get(name)
        reply = await self._gate.call(
            self._session_id,
            spec.name if spec else name,
            arguments,
            runtime_tool_call_id=marks.get(self._client.call_id_key),
        )
        structured = reply.result if spec and spec.output_schema and not reply.is_error else None
        return types.CallToolResult(
            content=[types.TextContent(text=_text(reply.result))],
            structured_content=structured,
            is_error=reply.is_error,
        )


def described(spec: ToolSpec, client: McpClient) -> types.Tool:
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
        _meta=dict(client.tool_meta) or None,
    )


def _text(result: Any) -> str:
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    # Half of a surrogate pair cannot be sent.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
