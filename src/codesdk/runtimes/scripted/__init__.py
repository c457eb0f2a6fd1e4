"""The runtime `scripted`: plays a script in this process, without a model. `ENTRY` is what others know of it."""

from typing import Annotated, Any

from msgspec import Meta

from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.options import RuntimeOptions

NAME = "scripted"


class ScriptedOptions(RuntimeOptions, frozen=True, kw_only=True):
    """What a session's `runtime_config` may say to the scripted runtime."""

    script: Annotated[
        str | dict[str, Any] | None,
        Meta(description="The script to play: the script itself, or the path of a file in the workspace."),
    ] = None


ENTRY = RuntimeEntry(
    name=NAME,
    adapter="codesdk.runtimes.scripted.adapter:ScriptedRuntime",
    docs="script.md",
    options=ScriptedOptions,
)
