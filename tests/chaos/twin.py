"""A second runtime that plays scripts, under another name: sessions of one can move to the other."""

from codesdk.contract.entry import RuntimeEntry
from codesdk.runtimes.scripted.adapter import ScriptedRuntime

NAME = "scripted-twin"
ENTRY = RuntimeEntry(name=NAME, adapter="tests.chaos.twin:TwinRuntime")


class TwinRuntime(ScriptedRuntime):
    """Plays the same scripts."""

    @property
    def name(self) -> str:
        """Its own name, so that a move to it is one."""
        return NAME
