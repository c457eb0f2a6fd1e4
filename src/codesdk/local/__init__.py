"""What makes one directory and one process: data directory, lock, control socket, retention, tokens."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.local.control import (
        Command as Command,
    )
    from codesdk.local.control import (
        ControlServer as ControlServer,
    )
    from codesdk.local.control import (
        carry_out as carry_out,
    )
    from codesdk.local.control import (
        send as send,
    )
    from codesdk.local.directory import (
        AUDIT as AUDIT,
    )
    from codesdk.local.directory import (
        DATABASE as DATABASE,
    )
    from codesdk.local.directory import (
        RUNTIMES as RUNTIMES,
    )
    from codesdk.local.directory import (
        DataDir as DataDir,
    )
    from codesdk.local.directory import (
        announce as announce,
    )
    from codesdk.local.directory import (
        find_daemon as find_daemon,
    )
    from codesdk.local.directory import (
        socket_address as socket_address,
    )
    from codesdk.local.retention import (
        GcReport as GcReport,
    )
    from codesdk.local.retention import (
        Progress as Progress,
    )
    from codesdk.local.retention import (
        Retention as Retention,
    )
    from codesdk.local.retention import (
        collect as collect,
    )
    from codesdk.local.tokens import (
        PREFIX as PREFIX,
    )
    from codesdk.local.tokens import (
        SCOPES as SCOPES,
    )
    from codesdk.local.tokens import (
        Token as Token,
    )
    from codesdk.local.tokens import (
        TokenFile as TokenFile,
    )

__all__, __getattr__, __dir__ = open_door(
    __name__,
    {
        ".control": (
            "Command",
            "ControlServer",
            "carry_out",
            "send",
        ),
        ".directory": (
            "AUDIT",
            "DATABASE",
            "DataDir",
            "RUNTIMES",
            "announce",
            "find_daemon",
            "socket_address",
        ),
        ".retention": (
            "GcReport",
            "Progress",
            "Retention",
            "collect",
        ),
        ".tokens": (
            "PREFIX",
            "SCOPES",
            "Token",
            "TokenFile",
        ),
    },
)
