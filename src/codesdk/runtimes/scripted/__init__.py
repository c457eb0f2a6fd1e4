"""The runtime `scripted`: plays a script in this process, without a model. `ENTRY` is what others know of it."""

from codesdk.contract.entry import RuntimeEntry

NAME = "scripted"
ENTRY = RuntimeEntry(
    name=NAME,
    adapter="codesdk.runtimes.scripted.adapter:ScriptedRuntime",
    docs="script.md",
)
