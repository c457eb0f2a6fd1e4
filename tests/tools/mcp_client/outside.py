"""An MCP server that is not ours, as a program: over stdio, or with a port as its argument over HTTP.

Its tools do what servers do to their clients: take long, die, change their list, answer with what is no text.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
PLAIN: dict[str, Any] = {"type": "object"}
REMOTE = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}
SCHEMAS: dict[str, dict[str, Any]] = {
    "echo": TEXT,
    "echoTwice!": TEXT,
    "env": PLAIN,
    "fail": PLAIN,
    "die": PLAIN,
    "hold": {"type": "object", "properties": {"mark": {"type": "string"}}, "required": ["mark"]},
    "grow": PLAIN,
    "mixed": PLAIN,
    "data": PLAIN,
    "steps": PLAIN,
    "fetches_its_schema": REMOTE,
}


def words(*texts: str, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text) for text in texts], is_error=is_error)


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    """Two tools on a page."""
    names, at = list(SCHEMAS), int(params.cursor or 0) if params else 0
    tools = [
        types.Tool(
            name=name,
            description=f"Outside {name}." if name != "fail" else None,
            input_schema=SCHEMAS[name],
            annotations=types.ToolAnnotations(read_only_hint=True),
        )
        for name in names[at : at + 2]
    ]
    return types.ListToolsResult(tools=tools, next_cursor=str(at + 2) if at + 2 < len(names) else None)


async def hold(mark: str) -> types.CallToolResult:
    """Wait for ever; leave a mark when it begins and when it is cancelled."""
    leave(mark, "began")
    try:
        await asyncio.Event().wait()
    finally:
        leave(mark, "cancelled")
    raise AssertionError


def leave(mark: str, text: str) -> None:
    Path(mark).write_text(text)


def mixed() -> types.CallToolResult:
    text = types.TextResourceContents(uri="file:///notes", text="from a resource")
    return types.CallToolResult(
        content=[
            types.TextContent(text="a text"),
            types.ImageContent(data="aGVsbG8=", mime_type="image/png"),
            types.EmbeddedResource(resource=text),
            types.ResourceLink(name="more", uri="file:///more"),
        ]
    )


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments: dict[str, Any] = params.arguments or {}
    match params.name:
        case "echo":
            return words(arguments["text"])
        case "echoTwice!":
            return words(arguments["text"], arguments["text"])
        case "env":
            return words(json.dumps(dict(os.environ)))
        case "fail":
            return words("It did not work.", is_error=True)
        case "die":
            os._exit(3)
        case "hold":
            return await hold(arguments["mark"])
        case "grow":
            SCHEMAS["new"] = TEXT
            await context.session.send_tool_list_changed()
            await BUS.publish(ToolsListChanged())
            return words("grown")
        case "mixed":
            return mixed()
        case "data":
            return types.CallToolResult(content=[], structured_content={"n": 1})
        case "steps":
            await context.session.report_progress(1, 2, "half")
            return words("done")
        case name:
            return words(f"{name}: {arguments}")


BUS = InMemorySubscriptionBus()
SERVER = Server(
    "outside", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=ListenHandler(BUS)
)


async def over_stdio() -> None:
    print("outside is up", file=sys.stderr)
    options = SERVER.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (reading, writing):
        if "OLD" in os.environ:  # as servers were before 2026
            await serve_loop(SERVER, reading, writing, lifespan_state={}, init_options=options)
        else:
            await SERVER.run(reading, writing, options)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app = SERVER.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
    else:
        asyncio.run(over_stdio())
