"""A method and a path → the operation, and the names in the path."""

import re
from collections.abc import Iterable
from urllib.parse import unquote

from codesdk.contract.errors import InvalidRequest
from codesdk.daemon.operations.operation import Operation
from codesdk.daemon.problems import no_route, wrong_method

MAX_NAME_CHARS = 512
_NAME = re.compile(r"\{(\w+)\}")


def names_in(path: str) -> list[str]:
    """Return the names of the placeholders in a path of the table."""
    return _NAME.findall(path)


class Router:
    """Finds operations. Paths are matched as they were sent, so an escaped slash stays part of its name."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._plain: dict[str, dict[str, Operation]] = {}
        self._named: dict[re.Pattern[str], dict[str, Operation]] = {}
        for operation in operations:
            if "{" in operation.path:
                pattern = re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(operation.path)))
                self._named.setdefault(pattern, {})[operation.method] = operation
            else:
                self._plain.setdefault(operation.path, {})[operation.method] = operation

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """Return the operation and the names in the path. Raise if there is none. HEAD counts as GET."""
        wanted = "GET" if method == "HEAD" else method
        if path in self._plain:
            return _choose(self._plain[path], wanted, method), {}
        for pattern, methods in self._named.items():
            found = pattern.fullmatch(path)
            if found is not None:
                return _choose(methods, wanted, method), _names(found.groupdict())
        raise no_route()


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
