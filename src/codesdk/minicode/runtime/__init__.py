"""minicode as the runtime `minicode` of CodeSDK: the same loop, with the engine's tools. `ENTRY` is what others know of it."""

from typing import Annotated, Literal, get_args

from msgspec import Meta

from codesdk.contract.entry import InstructionFiles, RuntimeEntry
from codesdk.contract.options import RuntimeOptions
from codesdk.contract.ownership import ToolNaming
from codesdk.minicode.types import ProviderId

NAME = "minicode"


class MinicodeOptions(RuntimeOptions, frozen=True, kw_only=True):
    """What a session's `runtime_config` may say to minicode."""

    system_prompt: Annotated[str, Meta(description="Takes the place of minicode's short instruction.")] = ""
    provider: Annotated[
        ProviderId | None,
        Meta(
            description="Which kind of provider is asked, and so the format of the requests; without it, the first of"
            " these for which there is a key. Where its requests go, the operator says."
        ),
    ] = None
    effort: Annotated[
        Literal["off", "minimal", "low", "medium", "high", "xhigh"] | None,
        Meta(description="How long the model thinks before it answers; without it, as it does by itself."),
    ] = None
    max_output_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(description="The longest answer that the model is asked for."),
    ] = None
    max_steps: Annotated[
        int, Meta(ge=1, le=10_000, description="How often the model is asked at most in one task.")
    ] = 200
    context_tokens: Annotated[
        Annotated[int, Meta(ge=1_000, le=10_000_000)] | None,
        Meta(
            description="How much the model is sent at most; without it, what is known of the model's window.",
        ),
    ] = None


ENTRY = RuntimeEntry(
    name=NAME,
    adapter="codesdk.minicode.runtime.adapter:MinicodeRuntime",
    ways={provider: {"provider": provider} for provider in get_args(ProviderId)},
    docs="runtimes/minicode.md",
    wires=("responses", "anthropic", "gemini", "chat"),
    options=MinicodeOptions,
    naming=ToolNaming(),
    instructions=InstructionFiles(captured=("AGENTS.md",)),
)
