"""The scenario format shared by the scripted runtime and the model gateway. See docs/script.md."""

from codesdk.script.expect import Seen, unmet
from codesdk.script.load import MAX_BYTES, dump, load_script, parse_object, parse_script
from codesdk.script.model import Expect, Script, Turn, Usage

__all__ = [
    "MAX_BYTES",
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
