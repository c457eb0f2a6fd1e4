"""Names and aliases of runtimes → their entries, and runtimes made from these.

An entry is cheap; an adapter is loaded only when its runtime is created. No entry is loaded before a name is looked
up: a daemon at rest knows none.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

from codesdk.contract.entry import (
    EXTERNAL,
    WRAPPED,
    AdapterOptions,
    NpmPackage,
    ProgramEntry,
    PythonTool,
    RuntimeEntry,
)
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.runtime import Runtime
from codesdk.contract.validation import check_options
from codesdk.doors import load

if TYPE_CHECKING:
    from codesdk.script import Script

RUNTIMES: tuple[str, ...] = (
    "codesdk.runtimes.acp",
    "codesdk.runtimes.claude",
    "codesdk.runtimes.codex",
    "codesdk.runtimes.opencode",
    "codesdk.runtimes.gemini",
    "codesdk.runtimes.scripted",
    "codesdk.minicode.runtime",
)
"""The packages of all runtimes of this version. Each has an `ENTRY`, or `ENTRIES`; nothing else has to be told of a new one."""


def entries() -> dict[str, RuntimeEntry]:
    """Return the entries of all runtimes by full name, sorted: those of this version, and the operator's agents."""
    from codesdk.runtimes.acp.own import own_entries

    return _by_name([*_shipped(), *own_entries()])


def _shipped() -> list[RuntimeEntry]:
    return [entry for package in RUNTIMES for entry in _entries_in(package)]


def _by_name(found: Sequence[RuntimeEntry]) -> dict[str, RuntimeEntry]:
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)}


def _entries_in(package: str) -> Sequence[RuntimeEntry]:
    module: Any = import_module(package)
    several: Sequence[RuntimeEntry] | None = getattr(module, "ENTRIES", None)
    return [module.ENTRY] if several is None else several


def runtime_names() -> list[str]:
    """Return the full names of all runtimes, sorted."""
    return list(entries())


def entry_of(name: str) -> RuntimeEntry:
    """Return the entry for a name or alias. Raise `InvalidRequest` if this version has no such runtime."""
    known = entries()
    by_name = known | {entry.alias: entry for entry in known.values() if entry.alias is not None}
    if name in by_name:
        return by_name[name]
    raise _unknown(name, by_name, known)


def _unknown(name: str, by_name: Iterable[str], known: Iterable[str]) -> InvalidRequest:
    """Return what to say of a name that is not there. Raise why if it is that of an unreadable agent."""
    import difflib

    from codesdk.runtimes.acp import PREFIX
    from codesdk.runtimes.acp.own import own_names, read_own

    own = name.removeprefix(PREFIX)
    if name.startswith(PREFIX) and own in own_names():
        read_own(own)  # says why it is not among them
    # Aliases count as well: most typing errors are made in short names.
    close = difflib.get_close_matches(name, by_name, n=1)
    meant = f' Did you mean "{close[0]}"?' if close else ""
    return InvalidRequest(f'There is no runtime "{name}".{meant} Available: {", ".join(known)}.')


def resolve(name: str) -> str:
    """Return the full name for a name or alias. Raise `InvalidRequest` if this version has no such runtime.

    The names of executables that an operator added are full ones, and so is that of a wrapped program. Whether there
    is one, its engine knows.
    """
    return name if name == WRAPPED or name.startswith(EXTERNAL) else entry_of(name).name


def create_runtime(
    name: str, *, script: "Script | None" = None, **options: Unpack[AdapterOptions]
) -> Runtime:
    """Load the adapter of a name or alias and create it; `script` is what the scripted runtime plays.

    Raise `InvalidRequest` if there is no such runtime, or it takes no such options.
    """
    entry = entry_of(name)
    given: dict[str, Any] = {**options} if script is None else {"script": script, **options}
    make = load(entry.adapter)
    if given:
        refused = f"The runtime {entry.name} cannot be created with these options"
        check_options(make, given, refused, fixed=entry.arguments)
    runtime: Runtime = make(**entry.arguments, **given)
    return runtime


def runtime_table() -> str:
    """Return the table of all runtimes for the documentation, as Markdown."""
    lines = ["| runtime | short | program, as tested | installed by | model format | instruction file |"]
    lines.append("|---|---|---|---|---|---|")
    for entry in _by_name(_shipped()).values():
        program = entry.program
        cells = (
            f"[`{entry.name}`]({entry.docs})" if entry.docs else f"`{entry.name}`",
            f"`{entry.alias}`" if entry.alias else "",
            f"{program.command} {program.version}" if program else "none: built in",
            f"`{entry.install}`" if program else "",
            ", ".join(entry.wires),
            ", ".join(f"`{name}`" for name in entry.instructions.captured),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def program_table() -> str:
    """Return the table of the programs that CodeSDK installs itself for the documentation, as Markdown."""
    from codesdk.runtimes.program.pinned import PROGRAMS

    lines = ["| `codesdk runtimes install …` | version | package | runs on |", "|---|---|---|---|"]
    for name, program in PROGRAMS.items():
        lines.append(f"| `{name}` | {program.version} | {_package(program)} | {_ground(program)} |")
    return "\n".join(lines) + "\n"


def _package(program: ProgramEntry) -> str:
    registry = "npm" if isinstance(program.source, NpmPackage) else "PyPI"
    return f"`{program.source.name}` of {registry}"


def _ground(program: ProgramEntry) -> str:
    """Return what a program runs on."""
    source = program.source
    if isinstance(source, NpmPackage):
        return (
            f"node {source.node} or newer" if source.node else f"{', '.join(source.platforms)}, without node"
        )
    return f"Python {'.'.join(map(str, source.python))} or newer" if isinstance(source, PythonTool) else ""
