"""Names and aliases of runtimes → their entries, and runtimes made from these.

An entry is cheap; an adapter is loaded only when its runtime is created.
"""

import difflib
from importlib import import_module
from typing import Any

from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.runtime import Runtime
from codesdk.doors import load

RUNTIMES: tuple[str, ...] = (
    "codesdk.runtimes.claude",
    "codesdk.runtimes.codex",
    "codesdk.runtimes.scripted",
)
"""The packages of all runtimes of this version. Each has an `ENTRY`; nothing else has to be told of a new one."""


def entries() -> dict[str, RuntimeEntry]:
    """Return the entries of all runtimes by full name, sorted."""
    found: list[RuntimeEntry] = [import_module(package).ENTRY for package in RUNTIMES]
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)}


def runtime_names() -> list[str]:
    """Return the full names of all runtimes, sorted."""
    return list(entries())


def entry_of(name: str) -> RuntimeEntry:
    """Return the entry for a name or alias. Raise `InvalidRequest` if this version has no such runtime."""
    known = entries()
    by_name = known | {entry.alias: entry for entry in known.values() if entry.alias is not None}
    if name in by_name:
        return by_name[name]
    # Aliases count as well: most typing errors are made in short names.
    close = difflib.get_close_matches(name, by_name, n=1)
    meant = f' Did you mean "{close[0]}"?' if close else ""
    raise InvalidRequest(f'There is no runtime "{name}".{meant} Available: {", ".join(known)}.')


def resolve(name: str) -> str:
    """Return the full name for a name or alias. Raise `InvalidRequest` if this version has no such runtime."""
    return entry_of(name).name


def create_runtime(name: str, **options: Any) -> Runtime:
    """Load the adapter of a name or alias and create it. Raise `InvalidRequest` if there is no such runtime."""
    runtime: Runtime = load(entry_of(name).adapter)(**options)
    return runtime


def runtime_table() -> str:
    """Return the table of all runtimes for the documentation, as Markdown."""
    lines = ["| runtime | short | program, as tested | installed by | model format | instruction file |"]
    lines.append("|---|---|---|---|---|---|")
    for entry in entries().values():
        program = entry.program
        cells = (
            f"[`{entry.name}`]({entry.docs})" if entry.docs else f"`{entry.name}`",
            f"`{entry.alias}`" if entry.alias else "",
            f"{program.command} {program.version}" if program else "none: built in",
            f"`codesdk[{program.extra}]`" if program else "",
            entry.wire or "",
            ", ".join(f"`{name}`" for name in entry.instructions.captured),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
