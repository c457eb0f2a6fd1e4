"""A method and a path → the operation, and the names in the path."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from codesdk.contract.errors import InvalidRequest
from codesdk.daemon.operations.operation import Operation
from codesdk.daemon.problems import no_route, wrong_method

MAX_NAME_CHARS = 512


class _Route(NamedTuple):
    """The parts of a path in which some are placeholders, and what can be done there, by method."""

    parts: Sequence[str]
    names: dict[int, str]
    methods: dict[str, Operation]

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """Return the names in a path, or None if it is another one. A name has at least one character."""
        found: dict[str, str] = {}
        for place, (ours, theirs) in enumerate(zip(self.parts, parts, strict=True)):
            name = self.names.get(place)
            if name is None:
                if ours != theirs:
                    return None
            elif theirs:
                found[name] = theirs
            else:
                return None
        return found


def names_in(path: str) -> list[str]:
    """Return the names of the placeholders in a path of the table. A placeholder is a whole part of it."""
    return list(_placeholders(path.split("/")).values())


class Router:
    """Finds operations. Paths are matched as they were sent, so an escaped slash stays part of its name."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._plain: dict[str, dict[str, Operation]] = {}
        # By how many parts a path has. Compiling an expression for each took a twentieth of a daemon's start.
        self._named: dict[int, dict[str, _Route]] = {}
        for operation in operations:
            if "{" in operation.path:
                parts = operation.path.split("/")
                routes = self._named.setdefault(len(parts), {})
                route = routes.setdefault(operation.path, _Route(parts, _placeholders(parts), {}))
                route.methods[operation.method] = operation
            else:
                self._plain.setdefault(operation.path, {})[operation.method] = operation

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """Return the operation and the names in the path. Raise if there is none. HEAD counts as GET."""
        wanted = "GET" if method == "HEAD" else method
        if path in self._plain:
            return _choose(self._plain[path], wanted, method), {}
        parts = path.split("/")
        for route in self._named.get(len(parts), {}).values():
            found = route.match(parts)
            if found is not None:
                return _choose(route.methods, wanted, method), _names(found)
        raise no_route()


def _placeholders(parts: Sequence[str]) -> dict[int, str]:
    return {place: part[1:-1] for place, part in enumerate(parts) if part[:1] == "{"}


def _choose(methods: dict[str, Operation], wanted: str, method: str) -> Operation:
    if wanted not in methods:
        allowed = [*methods, *(["HEAD"] if "GET" in methods else [])]
        raise wrong_method(method, sorted(allowed))
    return methods[wanted]


def _names(given: dict[str, str]) -> dict[str, str]:
    try:
        names = {name: unquote(value, errors="strict") for name, value in given.items()}
    except UnicodeDecodeError:
        raise InvalidRequest("The path is not UTF-8. Encode it as UTF-8 before escaping it.") from None
    if any(len(name) > MAX_NAME_CHARS or "\0" in name for name in names.values()):
        raise InvalidRequest(f"A name in the path may have at most {MAX_NAME_CHARS} characters, and no null.")
    return names
