"""The name of a backend → a sandbox. A backend that is missing is an error, never another backend instead."""

from typing import Any, Literal, assert_never

from codesdk.sandbox.backend import Sandbox, SandboxUnavailable

SandboxKind = Literal["bubblewrap", "oci", "host"]
KINDS: tuple[SandboxKind, ...] = ("bubblewrap", "oci", "host")


def open_sandbox(kind: SandboxKind, **options: Any) -> Sandbox:
    """Return a sandbox with the options of its class. Raise `SandboxUnavailable` if it is not installed.

    Whether it works here is found out when it is first used: ask for its capabilities, or run something.
    """
    match kind:
        case "bubblewrap":
            from codesdk.sandbox import bubblewrap

            if bubblewrap.find_program() is None:
                raise SandboxUnavailable(bubblewrap.NOT_INSTALLED)
            return bubblewrap.BubblewrapSandbox(**options)
        case "oci":
            from codesdk.sandbox.oci import OciSandbox

            return OciSandbox(**options)
        case "host":
            from codesdk.sandbox.host import HostSandbox

            return HostSandbox(**options)
        case _:
            assert_never(kind)
