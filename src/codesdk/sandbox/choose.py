"""Opens the sandbox of a named backend. A missing backend is an error; another one is never used instead."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, Unpack, assert_never, overload

from codesdk.contract import validation
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.sandbox.backend import (
    Sandbox,
    SandboxCapabilities,
    SandboxKind,
    SandboxUnavailable,
    unavailable,
)

if TYPE_CHECKING:
    from codesdk.sandbox.egress import Internet
    from codesdk.sandbox.owner import User

KINDS: tuple[SandboxKind, ...] = ("bubblewrap", "oci", "host")


class BubblewrapOptions(TypedDict, total=False):
    """What `BubblewrapSandbox` takes, which says what it means."""

    user: "User"
    give_workspace: bool
    readable: Sequence[str]
    hard_links: Literal["protect", "allow"]
    allow_unfiltered: bool
    internet: "Internet"


class OciOptions(TypedDict, total=False):
    """What `OciSandbox` takes, which says what it means."""

    image: Required[str]
    engine: str | None
    user: "User"
    give_workspace: bool
    hard_links: Literal["protect", "allow"]
    cpus: float


@overload
def open_sandbox(kind: Literal["bubblewrap"], **options: Unpack[BubblewrapOptions]) -> Sandbox: ...
@overload
def open_sandbox(kind: Literal["oci"], **options: Unpack[OciOptions]) -> Sandbox: ...
@overload
def open_sandbox(kind: Literal["host"]) -> Sandbox: ...
def open_sandbox(kind: SandboxKind, **options: object) -> Sandbox:
    """Return a sandbox. Raise `SandboxUnavailable` if it is not installed, `InvalidRequest` for wrong options.

    Whether it works here shows when it is first used: ask for its capabilities, or run something.
    """
    return open_configured(kind, options)


def open_configured(kind: SandboxKind, options: Mapping[str, object]) -> Sandbox:
    """Do the same with options by name, as a file of settings has them."""
    check_options(kind, options, at="")
    if kind == "bubblewrap":
        from codesdk.sandbox.bubblewrap import sandbox as bubblewrap

        if bubblewrap.find_program() is None:
            raise SandboxUnavailable(bubblewrap.NOT_INSTALLED)
    return _class_of(kind)(**options)


def check_options(kind: SandboxKind, options: Mapping[str, object], *, at: str = "sandbox_options") -> None:
    """Raise `InvalidRequest` if there is no such sandbox, or it has no such options. Opens nothing.

    `at` is where the options stand, for errors.
    """
    if kind not in KINDS:
        raise InvalidRequest(f"There is no sandbox {kind!r:.60}. There are: {', '.join(KINDS)}.")
    refused = f"The sandbox {kind} cannot be opened with these {at or 'options'}"
    validation.check_options(_class_of(kind), options, refused, at=at)


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


async def look_at(kind: SandboxKind, options: Mapping[str, object] | None = None) -> SandboxCapabilities:
    """Return a backend's capabilities, or why it cannot be opened. Must not raise."""
    given = options or {}
    if kind == "oci" and "image" not in given:
        return unavailable(kind, "Not looked at: name an image with --image.")
    try:
        sandbox = open_configured(kind, given)
    except CodeSDKError as error:
        return unavailable(kind, error.message)
    except ImportError as error:
        return unavailable(kind, f"Not installed: {error}.")
    try:
        return await sandbox.capabilities()
    finally:
        await sandbox.close()
