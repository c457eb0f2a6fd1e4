"""Where tools run and what they can reach: files beneath a held directory, and commands in a sandbox of three kinds."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.sandbox.backend import (
        Command as Command,
    )
    from codesdk.sandbox.backend import (
        CommandEnd as CommandEnd,
    )
    from codesdk.sandbox.backend import (
        LimitName as LimitName,
    )
    from codesdk.sandbox.backend import (
        Sandbox as Sandbox,
    )
    from codesdk.sandbox.backend import (
        SandboxCapabilities as SandboxCapabilities,
    )
    from codesdk.sandbox.backend import (
        SandboxLimits as SandboxLimits,
    )
    from codesdk.sandbox.backend import (
        SandboxUnavailable as SandboxUnavailable,
    )
    from codesdk.sandbox.backend import (
        Stream as Stream,
    )
    from codesdk.sandbox.choose import (
        KINDS as KINDS,
    )
    from codesdk.sandbox.choose import (
        SandboxKind as SandboxKind,
    )
    from codesdk.sandbox.choose import (
        look_at as look_at,
    )
    from codesdk.sandbox.choose import (
        open_sandbox as open_sandbox,
    )
    from codesdk.sandbox.egress import (
        INTERNET as INTERNET,
    )
    from codesdk.sandbox.egress import (
        PORTS as PORTS,
    )
    from codesdk.sandbox.egress import (
        Internet as Internet,
    )
    from codesdk.sandbox.egress import (
        Streams as Streams,
    )
    from codesdk.sandbox.egress import (
        check_hosts as check_hosts,
    )
    from codesdk.sandbox.egress import (
        is_public as is_public,
    )
    from codesdk.sandbox.files.batch import (
        Batch as Batch,
    )
    from codesdk.sandbox.files.batch import (
        Written as Written,
    )
    from codesdk.sandbox.files.batch import (
        remove_folders as remove_folders,
    )
    from codesdk.sandbox.files.paths import (
        Beneath as Beneath,
    )
    from codesdk.sandbox.files.paths import (
        Missing as Missing,
    )
    from codesdk.sandbox.files.paths import (
        NotAFolder as NotAFolder,
    )
    from codesdk.sandbox.files.paths import (
        Opened as Opened,
    )
    from codesdk.sandbox.files.paths import (
        PathRefused as PathRefused,
    )
    from codesdk.sandbox.files.paths import (
        TooLarge as TooLarge,
    )
    from codesdk.sandbox.files.paths import (
        read_regular as read_regular,
    )
    from codesdk.sandbox.files.paths import (
        split as split,
    )
    from codesdk.sandbox.files.paths import (
        split_folder as split_folder,
    )
    from codesdk.sandbox.files.tree import (
        Entry as Entry,
    )
    from codesdk.sandbox.files.tree import (
        Seen as Seen,
    )
    from codesdk.sandbox.files.tree import (
        entries as entries,
    )
    from codesdk.sandbox.files.tree import (
        walk as walk,
    )
    from codesdk.sandbox.host import (
        HostSandbox as HostSandbox,
    )

__all__, __getattr__, __dir__ = open_door(
    __name__,
    {
        ".backend": (
            "Command",
            "CommandEnd",
            "LimitName",
            "Sandbox",
            "SandboxCapabilities",
            "SandboxLimits",
            "SandboxUnavailable",
            "Stream",
        ),
        ".choose": (
            "KINDS",
            "SandboxKind",
            "look_at",
            "open_sandbox",
        ),
        ".egress": (
            "INTERNET",
            "Internet",
            "PORTS",
            "Streams",
            "check_hosts",
            "is_public",
        ),
        ".files.batch": (
            "Batch",
            "Written",
            "remove_folders",
        ),
        ".files.paths": (
            "Beneath",
            "Missing",
            "NotAFolder",
            "Opened",
            "PathRefused",
            "TooLarge",
            "read_regular",
            "split",
            "split_folder",
        ),
        ".files.tree": (
            "Entry",
            "Seen",
            "entries",
            "walk",
        ),
        ".host": ("HostSandbox",),
    },
)
