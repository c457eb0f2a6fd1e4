"""The runtime `codex-sdk`: the server of the codex program, driven over its pipes. `ENTRY` is what others know of it."""

from typing import Annotated, Literal

from msgspec import Meta

from codesdk.contract.entry import (
    MARK,
    InstructionFiles,
    McpClient,
    ProgramEntry,
    PythonPackage,
    RuntimeEntry,
)
from codesdk.contract.options import RuntimeOptions
from codesdk.contract.ownership import SideMark, ToolNaming
from codesdk.tools import NAMESPACE

NAME = "codex-sdk"


class CodexOptions(RuntimeOptions, frozen=True, kw_only=True):
    """What a session's `runtime_config` may say to codex."""

    system_prompt: Annotated[str, Meta(description="Takes the place of CodeSDK's short instruction.")] = ""
    effort: Annotated[
        Literal["low", "medium", "high", "xhigh", "max"] | None,
        Meta(
            description="How much the model thinks, as far as the model has it; without it, the model's default."
        ),
    ] = None


ENTRY = RuntimeEntry(
    name=NAME,
    alias="codex",
    adapter="codesdk.runtimes.codex.adapter:CodexRuntime",
    docs="runtimes/codex-sdk.md",
    program=ProgramEntry(
        command="codex",
        version="0.163.0",
        markers=("codex-package.json",),
        source=PythonPackage(
            name="openai-codex-cli-bin",
            extra="codex",
            bundled="codesdk.runtimes.codex.adapter:bundled",
        ),
        # Not beside the gateway: only there do sessions that renew one login at once not use up each other's token.
        logins=("through",),
    ),
    wires=("responses",),
    provider="openai",
    options=CodexOptions,
    mcp=McpClient(call_id_key="callId"),
    naming=ToolNaming(namespace=NAMESPACE),
    # Its reviewer, its titles and its memory: all of them come with tools, where they are not switched off.
    side=(
        SideMark(text="you are judging one planned coding-agent action"),
        SideMark(text="single-line task title"),
        SideMark(text="memory writing agent"),
    ),
    instructions=InstructionFiles(
        captured=("AGENTS.md",),
        others=("AGENTS.override.md", "SKILL.md"),
        folders=(".codex", ".agents"),
    ),
    state_folder="codex",
    # The names have changed from version to version: a model may try any of them.
    own_tools={
        "shell": {"command": ["touch", MARK]},
        "shell_command": {"command": f"touch {MARK}"},
        "local_shell": {"command": ["touch", MARK]},
        "exec_command": {"cmd": f"touch {MARK}"},
        "apply_patch": {"input": f"*** Begin Patch\n*** Add File: {MARK}\n+x\n*** End Patch"},
    },
    other_tools=(
        "container.exec",
        "write_stdin",
        "view_image",
        "update_plan",
        "web_search",
        "list_mcp_resources",
        "list_mcp_resource_templates",
        "read_mcp_resource",
        "request_user_input",
        "spawn_agent",
        "send_input",
        "resume_agent",
        "wait",
        "close_agent",
        "tool_search",
        "js_repl",
        "exec",
        "read_file",
        "list_dir",
        "grep_files",
    ),
)
