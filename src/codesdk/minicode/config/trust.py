"""What a project's file may say. It lies in the workspace, where whoever wrote the project, and the agent, can write.

It may choose (a provider and a model among those that the user has set up), add instructions, and tighten limits.
It cannot name an address: a model behind it would get the user's key and words, and its answers run commands.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

CHOICES = frozenset(
    {
        "provider",
        "model",
        "catalog.openai",
        "catalog.anthropic",
        "catalog.google",
        "catalog.openai-compatible",
    }
)
LIMITS = frozenset(
    {
        "tools.timeout_ms",
        "tools.max_timeout_ms",
        "tools.max_output_bytes",
        "tools.max_shown_chars",
        "agent.max_steps",
    }
)
"""What may be set lower. Not the limits of hooks: with less time, a hook that the user relies on would be off."""
ADDED = "agent.instructions"


class Admitted(NamedTuple):
    """A field of a project's file: its value, or why it does not count."""

    field: str
    value: Any = None
    refusal: str | None = None
    added: bool = False
    """Whether the value holds the one below it, too."""


def admit(said: Mapping[str, Any], holds: Mapping[str, Any]) -> Iterator[Admitted]:
    """Yield the fields of a project's file, given what holds without it."""
    for field, value in said.items():
        below = holds.get(field)
        if field in CHOICES or (field == ADDED and not below):
            yield Admitted(field, value)
        elif field == ADDED:
            yield Admitted(field, f"{below}\n\n{value}", added=True)
        elif field not in LIMITS:
            yield Admitted(field, refusal="a project's file cannot set it")
        elif below is not None and value > below:
            yield Admitted(field, refusal=f"a project's file can only set it lower than it is ({below:,})")
        else:
            yield Admitted(field, value)
