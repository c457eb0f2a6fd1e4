"""The Gemini CLI: an admin policy, which beats every mode, allows tools of MCP servers and denies all others."""

from codesdk.contract.entry import MARK, InstructionFiles
from codesdk.contract.ownership import ToolNaming
from codesdk.runtimes.acp.row import AgentRow, Known, Launch, Reading, SessionFile
from codesdk.runtimes.program import pinned
from codesdk.tools import SERVER

_SHELL = {"command": f"touch {MARK}", "description": "Leave a mark"}

GEMINI = Known(
    row=AgentRow(
        name="gemini",
        wire="gemini",
        model="gemini-2.5-flash",
        launch=Launch(
            arguments=(
                "--acp",
                "-m",
                "${model}",
                "--admin-policy",
                "${root}/policy.toml",
                "--allowed-mcp-server-names",
                "${server}",
                "-e",
                "none",
            ),
            environment={
                "GEMINI_CLI_HOME": "${home}",
                "GEMINI_CLI_NO_RELAUNCH": "true",
                "GEMINI_API_KEY": "${key}",
                "GOOGLE_GEMINI_BASE_URL": "${model_url}",
                "GEMINI_SYSTEM_MD": "${root}/system.md",
            },
            files={
                "system.md": "${instructions}\n",
                "policy.toml": (
                    '[[rule]]\ntoolName = "*"\nmcpName = "*"\ndecision = "allow"\npriority = 800\n'
                    '[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 1\n'
                ),
                "home/.gemini/settings.json": {
                    "security": {
                        "auth": {"selectedType": "gemini-api-key"},
                        "folderTrust": {"enabled": False},
                    },
                    "tools": {"core": []},
                    "general": {"enableAutoUpdate": False, "maxAttempts": 3},
                    "privacy": {"usageStatisticsEnabled": False},
                    "telemetry": {"enabled": False},
                    "context": {"fileName": "no-such-file", "includeDirectoryTree": False},
                    "model": {"skipNextSpeakerCheck": True, "disableLoopDetection": True},
                },
            },
        ),
        naming=ToolNaming(prefix=f"mcp_{SERVER}_"),
        reading=Reading(
            names=("toolCallId", "title"),
            spelled=(f"mcp_{SERVER}_${{name}}",),
            inputs=("rawInput", "content.0.content.text"),
            dropped=("[MODE_UPDATE]",),
        ),
        call_id="after_name",
        session_file=SessionFile(
            pattern="home/.gemini/tmp/*/chats/session-*-${start}.jsonl",
            name="session-2020-01-01T00-00-${start}.jsonl",
        ),
        reasoning=False,
        parallel=False,
        exit="term",
        commands=("/", "$"),
    ),
    program=pinned.GEMINI,
    instructions=InstructionFiles(captured=("GEMINI.md",), folders=(".gemini",)),
    own_tools={
        "run_shell_command": _SHELL,
        "write_file": {"file_path": MARK, "content": "x"},
    },
    other_tools=(
        "replace",
        "read_file",
        "read_many_files",
        "list_directory",
        "glob",
        "grep_search",
        "search_file_content",
        "google_web_search",
        "web_fetch",
        "write_todos",
        "save_memory",
        "activate_skill",
        "ask_user",
        "invoke_agent",
        "complete_task",
        "enter_plan_mode",
        "exit_plan_mode",
        "get_internal_docs",
        "list_mcp_resources",
        "read_mcp_resource",
        "take_snapshot",
        "tracker_add_dependency",
        "tracker_create_task",
        "tracker_get_task",
        "tracker_list_tasks",
        "tracker_update_task",
        "tracker_visualize",
        "update_topic",
        "list_background_processes",
        "read_background_output",
    ),
)
