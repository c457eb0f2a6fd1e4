"""How a package opens its door: the names that others may import, each loaded from its home when first used.

A package's `__init__` imports them under `TYPE_CHECKING`, where type checkers see them; at run time the same
lines say where each name is. Nothing is loaded before it is needed, so that a command that lists sessions does
not wait for the engine.
"""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

# A door is read as text, since the module `ast` alone would take as long to load as everything else at the start.
_IMPORT = re.compile(r"^    from (\S+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_NAME = re.compile(r"(\w+) as \1\b")


def open_door(package: str, file: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package for what its `__init__`, `file`, names."""
    with open(file, encoding="utf-8") as source:  # noqa: PTH123 - pathlib is not loaded yet
        home_of = _homes(source.read())
    names = sorted(home_of)

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        # Kept, so that the next use costs no more than any other attribute of a module.
        setattr(import_module(package), name, value)
        return value

    return names, load, lambda: names


def _homes(source: str) -> dict[str, str]:
    """Return the names imported under `TYPE_CHECKING`, the only indented imports of a door, and the module of each."""
    return {name: home for home, many, one in _IMPORT.findall(source) for name in _NAME.findall(many or one)}


def load(place: str) -> Any:
    """Return what `module:name` names. Raise `ImportError`, `AttributeError` or `ValueError` if there is no such thing."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
