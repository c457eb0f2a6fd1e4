"""What the official MCP conformance suite is shown: its tools as tools of CodeSDK, and what we leave out, with the reason."""

import asyncio

import msgspec

from codesdk.contract.tools import ToolSpec
from codesdk.tools.registry import Tool, ToolContext, ToolError, ToolRegistry, make_tool

TEXT_ONLY = "A tool of CodeSDK answers with text or JSON, which becomes one block of text."
NO_ASKING = (
    "The one question about a call is asked by the engine, of the user; the host asks the client nothing."
)
NO_LOGGING = "What happens in a call is in the session's log. The protocol gives up its own as of 2026-07-28."
TOOLS_ONLY = "The host offers tools and nothing else: no resources, no prompts, no completion."
NO_RESUMPTION = "A stream that broke is not resumed: whoever hangs up cancels the call."

LEFT_OUT: dict[str, str] = {
    "logging-set-level": NO_LOGGING,
    "completion-complete": TOOLS_ONLY,
    "tools-call-image": TEXT_ONLY,
    "tools-call-audio": TEXT_ONLY,
    "tools-call-embedded-resource": TEXT_ONLY,
    "tools-call-mixed-content": TEXT_ONLY,
    "tools-call-with-logging": NO_LOGGING,
    "tools-call-sampling": NO_ASKING,
    "tools-call-elicitation": NO_ASKING,
    "elicitation-sep1034-defaults": NO_ASKING,
    "elicitation-sep1330-enums": NO_ASKING,
    "server-sse-polling": NO_RESUMPTION,
    "resources-list": TOOLS_ONLY,
    "resources-read-text": TOOLS_ONLY,
    "resources-read-binary": TOOLS_ONLY,
    "resources-templates-read": TOOLS_ONLY,
    "resources-subscribe": TOOLS_ONLY,
    "resources-unsubscribe": TOOLS_ONLY,
    "prompts-list": TOOLS_ONLY,
    "prompts-get-simple": TOOLS_ONLY,
    "prompts-get-with-args": TOOLS_ONLY,
    "prompts-get-embedded-resource": TOOLS_ONLY,
    "prompts-get-with-image": TOOLS_ONLY,
}
"""The suite's scenarios that the host does not pass."""

_SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


class Nothing(msgspec.Struct, frozen=True):
    """No input."""


class Add(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two numbers."""

    a: int
    b: int


async def simple_text(args: Nothing, context: ToolContext) -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


async def error_handling(args: Nothing, context: ToolContext) -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


async def tool_with_progress(args: Nothing, context: ToolContext) -> str:
    """Take a while, so that the host has something to report."""
    await asyncio.sleep(0.5)
    return "Done after a while."


async def add(args: Add, context: ToolContext) -> str:
    """Add two numbers."""
    return str(args.a + args.b)


async def schema_2020_12_tool(args: Nothing, context: ToolContext) -> str:
    """Have a schema with references."""
    return "fine"


def registry() -> ToolRegistry:
    """Return the suite's tools. On the wire `test.simple_text` is `test_simple_text`."""
    tools = ToolRegistry()
    for function in (simple_text, error_handling, tool_with_progress, add):
        tools.add(make_tool(function, name=f"test.{function.__name__}", tool_class="read_only"))
    spec = ToolSpec(
        name="json.schema_2020_12_tool",
        description="Tool with JSON Schema 2020-12 features",
        input_schema=_SCHEMA_2020_12,
        tool_class="read_only",
    )
    tools.add(Tool(spec=spec, function=schema_2020_12_tool))
    return tools


def baseline() -> str:
    """Return the suite's own form of what is left out."""
    return "server:\n" + "".join(f"  - {name}\n" for name in LEFT_OUT)
