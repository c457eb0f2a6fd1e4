"""Places in a workspace whose content programs of the host run or obey by themselves, and which programs those are.

One table for whoever looks at what was changed (`sandbox.triggers`) and for whoever asks before (`policy.presets`).
"""

from collections.abc import Mapping

OBEYED: Mapping[str, str] = {
    ".git": "git",
    ".git/config": "git",
    ".git/config.worktree": "git",
    ".git/commondir": "git",
    ".git/hooks/": "git",
    ".husky/": "git",
    ".hg/hgrc": "Mercurial",
    ".envrc": "direnv",
    ".mise.toml": "mise",
    "mise.toml": "mise",
    ".exrc": "Vim",
    ".nvim.lua": "Neovim",
    ".vscode/tasks.json": "VS Code",
    ".vscode/settings.json": "VS Code",
    ".vscode/launch.json": "VS Code",
    ".devcontainer.json": "VS Code",
    ".devcontainer/": "VS Code",
    ".idea/runConfigurations/": "JetBrains IDEs",
    ".zed/": "Zed",
    ".cursor/": "Cursor",
    ".mcp.json": "agents",
    ".agents/": "agents",
    ".claude/": "claude",
    ".claude/hooks/": "claude",
    ".claude-plugin/": "claude",
    ".codex/": "codex",
    ".gemini/": "gemini",
    ".qwen/": "qwen",
    ".opencode/": "opencode",
    ".opencode/plugin/": "opencode",
    ".opencode/tool/": "opencode",
    "opencode.json": "opencode",
    "opencode.jsonc": "opencode",
    ".kilo/": "kilo",
    ".kilo/plugin/": "kilo",
    ".kilo/tool/": "kilo",
    ".kilocode/": "kilo",
    "kilo.json": "kilo",
    "kilo.jsonc": "kilo",
    ".vibe/": "vibe",
    ".minicode/": "minicode",
    ".codesdk/extensions/": "codesdk",
    "codesdk.toml": "codesdk",
}
"""Each place, and what runs or obeys it when somebody works in the workspace. With a slash: what is in that directory.

Not here is what people run on purpose, as a part of the work (Makefile, package.json, tests), and what agents only read
(AGENTS.md and the like).
"""

OBEYED_ROOTS = tuple(dict.fromkeys(place.split("/")[0] for place in OBEYED))
"""The file or folder at the top of each place, whose other content such programs may come to obey, too."""
