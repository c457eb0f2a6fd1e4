"""The runtime `opencode-server`: `opencode serve`, driven over HTTP and its event stream. `ENTRY` is what others know of it."""

from typing import Annotated, Literal

from msgspec import Meta

from codesdk.contract.entry import MARK, InstructionFiles, RuntimeEntry
from codesdk.contract.options import RuntimeOptions
from codesdk.contract.ownership import SideMark, ToolNaming
from codesdk.runtimes.program.pinned import OPENCODE
from codesdk.tools import SERVER

NAME = "opencode-server"
PREFIX = f"{SERVER}_"
"""The prefix that opencode gives each of our tools."""
Dialect = Literal["openai", "anthropic", "google", "openai-compatible"]
"""Opencode's provider, as far as it is one here: the format of its requests."""


class OpencodeOptions(RuntimeOptions, frozen=True, kw_only=True):
    """What a session's `runtime_config` may say to opencode."""

    system_prompt: Annotated[str, Meta(description="Takes the place of CodeSDK's short instruction.")] = ""
    provider: Annotated[
        Dialect | None,
        Meta(
            description="Which kind of provider opencode speaks to, and so the format of its requests; without it,"
            " the first of these for which there is a key."
        ),
    ] = None
    max_output_tokens: Annotated[
        int, Meta(ge=1, le=1_000_000, description="The longest answer that opencode asks the model for.")
    ] = 32_000


ENTRY = RuntimeEntry(
    name=NAME,
    alias="opencode",
    adapter="codesdk.runtimes.opencode.adapter:OpencodeRuntime",
    docs="runtimes/opencode-server.md",
    program=OPENCODE,
    wires=("chat", "responses", "anthropic", "gemini"),
    provider="openai",
    options=OpencodeOptions,
    naming=ToolNaming(prefix=PREFIX),
    # Both are switched off; should one be asked all the same, it is not part of the conversation.
    side=(SideMark(text="you are a title generator"), SideMark(text="anchored context summarization")),
    instructions=InstructionFiles(
        captured=("AGENTS.md",),
        others=("CLAUDE.md", "CONTEXT.md", "SKILL.md"),
        folders=(".opencode", ".claude", ".agents"),
    ),
    state_folder="opencode",
    own_tools={
        "bash": {"command": f"touch {MARK}", "description": "Leave a mark"},
        "write": {"filePath": MARK, "content": "x"},
        "edit": {"filePath": MARK, "oldString": "", "newString": "x"},
        "batch": {
            "tool_calls": [
                {"tool": "bash", "parameters": {"command": f"touch {MARK}", "description": "Leave a mark"}}
            ]
        },
    },
    other_tools=(
        "read",
        "glob",
        "grep",
        "list",
        "webfetch",
        "websearch",
        "codesearch",
        "task",
        "todowrite",
        "todoread",
        "skill",
        "question",
        "patch",
        "apply_patch",
        "multiedit",
        "lsp",
        "plan_enter",
        "plan_exit",
        "invalid",
    ),
)
