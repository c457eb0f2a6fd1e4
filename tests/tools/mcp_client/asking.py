"""An MCP server over stdio that asks a person before it answers, in the way of its protocol: OLD is that before 2026.

The call's arguments are the form's schema and how often it is asked at once.
"""

import asyncio
import json
import os
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server

OLD = "OLD" in os.environ
WHERE = "Where to?"


def words(value: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=json.dumps(value))])


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="deploy", input_schema={"type": "object"})])


async def call_tool(context: Any, params: Any) -> Any:
    given = params.arguments or {}
    schema, times = given.get("schema", {"type": "object", "properties": {}}), given.get("times", 1)
    if OLD:
        asked = [context.session.elicit_form(WHERE, schema) for _ in range(times)]
        return words([shown(answer) for answer in await asyncio.gather(*asked)])
    if params.input_responses is not None and not given.get("for_ever"):
        assert params.request_state == "state"
        return words([shown(answer) for answer in params.input_responses.values()])
    request = types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=WHERE, requested_schema=schema)
    )
    requests: dict[str, Any] = {f"q{number}": request for number in range(times)}
    return types.InputRequiredResult(input_requests=requests or None, request_state="state")


def shown(answer: Any) -> Any:
    return [answer.action, answer.content]


async def main() -> None:
    server = Server("asking", on_list_tools=list_tools, on_call_tool=call_tool)
    options = server.create_initialization_options(NotificationOptions())
    async with stdio_server() as (reading, writing):
        if OLD:
            await serve_loop(server, reading, writing, lifespan_state={}, init_options=options)
        else:
            await server.run(reading, writing, options)


if __name__ == "__main__":
    asyncio.run(main())
