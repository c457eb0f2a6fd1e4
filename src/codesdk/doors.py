"""How a package opens its door: the names that others may import, each loaded from its home when first used.

A package's `__init__` imports them under `TYPE_CHECKING`, where type checkers see them; at run time the same
lines say where each name is. Nothing is loaded before it is needed, so that a command that lists sessions does
not wait for the engine.
"""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def open_door(package: str, file: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package for what its `__init__`, `file`, names."""
    home_of = _homes(Path(file).read_text())
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
    """Return the names imported under `TYPE_CHECKING`, the only `if` of a door, and the module of each."""
    guarded = [line for node in ast.parse(source).body if isinstance(node, ast.If) for line in node.body]
    imports = [line for line in guarded if isinstance(line, ast.ImportFrom)]
    return {alias.name: str(line.module) for line in imports for alias in line.names}


def load(place: str) -> Any:
    """Return what `module:name` names. Raise `ImportError`, `AttributeError` or `ValueError` if there is no such thing."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
