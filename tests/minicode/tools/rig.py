"""A session with its directory, its artifacts and the executor of its tools."""

import re
from pathlib import Path
from typing import Any

import msgspec

from codesdk.minicode.config import SandboxSettings, ToolLimits
from codesdk.minicode.storage import FsArtifactStore
from codesdk.minicode.tools import (
    DirectExecutor,
    Tool,
    builtin_tools,
    find_workspace,
    open_tool_sandbox,
)
from codesdk.minicode.types import ToolCall, ToolOutput

LIMITS = ToolLimits()


class Bench:
    """A directory to work in."""

    def __init__(
        self,
        root: Path,
        limits: ToolLimits = LIMITS,
        settings: SandboxSettings | None = None,
        env: dict[str, str] | None = None,
        tools: list[Tool] | None = None,
    ) -> None:
        self.cwd = root / "project"
        self.cwd.mkdir(exist_ok=True)
        self.artifacts = root / "artifacts"
        store = FsArtifactStore(self.artifacts)
        settings = settings or SandboxSettings()
        workspace = find_workspace(self.cwd)
        built = builtin_tools(
            workspace,
            limits=limits,
            sandbox=open_tool_sandbox(settings),
            settings=settings,
            env={"HOME": str(root), **(env or {})},  # a login shell reads what lies there
            artifacts_dir=str(store.directory_of("ses")),
        )
        self.executor = DirectExecutor(
            [*built, *(tools or [])], session_id="ses", cwd=workspace.path, limits=limits, artifacts=store
        )

    async def use(self, name: str, /, **given: Any) -> ToolOutput:
        """Call a tool. How long a command took is left out of what it says."""
        output = await self.executor.run(ToolCall(id="call_1", name=name, input=given))
        words = re.sub(r"after [\d.]+ s", "after T s", output.output_message)
        return msgspec.structs.replace(output, output_message=words)


def is_alive(pid: int) -> bool:
    """Return whether a process runs. One that ended and that nobody has asked about yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def size_of(path: str) -> int:
    """Return how long a file is."""
    return Path(path).stat().st_size


def said(message: str, details: Any = None) -> ToolOutput:
    """Return the output of a tool that did it."""
    return ToolOutput(ok=True, output_message=message, details=details)


def failed(message: str, details: Any = None) -> ToolOutput:
    """Return the output of a tool that could not do it."""
    return ToolOutput(ok=False, output_message=message, details=details)
