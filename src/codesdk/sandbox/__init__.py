"""Where tools run and what they can reach: files beneath an open directory, and commands in a sandbox."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.sandbox.backend import (
        Command as Command,
        CommandEnd as CommandEnd,
        LimitName as LimitName,
        Sandbox as Sandbox,
        SandboxCapabilities as SandboxCapabilities,
        SandboxKind as SandboxKind,
        SandboxLimits as SandboxLimits,
        SandboxUnavailable as SandboxUnavailable,
        Stream as Stream,
    )
    from codesdk.sandbox.choose import (
        KINDS as KINDS,
        check_options as check_options,
        look_at as look_at,
        open_configured as open_configured,
        open_sandbox as open_sandbox,
    )
    from codesdk.sandbox.egress import (
        INTERNET as INTERNET,
        PORTS as PORTS,
        Internet as Internet,
        Streams as Streams,
        check_hosts as check_hosts,
        is_public as is_public,
    )
    from codesdk.sandbox.files.batch import (
        Batch as Batch,
        Written as Written,
        remove_folders as remove_folders,
    )
    from codesdk.sandbox.files.paths import (
        Beneath as Beneath,
        Missing as Missing,
        NotAFolder as NotAFolder,
        Opened as Opened,
        PathRefused as PathRefused,
        TooLarge as TooLarge,
        enter as enter,
        identify as identify,
        open_workspace as open_workspace,
        read_regular as read_regular,
        reopened as reopened,
        split as split,
        split_folder as split_folder,
    )
    from codesdk.sandbox.files.tree import Entry as Entry, Seen as Seen, entries as entries, walk as walk
    from codesdk.sandbox.host import HostSandbox as HostSandbox
    from codesdk.sandbox.triggers import TriggerWatch as TriggerWatch

__getattr__, __dir__ = open_door(__name__, __file__)
