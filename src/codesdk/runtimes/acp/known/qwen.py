"""qwen-code: its own tools, memories, suggestions and titles are off."""

from codesdk.contract.entry import MARK, InstructionFiles
from codesdk.contract.ownership import ToolNaming
from codesdk.runtimes.acp.row import AgentRow, Known, Launch, Reading
from codesdk.runtimes.program import pinned
from codesdk.tools import PREFIX

_SHELL = {"command": f"touch {MARK}", "description": "Leave a mark"}

QWEN = Known(
    row=AgentRow(
        name="qwen",
        wire="chat",
        model="gpt-5.5",
        launch=Launch(
            arguments=("--acp",),
            environment={
                "OPENAI_API_KEY": "${key}",
                "OPENAI_BASE_URL": "${model_url}/v1",
                "OPENAI_MODEL": "${model}",
                "QWEN_SYSTEM_MD": "${root}/system.md",
                "QWEN_CODE_NO_RELAUNCH": "true",
                "QWEN_TELEMETRY_ENABLED": "false",
                "QWEN_DISABLE_AUTO_TITLE": "1",
            },
            files={
                "system.md": "${instructions}\n",
                # Else it writes a page of its own there, and tells the model to follow it.
                "home/.qwen/output-language.md": None,
                "home/.qwen/settings.json": {
                    "security": {
                        "auth": {"selectedType": "openai"},
                        "folderTrust": {"enabled": False},
                    },
                    "model": {
                        "name": "${model}",
                        "skipNextSpeakerCheck": True,
                        "skipLoopDetection": True,
                        "generationConfig": {"modalities": {"image": True}, "maxRetries": 0},
                    },
                    "tools": {"core": ["none"], "toolSearch": {"enabled": False}},
                    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
                    "privacy": {"usageStatisticsEnabled": False},
                    "telemetry": {"enabled": False},
                    "context": {"fileName": "no-such-file", "includeDirectoryTree": False},
                    "memory": {
                        "enableManagedAutoMemory": False,
                        "enableManagedAutoDream": False,
                        "enableAutoSkill": False,
                    },
                    "ui": {"enableFollowupSuggestions": False},
                    "disableAllHooks": True,
                },
            },
        ),
        naming=ToolNaming(prefix=PREFIX),
        reading=Reading(names=("_meta.toolName", "title"), spelled=(f"{PREFIX}${{name}}",)),
        modes={"ask": "default", "auto": "default", "yolo": "default"},
        parallel=False,
    ),
    program=pinned.QWEN_CODE,
    instructions=InstructionFiles(captured=("QWEN.md",), others=("AGENTS.md",), folders=(".qwen",)),
    own_tools={
        "run_shell_command": _SHELL,
        "write_file": {"file_path": MARK, "content": "x"},
    },
    other_tools=(
        "exec",
        "edit",
        "read_file",
        "zoom_image",
        "grep_search",
        "glob",
        "todo_write",
        "save_memory",
        "agent",
        "skill",
        "exit_plan_mode",
        "enter_plan_mode",
        "web_fetch",
        "web_search",
        "image_gen",
        "list_directory",
        "lsp",
        "ask_user_question",
        "cron_create",
        "cron_list",
        "cron_delete",
        "loop_wakeup",
        "create_sub_session",
        "list_agents",
        "task_stop",
        "task_create",
        "task_update",
        "task_list",
        "team_create",
        "team_delete",
        "team_plan_approval",
        "request_shutdown",
        "send_message",
        "structured_output",
        "monitor",
        "notebook_edit",
        "tool_call",
        "tool_search",
        "read_mcp_resource",
        "enter_worktree",
        "exit_worktree",
        "workflow",
        "artifact",
        "record_artifact",
        "record_source",
        "report_findings",
        "get_goal",
        "update_goal",
    ),
)
