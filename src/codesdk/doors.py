"""How a package opens its door: the names that others may import, each loaded from its home when first used.

A package's `__init__` imports them under `TYPE_CHECKING`, where type checkers see them; at run time the same
lines say where each name is. Nothing is loaded before it is needed, so that a command that lists sessions does
not wait for the engine.
"""

import gc
from importlib import import_module

# Type checkers know this name without its import, and `typing` would be most of what `import codesdk` loads.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def open_door(package: str, file: str) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Return `__getattr__` and `__dir__` of a package for what its `__init__`, `file`, names."""
    imports = ""

    def read() -> str:
        nonlocal imports
        if not imports:  # read when first asked: whoever only wants the version waits for nothing
            with open(file, encoding="utf-8") as opened:  # noqa: PTH123 - pathlib is not loaded yet
                imports = opened.read().partition("\nif TYPE_CHECKING:\n")[2]
        return imports

    def load(name: str) -> "Any":
        if name == "__all__":
            return _names(read())
        home = _home(read(), name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(_uncollected(home), name)
        # Kept, so that the next use costs no more than any other attribute of a module.
        setattr(import_module(package), name, value)
        return value

    return load, lambda: _names(read())


def _uncollected(module: str) -> "Any":
    """Import a module without a run of the garbage collector.

    Nearly everything that modules make stays, so looking through it again and again, for a tenth of the time that loading
    takes, finds nothing. What was loaded is old from the start: else the next collection would look through all of it.
    """
    if not gc.isenabled():  # as somebody wanted it, or a door further out
        return import_module(module)
    gc.disable()
    try:
        return import_module(module)
    finally:
        if gc.get_freeze_count() == 0:  # else somebody froze something, which must stay so
            gc.freeze()
            gc.unfreeze()
        gc.enable()


# Both read the imports of a door by hand: the module `ast` alone would take as long to load as everything else at
# the start. A name is always written `Name as Name` there, as type checkers want it of what others may import.


def _home(imports: str, name: str) -> str | None:
    """Return the module that a door has a name from."""
    place = imports.find(f" {name} as {name}")
    if place < 0:
        return None
    start = imports.rindex("    from ", 0, place) + len("    from ")
    return imports[start : imports.index(" import ", start)]


def _names(imports: str) -> list[str]:
    """Return all names of a door, sorted."""
    return sorted(rest.partition("\n")[0].partition(",")[0] for rest in imports.split(" as ")[1:])


def load(place: str) -> "Any":
    """Return what `module:name` names. Raise `ImportError`, `AttributeError` or `ValueError` if there is no such thing."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
