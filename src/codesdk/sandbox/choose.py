"""Opens the sandbox of a named backend. A missing backend is an error; another one is never used instead."""

from typing import Any, assert_never

from codesdk.contract.errors import CodeSDKError
from codesdk.sandbox.backend import (
    Sandbox,
    SandboxCapabilities,
    SandboxKind,
    SandboxUnavailable,
    unavailable,
)

KINDS: tuple[SandboxKind, ...] = ("bubblewrap", "oci", "host")


def open_sandbox(kind: SandboxKind, **options: Any) -> Sandbox:
    """Return a sandbox with the options of its class. Raise `SandboxUnavailable` if it is not installed.

    Whether it works here shows when it is first used: ask for its capabilities, or run something.
    """
    match kind:
        case "bubblewrap":
            from codesdk.sandbox.bubblewrap import sandbox as bubblewrap

            if bubblewrap.find_program() is None:
                raise SandboxUnavailable(bubblewrap.NOT_INSTALLED)
            return bubblewrap.BubblewrapSandbox(**options)
        case "oci":
            from codesdk.sandbox.oci.sandbox import OciSandbox

            return OciSandbox(**options)
        case "host":
            from codesdk.sandbox.host import HostSandbox

            return HostSandbox(**options)
        case _:
            assert_never(kind)


async def look_at(kind: SandboxKind, **options: Any) -> SandboxCapabilities:
    """Return a backend's capabilities, or why it cannot be opened. Must not raise."""
    if kind == "oci" and "image" not in options:
        return unavailable(kind, "Not looked at: name an image with --image.")
    try:
        sandbox = open_sandbox(kind, **options)
    except CodeSDKError as error:
        return unavailable(kind, error.message)
    except ImportError as error:
        return unavailable(kind, f"Not installed: {error}.")
    try:
        return await sandbox.capabilities()
    finally:
        await sandbox.close()
