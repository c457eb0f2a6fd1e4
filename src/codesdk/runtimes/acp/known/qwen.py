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
)
