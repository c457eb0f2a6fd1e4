"""codex-acp: the codex program behind a bridge, locked down as `codex-sdk` locks it."""

from codesdk.contract.entry import InstructionFiles
from codesdk.contract.ownership import SideMark, ToolNaming
from codesdk.runtimes.acp.row import AgentRow, Known, Launch, Reading
from codesdk.runtimes.codex import ENTRY
from codesdk.runtimes.codex.features import OFF
from codesdk.runtimes.program import pinned
from codesdk.tools import NAMESPACE, SERVER

_CODEX_CONFIG = """\
model = ${model:json}
model_provider = "codesdk"
model_instructions_file = "${root}/codex/system.md"
check_for_update_on_startup = false
web_search = "disabled"
include_permissions_instructions = false
include_environment_context = false
include_apps_instructions = false
include_collaboration_mode_instructions = false
project_doc_max_bytes = 0
hide_agent_reasoning = false

[model_providers.codesdk]
name = "CodeSDK"
base_url = "${model_url}/v1"
wire_api = "responses"
env_key = "CODESDK_MODEL_KEY"
request_max_retries = 2
stream_max_retries = 2

[skills]
include_instructions = false
[skills.bundled]
enabled = false
[tools.experimental_request_user_input]
enabled = false
[analytics]
enabled = false
[history]
persistence = "none"
[shell_environment_policy]
inherit = "none"
[features]
"""

CODEX = Known(
    row=AgentRow(
        name="codex-acp",
        wire="responses",
        model="gpt-5.5",
        launch=Launch(
            environment={
                "CODEX_HOME": "${root}/codex",
                "CODESDK_MODEL_KEY": "${key}",
                "MODEL_PROVIDER": "codesdk",
                "INITIAL_AGENT_MODE": "agent-full-access",
            },
            files={
                "codex/config.toml": _CODEX_CONFIG + "".join(f"{name} = false\n" for name in OFF),
                "codex/system.md": "${instructions}\n",
            },
            forgotten=("codex/logs_*.sqlite*",),
        ),
        naming=ToolNaming(namespace=NAMESPACE),
        reading=Reading(
            spelled=(f"mcp.{SERVER}.${{name}}",),
            inputs=("rawInput.arguments",),
            crashed=("Codex app-server",),
        ),
        call_id_key="callId",
        steers=True,
        # With a title of ours it asks no model for one.
        begins={"session/set_title": {"title": "CodeSDK"}},
        side=(SideMark(model="gpt-5.6-luna"),),
        modes=dict.fromkeys(("ask", "auto", "yolo"), "agent-full-access"),
    ),
    program=pinned.CODEX_ACP,
    builds_on=("codesdk.runtimes.codex",),
    instructions=InstructionFiles(
        captured=("AGENTS.md",), others=("AGENTS.override.md", "SKILL.md"), folders=(".codex", ".agents")
    ),
    own_tools=ENTRY.own_tools,
    other_tools=ENTRY.other_tools,
)
