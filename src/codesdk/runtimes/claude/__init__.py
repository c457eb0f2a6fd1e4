"""The runtime `claude-agent-sdk`: the claude program, driven over its pipes. `ENTRY` is what others know of it."""

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
from codesdk.tools import PREFIX

NAME = "claude-agent-sdk"


class ClaudeOptions(RuntimeOptions, frozen=True, kw_only=True):
    """What a session's `runtime_config` may say to claude."""

    system_prompt: Annotated[str, Meta(description="The system prompt, of any length; without it, none.")] = (
        ""
    )
    effort: Annotated[
        Literal["low", "medium", "high", "xhigh", "max"] | None,
        Meta(description="How much the model thinks, where it has a choice; without it, as claude decides."),
    ] = None


ENTRY = RuntimeEntry(
    name=NAME,
    alias="claude",
    adapter="codesdk.runtimes.claude.adapter:ClaudeRuntime",
    docs="runtimes/claude-agent-sdk.md",
    program=ProgramEntry(
        command="claude",
        version="2.1.325",
        markers=("claude.version",),
        source=PythonPackage(
            name="claude-agent-sdk",
            extra="claude",
            bundled="codesdk.runtimes.claude.options:bundled",
        ),
        # Not through the gateway: its provider does not let others carry its accounts' credentials.
        logins=("beside",),
    ),
    wires=("anthropic",),
    provider="anthropic",
    options=ClaudeOptions,
    mcp=McpClient(
        call_id_key="claudecode/toolUseId",
        # Up to where claude hands a result on. It puts a longer one into a file, of which the model can read nothing.
        tool_meta={"anthropic/maxResultSizeChars": 500_000},
    ),
    naming=ToolNaming(prefix=PREFIX),
    side=(
        SideMark(text="[suggestion mode:"),
        SideMark(text="you are a security monitor for autonomous ai coding agents"),
    ),
    instructions=InstructionFiles(
        captured=("CLAUDE.md",),
        # AGENTS.md because a CLAUDE.md often includes it.
        others=("CLAUDE.local.md", "AGENTS.md", "SKILL.md", "MEMORY.md"),
        folders=(".claude",),
    ),
    state_folder="claude",
    own_tools={
        "Bash": {"command": f"touch {MARK}", "description": "Leave a mark"},
        "Write": {"file_path": MARK, "content": "x"},
    },
    other_tools=(
        "Agent",
        "Task",
        "TaskOutput",
        "TaskStop",
        "BashOutput",
        "KillShell",
        "Glob",
        "Grep",
        "LS",
        "Read",
        "Edit",
        "MultiEdit",
        "NotebookEdit",
        "NotebookRead",
        "WebFetch",
        "WebSearch",
        "TodoWrite",
        "ExitPlanMode",
        "EnterPlanMode",
        "SlashCommand",
        "Skill",
        "AskUserQuestion",
        "ListMcpResourcesTool",
        "ReadMcpResourceTool",
        "ToolSearch",
        "EnterWorktree",
        "LSP",
        "TaskCreate",
        "TaskGet",
        "TaskList",
        "TaskUpdate",
        "SendMessage",
        "CronCreate",
        "CronDelete",
        "CronList",
        "ExitWorktree",
        "Monitor",
        "Workflow",
        "StructuredOutput",
    ),
)
