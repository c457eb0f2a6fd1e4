"""Opens the sandbox of a named backend. A missing backend is an error; another one is never used instead."""

import inspect
from collections.abc import Mapping
from typing import Any, assert_never, get_type_hints

from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.validation import read_as
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
    check_options(kind, options)
    if kind == "bubblewrap":
        from codesdk.sandbox.bubblewrap import sandbox as bubblewrap

        if bubblewrap.find_program() is None:
            raise SandboxUnavailable(bubblewrap.NOT_INSTALLED)
    return _class_of(kind)(**options)


def check_options(kind: SandboxKind, options: Mapping[str, object]) -> None:
    """Raise `InvalidRequest` if there is no such sandbox, or it has no such options. Opens nothing."""
    if kind not in KINDS:
        raise InvalidRequest(f"There is no sandbox {kind!r:.60}. There are: {', '.join(KINDS)}.")
    found = _class_of(kind)
    known = inspect.signature(found)
    try:
        known.bind(**options)
    except TypeError as error:
        takes = ", ".join(known.parameters) or "none"
        raise InvalidRequest(
            f"The sandbox {kind} cannot be opened with these sandbox_options: {error}. It takes: {takes}."
        ) from None
    hints = get_type_hints(found.__init__)
    for name, value in options.items():
        hint = hints[name]
        if not (isinstance(hint, type) and isinstance(value, hint)):  # an object of ours is no JSON
            read_as(hint, value, f"sandbox_options.{name}")


def _class_of(kind: SandboxKind) -> type[Any]:
    match kind:
        case "bubblewrap":
            from codesdk.sandbox.bubblewrap.sandbox import BubblewrapSandbox

            return BubblewrapSandbox
        case "oci":
            from codesdk.sandbox.oci.sandbox import OciSandbox

            return OciSandbox
        case "host":
            from codesdk.sandbox.host import HostSandbox

            return HostSandbox
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
