"""The runtimes that this process has where nobody else runs the sessions: those of the package, and the operator's executables.

The operator names executables as `codesdkd` reads it: on the command line, else in the file. Logins are switched on
in the environment, else in the file; either allows untested programs. What is listed as ready and what runs are so
decided in one place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from codesdk.cli.options import allows_untested
from codesdk.cli.settings.file import find
from codesdk.cli.settings.resolved import resolve
from codesdk.cli.settings.table import DAEMON
from codesdk.cli.settings.use import external, logins
from codesdk.contract.access import LoginTraffic
from codesdk.contract.entry import EXTERNAL
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.runtime import Runtime
from codesdk.runtimes import create_runtime, external_runtime, logins_from, runtime_names


class RuntimesHere(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says of runtimes."""

    commands: Mapping[str, Sequence[str]] = {}
    """Executables, by name."""
    logins: Mapping[str, LoginTraffic] = {}
    allow_untested: bool = False

    @classmethod
    def of_command(cls) -> "RuntimesHere":
        """Return what counts for the command that is being run."""
        settings = resolve(DAEMON, click.get_current_context(), find(None))
        return cls(
            commands=external(settings),
            logins=logins_from() or logins(settings),
            allow_untested=settings["allow_untested"] or allows_untested(),
        )

    def opening(self) -> dict[str, Any]:
        """Return arguments to open an engine with."""
        return {
            "external": self.commands,
            "logins": tuple(f"{name}={traffic}" for name, traffic in self.logins.items()),
            "allow_untested": self.allow_untested,
        }

    def names(self) -> list[str]:
        """Return the names of all runtimes."""
        return [*runtime_names(), *(EXTERNAL + name for name in self.commands)]

    async def find(self, name: str) -> Runtime:
        """Return a runtime. An executable has said by then what it is; if it does not, its own answers say why."""
        if not name.startswith(EXTERNAL):
            return create_runtime(name)
        plain = name.removeprefix(EXTERNAL)
        if plain not in self.commands:
            raise InvalidRequest(
                f"There is no runtime {name} here. Name its command: --external {plain}=COMMAND, or `external` in the"
                " operator's codesdk.toml."
            )
        runtime = external_runtime(plain, self.commands[plain])
        await runtime.introduce()
        return runtime
