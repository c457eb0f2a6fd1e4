"""The variables by which agents commonly are told where their model is: tried all at once, each with an address of its own."""

from typing import Literal

import msgspec

from codesdk.contract.models import Wire

Family = Literal["openai", "anthropic", "gemini", "any"]
FAMILY: dict[Wire, Family] = {
    "anthropic": "anthropic",
    "chat": "openai",
    "responses": "openai",
    "gemini": "gemini",
}
MODELS: dict[Wire, str] = {
    "anthropic": "claude-sonnet-5",
    "chat": "gpt-5.5",
    "responses": "gpt-5.5",
    "gemini": "gemini-2.5-flash",
}
"""The model of a session that names none, if the agent can be told one."""


class Variable(msgspec.Struct, frozen=True):
    """A variable: for the address (with what follows ours), the key, or the model."""

    name: str
    family: Family
    kind: Literal["address", "key", "model"]
    suffix: str = ""


VARIABLES = (
    Variable("OPENAI_BASE_URL", "openai", "address", "/v1"),
    Variable("OPENAI_API_BASE", "openai", "address", "/v1"),
    Variable("OPENAI_API_URL", "openai", "address", "/v1"),
    Variable("OPENAI_HOST", "openai", "address"),
    Variable("OPENROUTER_BASE_URL", "openai", "address", "/v1"),
    Variable("LLM_BASE_URL", "any", "address", "/v1"),
    Variable("ANTHROPIC_BASE_URL", "anthropic", "address"),
    Variable("ANTHROPIC_API_BASE", "anthropic", "address"),
    Variable("ANTHROPIC_API_URL", "anthropic", "address"),
    Variable("ANTHROPIC_HOST", "anthropic", "address"),
    Variable("GOOGLE_GEMINI_BASE_URL", "gemini", "address"),
    Variable("GEMINI_BASE_URL", "gemini", "address"),
    Variable("GEMINI_API_BASE", "gemini", "address"),
    Variable("OPENAI_API_KEY", "openai", "key"),
    Variable("OPENROUTER_API_KEY", "openai", "key"),
    Variable("LLM_API_KEY", "any", "key"),
    Variable("ANTHROPIC_API_KEY", "anthropic", "key"),
    Variable("GEMINI_API_KEY", "gemini", "key"),
    Variable("OPENAI_MODEL", "openai", "model"),
    Variable("LLM_MODEL", "any", "model"),
    Variable("ANTHROPIC_MODEL", "anthropic", "model"),
    Variable("GEMINI_MODEL", "gemini", "model"),
)
COMMON = {
    "DO_NOT_TRACK": "1",
    "NO_UPDATE_NOTIFIER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    # Gemini and what was made from it connect to no MCP server in a folder that nobody trusts. Ours is empty.
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
}
"""What many programs respect: they send nothing to their makers, stay as they are, and take their folder for a safe one."""
PREFIXES = ("mcp__{server}__", "mcp_{server}_", "{server}_", "{server}__", "{server}-", "{server}.", "")
"""How agents commonly begin the name of a tool of an MCP server. Tried if they declare none of ours."""
SHELLS = (
    "bash",
    "shell",
    "exec_command",
    "execute_command",
    "run_command",
    "run_shell_command",
    "terminal",
)
"""Names of tools that run commands."""
MODES = ("default", "ask", "accept", "auto", "full", "bypass", "yolo")
"""Words in the names of modes: those in which an agent is least free are tried first."""


def model_for(variable: Variable) -> str:
    """Return the model that a variable names."""
    names: dict[Family, str] = {"anthropic": MODELS["anthropic"], "gemini": MODELS["gemini"]}
    return names.get(variable.family, MODELS["chat"])


def chosen(families: tuple[Family, ...]) -> list[Variable]:
    """Return the variables of some families."""
    return [variable for variable in VARIABLES if variable.family in families]
