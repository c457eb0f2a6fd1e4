"""`RuntimeEntry`: everything that CodeSDK knows about a runtime without loading its adapter.

Each runtime defines one in its folder, and everything else reads it, so that adding a runtime takes one
folder and one line.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from codesdk.contract.capabilities import LoginTraffic
from codesdk.contract.models import InstructionSources, Wire
from codesdk.contract.options import RuntimeOptions
from codesdk.contract.ownership import SideMark, ToolNaming, WireRules

DEFAULT_RUNTIME = "minicode"
"""The runtime of a session that names none: CodeSDK's own agent, which can ask a model in every format."""
EXTERNAL = "external:"
"""The names of runtimes that an operator added, which are executables and have no entry, begin with this."""


WRAPPED = "wrapped"
"""The runtime of a session whose program `codesdk wrap` has started. Nobody can choose it, so it has no entry."""


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


class PythonPackage(msgspec.Struct, frozen=True, kw_only=True, tag="python"):
    """A package of Python that includes a program."""

    name: str
    extra: str
    """Our own extra, which pins that package."""
    bundled: str
    """`module:function` that returns the package's program as a `Program`, or None if it is not installed."""


class NpmPackage(msgspec.Struct, frozen=True, kw_only=True, tag="npm"):
    """A package of npm that is a program. CodeSDK installs it for the user, in a folder of its own, as a lock says."""

    name: str
    lock: str
    """The folder of the lock among ours, which pins all that comes with it. Also what the program is installed by."""
    program: str
    """The file to run, below `node_modules`."""
    node: int | None = None
    """The oldest node that it runs on. None: it is a program by itself."""
    also: tuple[str, ...] = ()
    """Other packages that bring the same program, as people install it who do without us."""
    platforms: tuple[str, ...] = ()
    """Where the pinned one runs, in node's words (`linux-x64`). Empty: wherever node does."""


class PythonTool(msgspec.Struct, frozen=True, kw_only=True, tag="tool"):
    """A package of Python that is a program with needs of its own: it gets a virtual environment to itself."""

    name: str
    lock: str
    """As that of `NpmPackage`."""
    program: str
    """Its script, in the environment's `bin`."""
    python: tuple[int, int]
    """The oldest Python that it runs on."""


class ProgramEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The program that a runtime drives: which version was tested, how it is found, installed and logged in to."""

    command: str
    """Its name on the search path."""
    version: str
    """The version that the tests ran with. Others must be certified: what a program does by itself may change."""
    markers: tuple[str, ...] = ()
    """Files of which one lies at the top of what is installed with it. A package of npm needs none; without one it
    is the program's file alone."""
    source: PythonPackage | NpmPackage | PythonTool
    logins: tuple[LoginTraffic, ...] = ()
    """How the traffic of its own logins may go, the default first. Empty: CodeSDK cannot log in to it."""


class AdapterOptions(TypedDict, total=False):
    """How an adapter is made if not as the registry makes it. No adapter takes all of them."""

    program: str | None
    """The program to drive in place of the installed one."""
    provider: str
    """Whom minicode asks, in place of the first provider for which there is a key."""
    max_retries: int
    """How often a model request is repeated."""


class RuntimeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One runtime. Must be cheap to make: everything heavy is named by an import string."""

    name: str
    """The full name, as events carry it."""
    adapter: str
    """`module:factory` of the adapter."""
    builds_on: tuple[str, ...] = ()
    """Packages of other runtimes that the adapter is made of. A change there voids certificates, as one in its own does."""
    arguments: Mapping[str, Any] = {}
    """What the factory is given: one adapter may drive many agents."""
    ways: Mapping[str, AdapterOptions] = {}
    """Ways to work that the conformance matrix plays apart, each with what the factory is given for it."""
    alias: str | None = None
    docs: str | None = None
    """Its page below `docs/`."""
    program: ProgramEntry | None = None
    """None for a runtime that comes with CodeSDK."""
    wires: tuple[Wire, ...] = ()
    """The formats of its model requests, which decide whose key the gateway needs. Of several, a session uses the one
    that it chooses, or the first for which there is a key. Empty if it sends none."""
    provider: str | None = None
    """Who answers it, by OpenTelemetry's name, unless a request's model says otherwise."""
    options: type[RuntimeOptions] = RuntimeOptions
    """What a session's `runtime_config` may say to it."""
    mcp: McpClient = ANY_CLIENT
    naming: ToolNaming | None = None
    """How its agent is told to call our tools."""
    side: tuple[SideMark, ...] = ()
    """Its model requests that are not part of the conversation."""
    appends: tuple[str, ...] = ()
    """What it may write behind what users said."""
    tells_breaks: bool = False
    """Whether it is told of a stream that breaks off by an error in the stream."""
    instructions: InstructionFiles = InstructionFiles()
    state_folder: str = "state"
    """Its own folder among those that are made for a session."""
    own_tools: Mapping[str, Mapping[str, Any]] = {}
    """Calls of its own tools that would write the file `MARK`. The conformance run checks that none runs."""
    other_tools: tuple[str, ...] = ()
    """The names of its other own tools, those of former versions included. The conformance run calls each."""

    @property
    def wire(self) -> Wire | None:
        """The first of its formats; None if it asks no model through the gateway."""
        return self.wires[0] if self.wires else None

    @property
    def columns(self) -> Mapping[str, AdapterOptions]:
        """Its columns in the conformance matrix, each with what the factory is given for it."""
        return {f"{self.name} ({way})": given for way, given in self.ways.items()} or {self.name: {}}

    @property
    def install(self) -> str:
        """The command that installs the tested version of its program; empty if it comes with CodeSDK."""
        if self.program is None:
            return ""
        if isinstance(self.program.source, PythonPackage):
            return f"pip install 'codesdk[{self.program.source.extra}]'"
        return f"codesdk runtimes install {self.program.source.lock}"

    @property
    def logins(self) -> tuple[LoginTraffic, ...]:
        """How the traffic of its own logins may go, the default first."""
        return () if self.program is None else self.program.logins

    def rules(self, natives: Sequence[str] = ()) -> WireRules:
        """Return how tools are owned in its model requests, given its own tools that a session enabled."""
        return WireRules(
            naming=self.naming,
            side=self.side,
            appends=self.appends,
            tells_breaks=self.tells_breaks,
            natives=tuple(natives),
        )

    def sources(self, home: str, state: str) -> InstructionSources:
        """Return where the runtime may find instructions, given the home and the state folder of a session, if it has them."""
        files = self.instructions
        # An empty path would be the directory that this process happens to be in.
        outside = {label: path for label, path in (("home", home), (self.state_folder, state)) if path}
        return InstructionSources(
            names=(*files.captured, *files.others),
            folders=files.folders,
            outside=outside,
        )


MARK = "written-by-a-native-tool"
