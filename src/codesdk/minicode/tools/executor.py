"""Calls of a model → outputs, by running tools directly: built-in ones, those of plugins, those of an application.

Implements `ToolExecutor` for the loop where no engine stands in between. Whatever a tool does, the outcome is an
output; one that is too long for a model becomes an artifact, with its beginning and end in its place.
"""

import functools
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from codesdk.contract.errors import InvalidRequest
from codesdk.minicode.config.schema import ToolLimits
from codesdk.minicode.deadlines import OutOfTime, within
from codesdk.minicode.tools.define import Tool, ToolContext, failure, is_expected, output_of
from codesdk.minicode.types import ArtifactStore, StoredArtifact, ToolCall, ToolDefinition, ToolOutput

_log = logging.getLogger(__name__)


class DirectExecutor:
    """The tools of one session. Runs every call that names one of them, without asking anybody."""

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        session_id: str,
        cwd: str,
        limits: ToolLimits,
        artifacts: ArtifactStore,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) < len(tools):
            names = [tool.name for tool in tools]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidRequest(f"There are two tools named {twice}. Give one of them another name.")
        self._session_id = session_id
        self._cwd = cwd
        self._limits = limits
        self._artifacts = artifacts

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the tools to offer."""
        return [tool.definition for tool in self._tools.values()]

    def kept_as(self, call: ToolCall) -> str:
        """Return the id by which the transcript knows a call: the model's own."""
        return call.id

    async def run(self, call: ToolCall) -> ToolOutput:
        """Run one call. Must not raise, unless it is cancelled: then the tool is, too."""
        tool = self._tools.get(call.name)
        if tool is None:
            offered = ", ".join(self._tools) or "none"
            return ToolOutput(
                ok=False, output_message=f"There is no tool named {call.name}. The tools are: {offered}."
            )
        return await self._bounded(call.name, await self._outcome(tool, call))

    async def _outcome(self, tool: Tool, call: ToolCall) -> ToolOutput:
        timeout_s = (self._limits.timeout_ms if tool.timeout_ms is None else tool.timeout_ms) / 1000
        try:
            arguments = tool.take(call.input)
            if tool.context is not None:
                arguments[tool.context] = ToolContext(
                    session_id=self._session_id, call_id=call.id, cwd=self._cwd
                )
            work = functools.partial(tool.function, **arguments)
            return output_of(await within(timeout_s, work, f"The tool {tool.name}"))
        except OutOfTime:
            words = f"The tool {tool.name} was stopped: it took more than {timeout_s:g} seconds."
            return ToolOutput(ok=False, output_message=words)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises must not end the turn
            if not is_expected(error):
                _log.warning("The tool %s failed", tool.name, exc_info=error)
            return failure(tool.name, error)

    async def _bounded(self, name: str, output: ToolOutput) -> ToolOutput:
        """Return an output that fits, with the whole of it kept as an artifact."""
        text = output.output_message
        most = self._limits.max_shown_chars
        if len(text) <= most:
            return output
        kept = await self._keep(name, text)
        where = "it could not be kept" if kept is None else f"all of it is in {kept.path}"
        meta: dict[str, Any] = {**(output.meta or {}), "truncated": True}
        if kept is not None:
            meta["artifact"] = msgspec.to_builtins(kept)
        return msgspec.structs.replace(output, output_message=preview(text, most, where), meta=meta)

    async def _keep(self, name: str, text: str) -> StoredArtifact | None:
        try:
            return await self._artifacts.write_text(self._session_id, f"{name}-output", text)
        except Exception:  # noqa: BLE001 - a full disk must not cost the model what it can still be shown
            _log.warning("An output of the tool %s could not be kept", name, exc_info=True)
            return None


def preview(text: str, max_chars: int, where: str) -> str:
    """Return the beginning and the end of a text, with a note in between on what is left out and where it is."""
    head, tail = max_chars // 4, max_chars - max_chars // 4
    left_out = len(text) - head - tail
    return f"{text[:head]}\n… ({left_out} characters left out; {where}) …\n{text[-tail:]}"
