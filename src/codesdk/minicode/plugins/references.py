"""A reference, as the configuration has it → a canonical one → the factory that it leads to.

A reference is the name of an entry point of the group `minicode.plugins`, the name of a module, or a `file:///` URL of
a module or of a package's directory. Nothing is taken from the working directory by name: whatever lies there may be
a stranger's.
"""

import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from codesdk import foreign
from codesdk.minicode.plugins.types import PluginError

GROUP = "minicode.plugins"
FACTORY = "plugin"
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def normalize(reference: str) -> str:
    """Return a reference in its canonical form. Raise `PluginError`."""
    plain = reference.strip()
    if not plain.lower().startswith("file:"):
        if not _NAME.fullmatch(plain):
            raise PluginError(
                "normalize",
                reference,
                "a reference is the name of an installed plugin, the name of a module, or a file:/// URL",
            )
        return plain
    parts = urlsplit(plain)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise PluginError(
            "normalize", reference, "a file URL is absolute and names no host, like file:///home/me/plugin"
        )
    if parts.query or parts.fragment or "\0" in path:
        raise PluginError("normalize", reference, "a file URL ends with its path")
    return Path(path).resolve().as_uri()


def find_factory(reference: str, untrusted: Sequence[Path]) -> Any:
    """Return what a canonical reference names as its factory. Raise `PluginError`.

    Modules that would come directly from an `untrusted` directory are not imported by name.
    """
    try:
        with foreign.Contained():
            return _find(reference, untrusted)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError("import", reference, foreign.name_of(error)) from error


def _find(reference: str, untrusted: Sequence[Path]) -> Any:
    if reference.startswith("file:"):
        return _factory_in(reference, _import_file(reference))
    entry = _entry_point(reference, untrusted)
    if entry is None:
        return _factory_in(reference, _import_name(reference, reference, untrusted))
    found: Any = _import_name(reference, entry.module, untrusted)
    for name in (entry.attr or FACTORY).split("."):
        if not hasattr(found, name):
            raise PluginError("import", reference, f"its entry point {entry.value} does not lead anywhere")
        found = getattr(found, name)
    return found


def _entry_point(reference: str, untrusted: Sequence[Path]) -> importlib.metadata.EntryPoint | None:
    """Return the entry point of a name, from what is installed. Two of them are an error, not a choice."""
    path = [entry for entry in sys.path if Path(entry or ".").resolve() not in untrusted]
    found: dict[str, importlib.metadata.EntryPoint] = {}
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions(path=path):
        name = str(distribution.name or "")
        if name in seen:  # the same distribution again, further back on the path
            continue
        seen.add(name)
        for entry in distribution.entry_points:
            if entry.group == GROUP and entry.name == reference:
                found[name] = entry
    if len(found) > 1:
        raise PluginError(
            "import", reference, f"several packages have a plugin of this name: {', '.join(sorted(found))}"
        )
    return next(iter(found.values()), None)


def _import_name(reference: str, module: str, untrusted: Sequence[Path]) -> ModuleType:
    if not _MODULE.fullmatch(module):
        raise PluginError(
            "import", reference, "no installed package has a plugin of this name. Install it first"
        )
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise PluginError("import", reference, f"there is no plugin and no module {top}. Install it first")
    for place in _places(spec):
        if place in untrusted:
            raise PluginError(
                "import",
                reference,
                f"the module {top} would come from the working directory, where anybody may have put it. If it is"
                f" yours, name it with a file:/// URL",
            )
    return importlib.import_module(module)


def _places(spec: importlib.machinery.ModuleSpec) -> list[Path]:
    """Return the directories that a module or package lies in."""
    files = [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    found = [Path(file).resolve() for file in files]
    return [path.parent.parent if path.name == "__init__.py" else path.parent for path in found]


def _import_file(reference: str) -> ModuleType:
    path = Path(unquote(urlsplit(reference).path))
    is_package = path.is_dir()
    source = path / "__init__.py" if is_package else path
    if not source.is_file():
        raise PluginError(
            "import",
            reference,
            "the directory has no __init__.py" if is_package else "there is no such file or directory",
        )
    # A name that no other module has, by which its own modules can refer to each other.
    name = f"minicode_plugin_{hashlib.sha256(reference.encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(
        name, source, submodule_search_locations=[str(path)] if is_package else None
    )
    if spec is None or spec.loader is None:
        raise PluginError("import", reference, "this is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        with contextlib.suppress(KeyError):
            del sys.modules[name]
        raise
    return module


def _factory_in(reference: str, module: ModuleType) -> Any:
    if not hasattr(module, FACTORY):
        raise PluginError("import", reference, f"the module has no function named {FACTORY}")
    return getattr(module, FACTORY)
