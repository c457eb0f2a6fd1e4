"""What an operator writes about logins → which runtimes' logins are switched on, and how their traffic goes."""

import os
from collections.abc import Mapping
from typing import get_args

from codesdk.contract.capabilities import LoginTraffic
from codesdk.contract.entry import EXTERNAL
from codesdk.contract.errors import InvalidRequest
from codesdk.runtimes.registry import entry_of

LOGINS = "CODESDK_LOGINS"
"""The environment variable that switches logins on, such as `codex=through,claude`."""


def read_logins(given: str) -> dict[str, LoginTraffic]:
    """Return the switches in a text such as `codex=through,claude`. Raise `InvalidRequest` if one has no meaning.

    Without a way, a runtime's logins go the first one that it has.
    """
    return dict(_switch(word.strip()) for word in given.split(",") if word.strip())


def logins_from(environment: Mapping[str, str] = os.environ) -> dict[str, LoginTraffic]:
    """Return the switches in the environment: none if it says nothing."""
    return read_logins(environment.get(LOGINS, ""))


def _switch(word: str) -> tuple[str, LoginTraffic]:
    name, _, way = word.partition("=")
    if name.startswith(EXTERNAL):
        return name.strip(), _any_way(name, way.strip())
    entry = entry_of(name.strip())
    ways = entry.logins
    if not ways:
        raise InvalidRequest(
            f"Logins of {entry.name} cannot be switched on: CodeSDK cannot log in to it. Use a key."
        )
    way = way.strip() or ways[0]
    if way not in ways:
        raise InvalidRequest(
            f"Logins of {entry.name} cannot go {way[:40]!r}. They can go: {', '.join(ways)}."
        )
    return entry.name, way


def _any_way(name: str, way: str) -> LoginTraffic:
    """Return how logins of an operator's executable go. It must be named: no entry says how they can."""
    if way in get_args(LoginTraffic):
        return way  # pyright: ignore[reportReturnType] - it is one of its values
    raise InvalidRequest(
        f"Say how logins of {name} go: {', '.join(f'{name}={one}' for one in get_args(LoginTraffic))}."
    )
