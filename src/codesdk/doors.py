"""How a package opens its door: the names that others may import, each loaded from its home when first used.

A package's `__init__` names them twice, for type checkers under `TYPE_CHECKING` and here for programs; a test
compares the two. Nothing is loaded before it is needed, so that a command that lists sessions does not wait
for the engine.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def open_door(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__all__`, `__getattr__` and `__dir__` for names by the module that has them.

    Module names are relative to the package: `.engine`.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    names = sorted(home_of)

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home, package), name)
        # Kept, so that the next use costs no more than any other attribute of a module.
        setattr(import_module(package), name, value)
        return value

    return names, load, lambda: names


def load(place: str) -> Any:
    """Return what `module:name` names. Raise `ImportError`, `AttributeError` or `ValueError` if there is no such thing."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
