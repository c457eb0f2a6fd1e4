"""How a package opens its door: the names that others may import, each loaded from its home when first used.

A package's `__init__` imports them under `TYPE_CHECKING`, where type checkers see them; at run time the same
lines say where each name is. Nothing is loaded before it is needed, so that a command that lists sessions does
not wait for the engine.
"""

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def open_door(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package for what its `__init__`, `file`, names."""
    home_of: dict[str, str] = {}

    def homes() -> dict[str, str]:
        if not home_of:  # read when first asked: whoever only wants the version waits for nothing
            home_of.update(_read(file))
        return home_of

    def load(name: str) -> Any:
        if name == "__all__":
            return sorted(homes())
        home = homes().get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with _uncollected():
            value = getattr(import_module(home), name)
        # Kept, so that the next use costs no more than any other attribute of a module.
        setattr(import_module(package), name, value)
        return value

    return load, lambda: sorted(homes())


@contextmanager
def _uncollected() -> Generator[None]:
    """Keep the garbage collector from running while modules load.

    Nearly everything that they make stays, so looking through it again and again, for a tenth of the time that loading
    takes, finds nothing. What was loaded is old from the start: else the next collection would look through all of it.
    """
    if not gc.isenabled():  # as somebody wanted it, or a door further out
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:  # else somebody froze something, which must stay so
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def _read(file: str) -> dict[str, str]:
    """Return the names imported under `TYPE_CHECKING`, the only indented imports of a door, and the module of each."""
    # As text and by hand, since the module `ast` alone would take as long to load as everything else at the start.
    found: dict[str, str] = {}
    home = ""
    with open(file, encoding="utf-8") as source:  # noqa: PTH123 - pathlib is not loaded yet
        for line in source:
            if line.startswith("    from "):
                home, _, line = line[len("    from ") :].partition(" import ")
            if home and line.strip():
                names = [entry.split(" as ") for entry in line.strip(" (),\n").split(",")]
                found |= {pair[0].strip(): home for pair in names if len(pair) == 2}
                home = "" if line[0] not in " (" else home
    return found


def load(place: str) -> Any:
    """Return what `module:name` names. Raise `ImportError`, `AttributeError` or `ValueError` if there is no such thing."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
