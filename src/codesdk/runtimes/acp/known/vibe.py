"""mistral-vibe: it calls tools from code only, so our calls become a piece of code."""

from codesdk.contract.entry import MARK, InstructionFiles
from codesdk.contract.ownership import CodeNaming, ToolNaming
from codesdk.runtimes.acp.row import AgentRow, Known, Launch, Reading
from codesdk.runtimes.program import pinned
from codesdk.tools import SERVER

_VIBE_CONFIG = """\
active_model = "codesdk"
default_agent = "codesdk"
compaction_model = {{ name = ${{model:json}}, provider = "codesdk", alias = "codesdk" }}
enable_connectors = false
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
enable_notifications = false
enable_otel = false
enable_subagents = false
enable_background_processes = false
include_commit_signature = false
include_model_info = false
include_project_context = false
include_prompt_detail = false
experimental_enable_registry_skills = false
experimental_enable_model_catalog = false
experimental_enable_document_library_connector = false
api_retry_max_elapsed_time = 10.0
vibe_base_url = "${{model_url}}"
vibe_code_sessions_base_url = "${{model_url}}"
console_base_url = "${{model_url}}"

[session_logging]
generate_titles = false

[[providers]]
name = "codesdk"
api_base = "${{model_url}}/v1"
api_key_env_var = "CODESDK_MODEL_KEY"
backend = "generic"

[[models]]
name = ${{model:json}}
provider = "codesdk"
alias = "codesdk"
supports_images = true
max_context_length = 200000
""".format()

VIBE = Known(
    row=AgentRow(
        name="vibe",
        wire="chat",
        model="gpt-5.5",
        launch=Launch(
            environment={
                "VIBE_HOME": "${root}/vibe",
                "CODESDK_MODEL_KEY": "${key}",
                "MISTRAL_API_KEY": "${key}",
            },
            files={
                "vibe/config.toml": _VIBE_CONFIG,
                # Only an agent of one's own has a prompt of one's own.
                "vibe/agents/codesdk.toml": 'display_name = "CodeSDK"\nsystem_prompt_id = "codesdk"\n',
                "vibe/prompts/codesdk.md": "${instructions}\n",
            },
        ),
        naming=ToolNaming(
            code=CodeNaming(
                tool="run_typescript",
                argument="code",
                template=f"async function main(){{ return await tools.mcp_{SERVER}.{{name}}({{input}}); }}",
            )
        ),
        reading=Reading(names=("title",), spelled=(f"mcp_{SERVER}.${{name}}",)),
        call_id="own",
        lists_tools=True,
    ),
    program=pinned.MISTRAL_VIBE,
    instructions=InstructionFiles(captured=("AGENTS.md",), folders=(".vibe",)),
    own_tools={
        "run_typescript": {
            "code": f"async function main(){{ return await tools.bash({{command: 'touch {MARK}'}}); }}"
        },
        "bash": {"command": f"touch {MARK}"},
        "write_file": {"path": MARK, "content": "x"},
    },
    other_tools=(
        "read_file",
        "edit",
        "search_replace",
        "grep",
        "todo",
        "task",
        "skill",
        "cron",
        "ask_user_question",
        "web_fetch",
        "web_search",
        "search_tool_functions",
        "unified_harness_scratchpad",
    ),
)
