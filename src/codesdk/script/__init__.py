"""The scenario format shared by the scripted runtime and the model gateway. See docs/script.md."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.script.expect import ScriptContext as ScriptContext, unmet as unmet
    from codesdk.script.load import (
        MAX_BYTES as MAX_BYTES,
        dump as dump,
        load_script as load_script,
        parse_object as parse_object,
        parse_script as parse_script,
    )
    from codesdk.script.model import Expect as Expect, Script as Script, Turn as Turn, Usage as Usage

__getattr__, __dir__ = open_door(__name__, __file__)
