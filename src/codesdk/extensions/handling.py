"""The code of an extension is called here, and nowhere else: in its thread, or in its process.

What it raises and returns is looked at here as well, since that may run code of its own.
"""

import inspect

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.extensions.outcomes import AgentRuntimeEvent, HandlerTimeout
from codesdk.extensions.registry import AgentEventRegistry, EventHandler, Registration
from codesdk.extensions.snapshot import SnapshotModules
from codesdk.extensions.tools import HandlerTools
from codesdk.foreign import Contained, ForeignCrash, name_of

MAX_RESULT_BYTES = 1024 * 1024


async def register(name: str, file: str, modules: SnapshotModules) -> list[Registration]:
    """Import an extension, and return what it registers. Raise `InvalidRequest`, or `ForeignCrash` with its error."""
    registry = AgentEventRegistry(name)
    try:
        with Contained():
            function = getattr(modules.load(file), "register", None)
            if not callable(function):
                raise InvalidRequest(f"{file} defines no `register(registry)`.")
            found: object = function(registry)
            if inspect.isawaitable(found):
                await found
    except InvalidRequest:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it raises, it is not loaded
        raise ForeignCrash(_words(error)) from None
    finally:
        registry.close()
    return registry.registrations


async def run_handler(handler: EventHandler, event: AgentRuntimeEvent, tools: HandlerTools) -> bytes:
    """Return what a handler returns, as JSON. Raise `ForeignCrash` with its error, or `HandlerTimeout` for its own timeout."""
    try:
        with Contained():
            found: object = handler(event, tools)
            if inspect.isawaitable(found):
                found = await found
            return _encoded(found)
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its result
        kind = HandlerTimeout if isinstance(error, TimeoutError | HandlerTimeout) else ForeignCrash
        raise kind(_words(error)) from None


def _encoded(found: object) -> bytes:
    try:
        data = msgspec.json.encode(found)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it returned {type(found).__name__}, which is not JSON: {error}") from None
    if len(data) > MAX_RESULT_BYTES:
        raise ValueError(f"it returned more than {MAX_RESULT_BYTES:,} bytes")
    return data


def _words(error: Exception) -> str:
    try:
        return name_of(error)
    except Exception:  # noqa: BLE001 - an exception whose text raises another
        return type(error).__name__
