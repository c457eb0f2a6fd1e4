"""The programs that CodeSDK installs itself, each pinned by a lock in `locks/`: from npm, and one from PyPI.

Names and versions only; where they are is `folders`, which node runs them `node`, how they get there `installing`.
A runtime's entry names its program from here, with `msgspec.structs.replace` for what only the runtime knows.
"""

from codesdk.contract.entry import NpmPackage, ProgramEntry, PythonTool

GEMINI = ProgramEntry(
    command="gemini",
    version="0.61.0",
    source=NpmPackage(
        name="@google/gemini-cli",
        lock="gemini",
        program="@google/gemini-cli/bundle/gemini.js",
        node=20,
    ),
)
OPENCODE = ProgramEntry(
    command="opencode",
    version="1.18.34",
    # The package of a platform, not `opencode-ai`: that one needs a script to put the same file in place.
    source=NpmPackage(
        name="opencode-linux-x64",
        lock="opencode",
        program="opencode-linux-x64/bin/opencode",
        also=("opencode-ai",),
        platforms=("linux-x64",),
    ),
)
CLAUDE_AGENT_ACP = ProgramEntry(
    command="claude-agent-acp",
    version="0.99.1",
    source=NpmPackage(
        name="@agentclientprotocol/claude-agent-acp",
        lock="claude-agent-acp",
        program="@agentclientprotocol/claude-agent-acp/dist/index.js",
        node=22,
    ),
)
CODEX_ACP = ProgramEntry(
    command="codex-acp",
    version="2.6.0",
    source=NpmPackage(
        name="@agentclientprotocol/codex-acp",
        lock="codex-acp",
        program="@agentclientprotocol/codex-acp/dist/index.js",
        node=20,
    ),
)
QWEN_CODE = ProgramEntry(
    command="qwen",
    version="0.24.4",
    source=NpmPackage(
        name="@qwen-code/qwen-code",
        lock="qwen-code",
        program="@qwen-code/qwen-code/cli-entry.js",
        node=22,
    ),
)
KILO = ProgramEntry(
    command="kilo",
    version="7.7.9",
    source=NpmPackage(
        name="@kilocode/cli-linux-x64",
        lock="kilo",
        program="@kilocode/cli-linux-x64/bin/kilo",
        also=("@kilocode/cli",),
        platforms=("linux-x64",),
    ),
)
MISTRAL_VIBE = ProgramEntry(
    command="vibe-acp",
    version="3.0.2",
    source=PythonTool(name="mistral-vibe", lock="mistral-vibe", program="vibe-acp", python=(3, 12)),
)

PROGRAMS: dict[str, ProgramEntry] = {
    program.source.lock: program
    for program in (GEMINI, OPENCODE, CLAUDE_AGENT_ACP, CODEX_ACP, QWEN_CODE, KILO, MISTRAL_VIBE)
    if isinstance(program.source, NpmPackage | PythonTool)
}
"""By the name that `codesdk runtimes install` takes."""
NODE_VERSION = "22.20.0"
"""Our own node, for programs that need a newer one than the system has. Its lock is `node`."""
