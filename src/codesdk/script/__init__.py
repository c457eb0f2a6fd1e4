"""The scenario format that the scripted runtime and the model gateway share. See docs/script.md."""

from codesdk.script.expect import Seen, unmet
from codesdk.script.load import dump, load_script, parse_object, parse_script
from codesdk.script.model import Expect, Script, Turn, Usage

__all__ = [
    "Expect",
    "Script",
    "Seen",
    "Turn",
    "Usage",
    "dump",
    "load_script",
    "parse_object",
    "parse_script",
    "unmet",
]
