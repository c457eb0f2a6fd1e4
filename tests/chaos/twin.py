"""A second runtime that plays scripts, under another name: sessions of one can move to the other."""

import msgspec

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.entry import RuntimeEntry
from codesdk.runtimes.scripted.adapter import ScriptedRuntime

NAME = "scripted-twin"
ENTRY = RuntimeEntry(name=NAME, adapter="tests.chaos.twin:TwinRuntime")


class TwinRuntime(ScriptedRuntime):
    """Plays the same scripts. It says that it asks its model through the gateway, though it never asks any: so a session
    whose model plays a script to a program can move to it and back."""

    @property
    def name(self) -> str:
        """Its own name, so that a move to it is one."""
        return NAME

    def capabilities(self) -> Capabilities:
        """What it can do."""
        return msgspec.structs.replace(super().capabilities(), input_capture="exact")
