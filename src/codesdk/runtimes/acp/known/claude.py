"""claude-agent-acp: Claude Code behind a bridge, without its own tools, settings and titles."""

from codesdk.contract.entry import InstructionFiles
from codesdk.contract.ownership import SideMark, ToolNaming
from codesdk.runtimes.acp.row import AgentRow, Known, Launch, Reading
from codesdk.runtimes.claude import ENTRY
from codesdk.runtimes.program import pinned
from codesdk.tools import PREFIX

CLAUDE = Known(
    row=AgentRow(
        name="claude-agent-acp",
        wire="anthropic",
        model="sonnet",
        launch=Launch(
            environment={
                "ANTHROPIC_BASE_URL": "${model_url}",
                "ANTHROPIC_API_KEY": "${key}",
                "ANTHROPIC_MODEL": "${model}",
                "CLAUDE_CONFIG_DIR": "${root}/claude",
                "ENABLE_TOOL_SEARCH": "false",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_ERROR_REPORTING": "1",
                "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
                "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
                "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
                "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
                "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "off",
                "CLAUDE_CODE_MAX_RETRIES": "2",
                "DISABLE_COMPACT": "1",
                "MCP_TOOL_TIMEOUT": "${tool_timeout_ms}",
            },
        ),
        meta={
            "disableBuiltInTools": True,
            "systemPrompt": "${instructions}",
            "claudeCode": {
                "options": {
                    "settingSources": [],
                    "strictMcpConfig": True,
                    "promptSuggestions": False,
                    # With a title of ours it asks no model for one.
                    "title": "CodeSDK",
                }
            },
        },
        naming=ToolNaming(prefix=PREFIX),
        reading=Reading(names=("_meta.claudeCode.toolName", "title"), spelled=(f"{PREFIX}${{name}}",)),
        call_id_key="claudecode/toolUseId",
        steers=True,
        side=(SideMark(text="naming a coding session"), SideMark(text="official cli for claude")),
        modes=dict.fromkeys(("ask", "auto", "yolo"), "default"),
    ),
    program=pinned.CLAUDE_AGENT_ACP,
    builds_on=("codesdk.runtimes.claude",),
    instructions=InstructionFiles(
        captured=("CLAUDE.md",), others=("CLAUDE.local.md", "AGENTS.md", "SKILL.md"), folders=(".claude",)
    ),
    own_tools=ENTRY.own_tools,
    other_tools=ENTRY.other_tools,
)
