"""What the operator lets sessions use, checked whenever one is made, forked, moved or given work.

An operator may allow less than when a session was made; what is not allowed any longer does not go on.
"""

from pathlib import Path
from typing import Literal

from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.daemon.operations.operation import Call
from codesdk.engine import LiveSession
from codesdk.runtimes import resolve


def check_new(
    call: Call, runtime: str, workspace: str, native_tools: Literal["off"] | list[str]
) -> tuple[str, str]:
    """Check what a session is to be of, whether it is new, forked or moved. Return its runtime and workspace in full."""
    if native_tools != "off":
        call.demand("admin", "A session with native_tools")
    return _runtime(call, runtime), _workspace(call, workspace)


def check_work(call: Call, live: LiveSession) -> None:
    """Check that a session may be given work."""
    _runtime(call, live.state.runtime_name)
    _workspace(call, live.state.config.workspace)


def _runtime(call: Call, runtime: str) -> str:
    """Return the full name of a runtime that the operator lets sessions use."""
    name = resolve(runtime)
    allowed = call.settings.runtimes
    if allowed and name not in allowed:
        raise Forbidden(f"The runtime {name} is not enabled here. Enabled: {', '.join(allowed)}.")
    return name


def _workspace(call: Call, given: str) -> str:
    """Return a workspace that the operator lets sessions use, with all links followed."""
    try:
        path = Path(given)
        if not path.is_absolute():
            raise InvalidRequest("The workspace must be an absolute path on the daemon's machine.")
        found = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidRequest(f"The workspace cannot be used ({type(error).__name__}).") from error
    roots = [Path(root).resolve() for root in call.settings.workspace_roots]
    if roots and not any(found.is_relative_to(root) for root in roots):
        raise Forbidden("The workspace is outside of the directories that the operator allows.")
    return str(found)
