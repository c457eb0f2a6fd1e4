"""One data directory and the process that holds it: lock, control socket, retention, tokens."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.local.control import ControlServer as ControlServer
    from codesdk.local.directory import (
        AUDIT as AUDIT,
        DATABASE as DATABASE,
        RUNTIMES as RUNTIMES,
        DataDir as DataDir,
        announce as announce,
        equipment_in as equipment_in,
        find_daemon as find_daemon,
    )
    from codesdk.local.holder import (
        HolderGone as HolderGone,
        HolderService as HolderService,
        connect as connect,
        is_held as is_held,
    )
    from codesdk.local.keys import KeyFile as KeyFile
    from codesdk.local.retention import collect as collect
    from codesdk.local.tokens import PREFIX as PREFIX, Token as Token, TokenFile as TokenFile
    from codesdk.local.verification import verify_stored as verify_stored

__getattr__, __dir__ = open_door(__name__, __file__)
