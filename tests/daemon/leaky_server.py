"""An MCP server that tells secrets wherever a server has words: `leaky_server.py WORDS_FILE [PORT]`, over stdio or HTTP.

What it was given itself, its environment and the headers of a request, it tells as well. With DIE in its environment
it says the words on stderr and ends.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

WORDS: dict[str, str] = json.loads(Path(sys.argv[1]).read_text())
ALL = WORDS["all"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": ALL,
    "properties": {"text": {"type": "string", "description": ALL, "default": ALL, "enum": ["x", ALL]}},
}
REMOTE = {"type": "object", "properties": {ALL: {"$ref": f"http://127.0.0.1:9/{WORDS['name']}"}}}
SCHEMAS = dict.fromkeys(("say", "data", "fail", "refuse", "steps", "given", WORDS["name"]), SCHEMA)


def text(words: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=words)], is_error=is_error)


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    offered = [
        types.Tool(name=name, title=ALL, description=f"Say {ALL}", input_schema=schema)
        for name, schema in {**SCHEMAS, f"bad_{WORDS['name']}": REMOTE}.items()
    ]
    return types.ListToolsResult(tools=offered)


def everything() -> types.CallToolResult:
    """Return every kind of block that has words in it."""
    resource = types.TextResourceContents(uri=f"file:///{WORDS['name']}", text=ALL)
    return types.CallToolResult(
        content=[
            types.TextContent(text=ALL),
            types.EmbeddedResource(resource=resource),
            types.ResourceLink(name=ALL, uri=f"file:///{WORDS['name']}"),
            types.ImageContent(data="aGVsbG8=", mime_type=f"image/{WORDS['name']}"),
        ],
        structured_content={ALL: [ALL]},
    )


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    match params.name:
        case "say":
            return everything()
        case "data":
            return types.CallToolResult(content=[], structured_content={ALL: [{"said": ALL}]})
        case "fail":
            return text(f"It failed: {ALL}", is_error=True)
        case "refuse":
            raise MCPError(types.INVALID_PARAMS, f"No: {ALL}", {"why": ALL})
        case "steps":
            await context.session.report_progress(1, 2, ALL)
            return text("done")
        case "given":
            headers = {} if context.request is None else dict(context.request.headers)
            return text(json.dumps([dict(os.environ), headers]))
        case name:
            return text(f"{name}: {ALL}")


SERVING = Server(WORDS["name"], on_list_tools=list_tools, on_call_tool=call_tool, instructions=ALL)


async def over_stdio() -> None:
    async with stdio_server() as (reading, writing):
        await SERVING.run(reading, writing, SERVING.create_initialization_options())


if __name__ == "__main__":
    print(ALL, file=sys.stderr, flush=True)
    if "DIE" in os.environ:
        sys.exit(3)
    if len(sys.argv) > 2:
        app = SERVING.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="critical")
    else:
        asyncio.run(over_stdio())
