"""A model request → its purpose: the conversation itself, or a hidden request of the runtime.

Hidden requests are recognized by their shape, as the real runtimes send them: they offer no tools and ask
for a title, a route or a summary.
"""

from codesdk.contract.events import Purpose
from codesdk.gateway.wires.exchange import Ask, AskText

_LOOKED_AT = 4000  # characters of each text: a purpose is stated at the beginning
_SIGNS: tuple[tuple[Purpose, tuple[str, ...]], ...] = (
    (
        "title",
        (
            "title generator",
            "generate a title",
            "concise title",
            "short title",
            "summarize this coding conversation in under",
            "naming a coding session",
        ),
    ),
    ("router", ("task routing", "task router", "model_choice", "complexity_score", "routing ai")),
    (
        "compaction",
        (
            "summarizing conversations",
            "compress the conversation",
            "context checkpoint",
            "detailed summary of the conversation",
        ),
    ),
)


def purpose_of(ask: Ask) -> Purpose:
    """Return the purpose of a request."""
    if ask.kind == "count_tokens":
        return "count_tokens"
    if ask.tools:  # a runtime's hidden requests offer none
        return "main"
    text = _instructions(ask)
    for purpose, signs in _SIGNS:
        if any(sign in text for sign in signs):
            return purpose
    return "main"


def _instructions(ask: Ask) -> str:
    """Return the system texts and the last user text, in lower case: there a purpose is stated."""
    system = [
        block.text
        for m in ask.messages
        if m.role == "system"
        for block in m.blocks
        if isinstance(block, AskText)
    ]
    users = [m for m in ask.messages if m.role == "user"]
    last = [block.text for block in users[-1].blocks if isinstance(block, AskText)] if users else []
    return "\n".join(text[:_LOOKED_AT] for text in (*system, *last)).lower()
