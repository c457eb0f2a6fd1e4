"""Environment variables → the layer of configuration that they are. The one table of them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from codesdk.contract.errors import InvalidRequest


class Variable(NamedTuple):
    """A setting, and the variables that set it: of those that are not empty, the first one counts."""

    names: tuple[str, ...]
    field: str
    what: str
    number: bool = False


VARIABLES: tuple[Variable, ...] = (
    Variable(("MINICODE_PROVIDER",), "provider", "which provider is used"),
    Variable(("MINICODE_MODEL",), "model", "which model is used"),
    Variable(("OPENAI_API_KEY",), "providers.openai.api_key", "the key of OpenAI"),
    Variable(("OPENAI_BASE_URL",), "providers.openai.base_url", "another address for its requests"),
    Variable(("ANTHROPIC_API_KEY",), "providers.anthropic.api_key", "the key of Anthropic"),
    Variable(("ANTHROPIC_BASE_URL",), "providers.anthropic.base_url", "another address for its requests"),
    Variable(("GEMINI_API_KEY", "GOOGLE_API_KEY"), "providers.google.api_key", "the key of Google"),
    Variable(("GOOGLE_GEMINI_BASE_URL",), "providers.google.base_url", "another address for its requests"),
    Variable(
        ("OPENAI_COMPATIBLE_API_KEY",),
        "providers.openai-compatible.api_key",
        "the key of an OpenAI-compatible server, if it wants one",
    ),
    Variable(("OPENAI_COMPATIBLE_BASE_URL",), "providers.openai-compatible.base_url", "its address"),
    Variable(("OPENAI_COMPATIBLE_NAME",), "providers.openai-compatible.name", "its name, for people"),
    Variable(("MINICODE_MAX_STEPS",), "agent.max_steps", "how often a model is asked in one turn", True),
    Variable(("MINICODE_INSTRUCTIONS",), "agent.instructions", "instructions for every session"),
    Variable(
        ("MINICODE_TOOL_TIMEOUT_MS",), "tools.timeout_ms", "how long a call of a tool may take", number=True
    ),
    Variable(("MINICODE_SANDBOX",), "sandbox.backend", "where `bash` runs: host, bubblewrap or oci"),
    Variable(("MINICODE_SANDBOX_IMAGE",), "sandbox.image", "the image of an oci sandbox"),
    Variable(("MINICODE_CONFIG_DIR",), "paths.config", "the directory of the global `config.json`"),
    Variable(("MINICODE_SESSIONS_DIR",), "paths.sessions", "where sessions are kept"),
    Variable(("MINICODE_ARTIFACTS_DIR",), "paths.artifacts", "where full outputs are kept"),
)
KEYS: frozenset[str] = frozenset(
    name for variable in VARIABLES if variable.field.endswith(".api_key") for name in variable.names
)
"""Variables that hold keys. Commands that a model runs do not get them."""
_BY_FIELD = {variable.field: variable for variable in VARIABLES}


def variables_of(field: str) -> tuple[str, ...]:
    """Return the variables that set a field, none if there are none."""
    found = _BY_FIELD.get(field)
    return () if found is None else found.names


def read(env: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the variables that are set, the field of each, and its value."""
    for variable in VARIABLES:
        name = next((name for name in variable.names if env.get(name, "").strip()), None)
        if name is None:
            continue
        text = env[name].strip()
        yield name, variable.field, _number(name, text) if variable.number else text


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(f"{name}: {text[:40]!r} is not a whole number.") from None
