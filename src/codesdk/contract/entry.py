"""`RuntimeEntry`: everything that CodeSDK knows about a runtime without loading its adapter.

Each runtime defines one in its folder, and everything else reads it, so that adding a runtime takes one
folder and one line.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from codesdk.contract.capabilities import LoginTraffic
from codesdk.contract.models import InstructionSources, Wire
from codesdk.contract.options import RuntimeOptions


class McpClient(msgspec.Struct, frozen=True, kw_only=True):
    """What the MCP host must know about a runtime that gets its tools from it."""

    call_id_key: str = "codesdk/toolCallId"
    """The key in a call's `_meta` under which the runtime sends the id that the model gave the call."""
    tool_meta: Mapping[str, Any] = {}
    """What the runtime expects in the `_meta` of each tool."""


ANY_CLIENT = McpClient()
"""A client about which nothing is known."""


class InstructionFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The names under which a runtime's program looks for instructions, by itself or when allowed to."""

    captured: tuple[str, ...] = ()
    """Those at the top of a workspace that a session may capture."""
    others: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders of a workspace in which it may read every Markdown file."""


class ProgramEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The program that a runtime drives: which version was tested, how it is found, installed and logged in to."""

    command: str
    """Its name on the search path."""
    version: str
    """The version that the tests ran with. Others must be certified: what a program does by itself may change."""
    markers: tuple[str, ...] = ()
    """Files of which one lies at the top of what is installed with it. A package of npm needs none; without one it
    is the program's file alone."""
    package: str
    """The Python package that includes it."""
    extra: str
    """Our own extra, which pins that package."""
    bundled: str
    """`module:function` that returns the package's program as a `Program`, or None if it is not installed."""
    logins: tuple[LoginTraffic, ...] = ()
    """How the traffic of its own logins may go, the default first. Empty: CodeSDK cannot log in to it."""

    @property
    def install(self) -> str:
        """The command that installs the tested version."""
        return f"pip install 'codesdk[{self.extra}]'"


class RuntimeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One runtime. Must be cheap to make: everything heavy is named by an import string."""

    name: str
    """The full name, as events carry it."""
    adapter: str
    """`module:factory` of the adapter."""
    alias: str | None = None
    docs: str | None = None
    """Its page below `docs/`."""
    program: ProgramEntry | None = None
    """None for a runtime that comes with CodeSDK."""
    wire: Wire | None = None
    """The format of its model requests, which decides whose key the gateway needs. None if it sends none."""
    provider: str | None = None
    """Who answers it, by OpenTelemetry's name, unless a request's model says otherwise."""
    options: type[RuntimeOptions] = RuntimeOptions
    """What a session's `runtime_config` may say to it."""
    mcp: McpClient = ANY_CLIENT
    instructions: InstructionFiles = InstructionFiles()
    state_folder: str = "state"
    """Its own folder among those that are made for a session."""
    own_tools: Mapping[str, Mapping[str, Any]] = {}
    """Calls of its own tools that would write the file `MARK`. The conformance run checks that none runs."""

    @property
    def logins(self) -> tuple[LoginTraffic, ...]:
        """How the traffic of its own logins may go, the default first."""
        return () if self.program is None else self.program.logins

    def sources(self, home: str, state: str) -> InstructionSources:
        """Return where the runtime may find instructions, given the home and the state folder of a session."""
        files = self.instructions
        return InstructionSources(
            names=(*files.captured, *files.others),
            folders=files.folders,
            outside={"home": home, self.state_folder: state},
        )


MARK = "written-by-a-native-tool"
