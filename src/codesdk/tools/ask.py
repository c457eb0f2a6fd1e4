"""`user.ask`: the model asks whoever is there. The tool is not run: the answer is its result."""

from typing import Annotated

import msgspec

from codesdk.contract.tools import Question, SandboxSummary, ToolAnnotations
from codesdk.tools.registry import Tool, ToolContext, ToolError, make_tool

MAX_CHARS = 4_000
MAX_OPTIONS = 10
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CHARS)]


class AskInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `user.ask` takes."""

    question: Annotated[
        _Text, msgspec.Meta(description="One question, with all that is needed to answer it.")
    ]
    options: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=1, max_length=200)]],
        msgspec.Meta(
            max_length=MAX_OPTIONS,
            description="Answers to choose from, the one you recommend first. Other answers are possible.",
        ),
    ] = []


async def ask(args: AskInput, context: ToolContext) -> str:
    """Ask the user a question and wait for the answer, a text.

    Use it only for what you can neither find out nor decide yourself. If nobody answers, decide yourself and say so.
    """
    raise ToolError("Nobody was asked: this call is answered, not run.")


def ask_tool() -> Tool:
    """Return the tool `user.ask`."""
    return make_tool(
        ask,
        name="user.ask",
        # It changes nothing and reaches nothing; whoever answers decides what is told.
        tool_class="read_only",
        sandbox=SandboxSummary(network=False),
        annotations=ToolAnnotations(title="Ask the user"),
        asks=lambda args: Question(text=args.question, options=list(args.options)),
    )
