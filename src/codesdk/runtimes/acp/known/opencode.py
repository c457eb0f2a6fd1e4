"""opencode, and kilo, which was made from it: an agent of ours, to which everything but our tools is denied."""

from collections.abc import Mapping
from typing import Any

from codesdk.contract.entry import InstructionFiles, ProgramEntry
from codesdk.contract.ownership import ToolNaming
from codesdk.runtimes.acp.row import AgentRow, Known, Launch, Reading
from codesdk.runtimes.opencode import ENTRY
from codesdk.runtimes.program import pinned
from codesdk.tools import SERVER


def _opencode() -> dict[str, Any]:
    """Return the configuration of opencode, which kilo shares."""
    return {
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "model": "codesdk/${model}",
        "small_model": "codesdk/${model}",
        "enabled_providers": ["codesdk"],
        "default_agent": "codesdk",
        "compaction": {"auto": False, "prune": False},
        "experimental": {"continue_loop_on_deny": True},
        "provider": {
            "codesdk": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": "${model_url}/v1", "apiKey": "${key}"},
                "models": {
                    "${model}": {
                        "tool_call": True,
                        "reasoning": True,
                        "attachment": True,
                        "modalities": {"input": ["text", "image"], "output": ["text"]},
                        "limit": {"context": 200000, "output": 32000},
                    }
                },
            }
        },
        "agent": {
            "codesdk": {
                "mode": "primary",
                "prompt": "${instructions}",
                "permission": {"*": "deny", "doom_loop": "allow", f"{SERVER}_*": "allow"},
            },
            "title": {"disable": True},
        },
    }


_OPENCODE_OFF = (
    "AUTOUPDATE",
    "MODELS_FETCH",
    "LSP_DOWNLOAD",
    "SHARE",
    "DEFAULT_PLUGINS",
    "CLAUDE_CODE",
    "EXTERNAL_SKILLS",
    "PROJECT_CONFIG",
)


def _opencode_like(
    name: str,
    folder: str,
    vendor: str,
    program: ProgramEntry,
    more: Mapping[str, str] = {},
    *,
    tells_breaks: bool = False,
    tools: tuple[str, ...] = (),
) -> Known:
    variable = folder.upper()
    plugin = {"dependencies": {f"@{vendor}/plugin": program.version}}
    return Known(
        row=AgentRow(
            name=name,
            wire="chat",
            model="gpt-5.5",
            launch=Launch(
                arguments=("acp",),
                environment={
                    **{f"{variable}_DISABLE_{what}": "1" for what in _OPENCODE_OFF},
                    f"{variable}_PURE": "1",
                    **more,
                    "NPM_CONFIG_OFFLINE": "true",
                    f"{variable}_SERVER_PASSWORD": "${password}",
                },
                files={
                    f"config/{folder}/{folder}.json": _opencode(),
                    # Else it fetches a package for plugins, which nobody uses here.
                    f"config/{folder}/node_modules": None,
                    f"config/{folder}/package.json": plugin,
                    f"config/{folder}/package-lock.json": {
                        "lockfileVersion": 3,
                        "requires": True,
                        "packages": {"": plugin},
                    },
                },
            ),
            naming=ToolNaming(prefix=f"{SERVER}_"),
            reading=Reading(names=("title",), spelled=(f"{SERVER}_${{name}}",)),
            tells_breaks=tells_breaks,
        ),
        program=program,
        builds_on=("codesdk.runtimes.opencode",),
        instructions=InstructionFiles(captured=("AGENTS.md",), folders=(f".{folder}",)),
        own_tools=ENTRY.own_tools,
        other_tools=(*ENTRY.other_tools, *tools),
    )


OPENCODE = _opencode_like("opencode", "opencode", "opencode-ai", pinned.OPENCODE)
KILO = _opencode_like(
    "kilo",
    "kilo",
    "kilocode",
    pinned.KILO,
    {
        "KILO_TELEMETRY_LEVEL": "off",
        "KILO_DISABLE_SESSION_INGEST": "1",
        # Whatever else it asks its maker, it asks the gateway, which has no such thing.
        "KILO_API_URL": "${model_url}",
        "KILO_SESSION_INGEST_URL": "${model_url}",
        "KILO_EVENT_SERVICE_URL": "${model_url}",
        "KILO_MODELS_URL": "${model_url}",
        "KILO_SESSION_RETRY_LIMIT": "2",
        # When a connection breaks it asks three public addresses whether there is a network, and has no switch for
        # that. A proxy that is not there answers for all that is not loopback: nothing leaves the machine.
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1,localhost",
    },
    # Without an answer it would wait for its network for ever.
    tells_breaks=True,
    tools=(
        "agent_manager",
        "agent_manager_models",
        "background_process",
        "board_post",
        "board_read",
        "browser_open",
        "cancel_wakeup",
        "chart",
        "compact",
        "cron_create",
        "cron_delete",
        "cron_list",
        "generate_image",
        "get_context_info",
        "goal",
        "goal_report",
        "kilo_local_recall",
        "kilo_memory_recall",
        "kilo_memory_save",
        "link_pr",
        "notebook_edit",
        "notebook_execute",
        "notebook_read",
        "notify_user",
        "open_plan",
        "repo_clone",
        "repo_overview",
        "schedule_wakeup",
        "semantic_search",
        "send_file",
        "suggest",
    ),
)
