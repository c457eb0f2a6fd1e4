"""One check of a contract → a `Cell`: did it hold, and if not, what was found instead.

For runtimes and logs alike. A check fails through `same`, `holds` or `refused`.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal

import msgspec

Outcome = Literal["pass", "fail", "unsupported", "not-checked"]

_SHOWN = 600


class Cell(msgspec.Struct, frozen=True):
    """The outcome of one check. `unsupported`: it does not hold, and the capabilities say so."""

    name: str
    outcome: Outcome
    detail: str = ""


class Unmet(AssertionError):
    """A requirement of a contract does not hold."""


class Unchecked(Exception):
    """Whether the contract holds cannot be checked here. Says why."""


class Unsupported(Exception):
    """The capabilities say that there is nothing to check. Names the capability."""


def same(what: str, found: Any, wanted: Any) -> None:
    """Raise `Unmet` if two values are not equal."""
    if found != wanted:
        raise Unmet(f"{what}: wanted {_show(wanted)}, found {_show(found)}")


def holds(condition: bool, what: str) -> None:
    """Raise `Unmet` if a condition is false. `what` says what should hold."""
    if not condition:
        raise Unmet(f"not so: {what}")


async def refused(what: str, work: Awaitable[Any], *kinds: type[Exception]) -> None:
    """Raise `Unmet` unless some work ends with one of these errors."""
    try:
        result = await work
    except kinds:
        return
    names = " or ".join(kind.__name__ for kind in kinds)
    raise Unmet(f"{what}: wanted {names}, but it was done (and gave {_show(result)})")


async def judge(name: str, work: Awaitable[None], timeout_s: float) -> Cell:
    """Run one check and return its cell. Must not raise."""
    try:
        async with asyncio.timeout(timeout_s):
            await work
    except Unmet as unmet:
        return Cell(name, "fail", str(unmet))
    except Unsupported as unsupported:
        return Cell(name, "unsupported", str(unsupported))
    except Unchecked as unchecked:
        return Cell(name, "not-checked", str(unchecked))
    except TimeoutError:
        return Cell(name, "fail", f"not done after {timeout_s:g} s")
    except Exception as error:  # noqa: BLE001 - what is tested may raise anything; other cells still count
        return Cell(name, "fail", f"{type(error).__name__}: {error}")
    return Cell(name, "pass")


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
