"""Runtime adapters: the registry, what all programs have in common (`program`), and one folder for each runtime."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.runtimes.program.environment import (
        clean_session as clean_session,
        forget_session as forget_session,
        session_folders as session_folders,
    )
    from codesdk.runtimes.program.process import (
        has_namespaces as has_namespaces,
    )
    from codesdk.runtimes.program.programs import (
        PROGRAMS as PROGRAMS,
        find as find,
        install_command as install_command,
    )
    from codesdk.runtimes.program.sweep import (
        sweep as sweep,
    )
    from codesdk.runtimes.program.versions import (
        Pin as Pin,
    )
    from codesdk.runtimes.registry import (
        ALIASES as ALIASES,
        PINS as PINS,
        RUNTIMES as RUNTIMES,
        create_runtime as create_runtime,
        resolve as resolve,
        runtime_names as runtime_names,
    )
    from codesdk.runtimes.scripted.adapter import (
        ScriptedRuntime as ScriptedRuntime,
    )

__all__, __getattr__, __dir__ = open_door(
    __name__,
    {
        ".program.environment": (
            "clean_session",
            "forget_session",
            "session_folders",
        ),
        ".program.process": ("has_namespaces",),
        ".program.programs": (
            "PROGRAMS",
            "find",
            "install_command",
        ),
        ".program.sweep": ("sweep",),
        ".program.versions": ("Pin",),
        ".registry": (
            "ALIASES",
            "PINS",
            "RUNTIMES",
            "create_runtime",
            "resolve",
            "runtime_names",
        ),
        ".scripted.adapter": ("ScriptedRuntime",),
    },
)
