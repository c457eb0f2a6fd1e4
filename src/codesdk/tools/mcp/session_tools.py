"""A session's tools → MCP tools, and a tool's reply → content that a model reads."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mcp_types as types
import msgspec

from codesdk.contract.entry import ANY_CLIENT, McpClient
from codesdk.contract.ports import ToolCalls
from codesdk.contract.runtime import ToolReply
from codesdk.contract.tools import ToolSpec
from codesdk.tools.names import wire_name

Heard = Callable[[str, Mapping[str, str]], None]
"""Is told of each call's name and of the texts in its `_meta`, before the call is made."""


class SessionTools:
    """The tools of one session, offered under names that providers allow and mapped back in calls."""

    def __init__(
        self,
        calls: ToolCalls,
        session_id: str,
        client: McpClient = ANY_CLIENT,
        heard: Heard | None = None,
    ) -> None:
        self._calls = calls
        self._heard = heard
        self._client = client
        self._session_id = session_id
        self._offered: dict[str, ToolSpec] = {}

    async def offer(self) -> list[types.Tool]:
        """Return the tools the session offers now."""
        return [described(spec, self._client) for spec in self._look()]

    def call(
        self, name: str, arguments: dict[str, Any], marks: Mapping[str, str]
    ) -> "asyncio.Future[ToolReply]":
        """Have a call decided and run.

        An unknown name is passed on as it is, so that the attempt is recorded.
        """
        if self._heard is not None:
            self._heard(name, marks)
        if name not in self._offered:  # it may be offered since the client last listed the tools
            self._look()
        spec = self._offered.get(name)
        return self._calls.call(
            self._session_id,
            spec.name if spec else name,
            arguments,
            # The model's id for the call, by which the runtime's own events are matched to it.
            runtime_tool_call_id=marks.get(self._client.call_id_key),
        )

    def shown(self, name: str, outcome: ToolReply) -> types.CallToolResult:
        """Return a reply as content that a model reads."""
        spec = self._offered.get(name)
        structured = outcome.result if spec and spec.output_schema and not outcome.is_error else None
        return types.CallToolResult(
            content=[types.TextContent(text=_text(outcome.result))],
            structured_content=structured,
            is_error=outcome.is_error,
        )

    def _look(self) -> Sequence[ToolSpec]:
        specs = self._calls.specs(self._session_id)
        self._offered = {wire_name(spec.name): spec for spec in specs}
        return specs


def described(spec: ToolSpec, client: McpClient) -> types.Tool:
    """Return a tool as MCP describes it. The hints follow from its class and its annotations."""
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
    # Half of a surrogate pair cannot be encoded as UTF-8; replace it.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
