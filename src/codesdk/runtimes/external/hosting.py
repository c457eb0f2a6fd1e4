"""What the operator names → runtimes in processes of their own: executables by name, and runtimes of this package."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Unpack

import msgspec

from codesdk.contract.entry import EXTERNAL, AdapterOptions
from codesdk.contract.errors import InvalidRequest
from codesdk.runtimes.external.runtime import ExternalRuntime, HostedRuntime
from codesdk.runtimes.program.environment import network_variables
from codesdk.runtimes.program.pinned.folders import VARIABLE as PROGRAMS
from codesdk.runtimes.registry import create_runtime

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,47}")


def external_runtimes(commands: Mapping[str, Sequence[str] | str]) -> dict[str, ExternalRuntime]:
    """Return the runtimes `external:NAME` for commands by name. Raise `InvalidRequest` for one that cannot be."""
    made = [external_runtime(name, command) for name, command in commands.items()]
    return {runtime.name: runtime for runtime in made}


def external_runtime(name: str, command: Sequence[str] | str) -> ExternalRuntime:
    """Return one of them."""
    plain = name.removeprefix(EXTERNAL)
    if not _NAME.fullmatch(plain):
        raise InvalidRequest(
            f"{name[:80]!r} cannot name an external runtime: use up to 48 letters, digits, _ . or -, and begin with a"
            " letter or a digit."
        )
    words = _words(plain, command)
    return ExternalRuntime(EXTERNAL + plain, [_found(words[0]), *map(full_path, words[1:])])


def read_external(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return commands by name from lines like `NAME=COMMAND`, as an operator writes them."""
    found: dict[str, list[str]] = {}
    for line in lines:
        name, separator, command = line.partition("=")
        if not separator:
            raise InvalidRequest(f"{line[:80]!r} is not of the form NAME=COMMAND.")
        if name in found:
            raise InvalidRequest(f"There are two external runtimes {name[:80]}. Give one another name.")
        found[name] = _words(name, command)
    external_runtimes(found)  # refuses names that cannot be
    return found


def hosted_runtime(name: str, **options: Unpack[AdapterOptions]) -> HostedRuntime:
    """Return a runtime of this package that is hosted as a process."""
    unknown = sorted(set(options) - set(AdapterOptions.__annotations__))
    if unknown:
        raise InvalidRequest(
            f"A hosted runtime takes no {', '.join(unknown)}. It takes: {', '.join(AdapterOptions.__annotations__)}."
        )
    described_by = create_runtime(name, **options)
    given = [msgspec.json.encode(options).decode()] if options else []
    argv = [sys.executable, "-m", "codesdk.adapter", described_by.name, *given]
    # It looks for its program, its certificates and its provider as this process would.
    own = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", PROGRAMS) if key in os.environ}
    variables = {**own, **network_variables(), "XDG_DATA_HOME": _data_home()}
    return HostedRuntime(described_by, argv, variables)


def _data_home() -> str:
    return os.environ.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())


def _words(name: str, command: Sequence[str] | str) -> list[str]:
    try:
        words = shlex.split(command) if isinstance(command, str) else [*command]
    except ValueError as error:
        raise InvalidRequest(
            f"The command of {EXTERNAL}{name[:80]} cannot be split into words: {error}."
        ) from None
    if not words or not all(isinstance(word, str) and word and "\0" not in word for word in words):  # pyright: ignore[reportUnnecessaryIsInstance] - an application gives it
        raise InvalidRequest(f"The command of {EXTERNAL}{name[:80]} is empty. Name a program.")
    return words


def _found(program: str) -> str:
    """Return a program by its path, if it is on our own search path. It is never looked for in a workspace."""
    if "/" in program:
        return str(Path(program).absolute())
    folders = [folder for folder in os.get_exec_path() if Path(folder).is_absolute()]
    return shutil.which(program, path=os.pathsep.join(folders)) or program


def full_path(word: str) -> str:
    """Return a word of a command; one that names something from here by its full path: what it starts works elsewhere."""
    path = Path(word)
    try:
        named = path.is_file() or ("/" in word and path.exists())
    except OSError:  # too long for a name
        named = False
    return str(path.absolute()) if named else word
