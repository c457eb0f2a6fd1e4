"""One prompt of a running agent: what it says → the items of a task, and how the task ends.

`adapter` starts the agent and hands the prompt over; `normalize` says what its frames mean.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from codesdk.contract.errors import ErrorCode, ErrorInfo
from codesdk.contract.messages import Message
from codesdk.contract.runtime import Draft, Failed, Finished, Host, Identified, RuntimeItem, ToolReply
from codesdk.contract.tools import ToolIdentity
from codesdk.redaction import Redactor
from codesdk.runtimes.acp.agent import Agent
from codesdk.runtimes.acp.errors import model_error
from codesdk.runtimes.acp.input import prompt_of
from codesdk.runtimes.acp.normalize import cut_off, normalize
from codesdk.runtimes.acp.state import State
from codesdk.runtimes.program.jsonrpc import Frame, Garbage, Gone

INTERRUPT_S = 2.0


class AcpTask:
    """One prompt."""

    def __init__(
        self,
        agent: Agent,
        state: State,
        host: Host,
        forget: Callable[[], None],
        notices: Sequence[RuntimeItem],
    ) -> None:
        self._agent = agent
        self._state = state
        self._host = host
        self._forget = forget
        self._notices = notices
        self._over = asyncio.Event()

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        yield Identified(runtime_session_id=self._agent.session_id, model=self._agent.setup.model)
        for notice in self._notices:
            yield notice
        messages, state = self._agent.connection.messages, self._state
        while True:
            # Most frames are pieces of text that came together: they are taken without a coroutine each.
            message = await messages.get() if messages.empty() else messages.get_nowait()
            if isinstance(message, dict) and "error" not in message:
                items = normalize(state, message)
            else:
                items = await self._meaning(message)
            for item in items:
                if type(item) is not Draft and isinstance(item, Finished | Failed):
                    self._over.set()
                    end = await self._judged(item)
                    if isinstance(end, Failed) and self._is_spent(end.error.code):
                        await self._end()
                    yield end
                    return
                yield item
            if state.answers:
                self._respond()
            if state.violation is not None:
                await self._end()
                yield _violated(state.runtime, state.violation)
                return
            if state.excess is not None:
                await self._end()
                for item in cut_off(state):
                    yield item
                yield _endless(state.runtime, state.excess)
                return

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        """Do nothing: the result goes back through MCP."""

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        """Do nothing: the reason goes back through MCP."""

    async def steer(self, messages: Sequence[Message]) -> None:
        content = await prompt_of(self._agent.setup.row, messages, self._host.read_artifact, whole=False)
        await self._agent.steer(content)

    async def stop(self, reason: str) -> None:
        """Cancel the turn. An agent that ignores this is ended."""
        self._state.stopping = True
        if self._over.is_set():
            return
        await self._agent.cancel()
        try:
            async with asyncio.timeout(INTERRUPT_S):
                await self._over.wait()
        except TimeoutError:
            await self._end()

    async def close(self) -> None:
        """Keep the agent if its turn has ended, else end it: the next task could not tell its frames from these."""
        if not self._over.is_set():
            self._over.set()
            await self._end()

    def _is_spent(self, code: ErrorCode) -> bool:
        """Return whether the agent is of no more use: it keeps a refused login, or has lost the program behind it."""
        return code == "RUNTIME_CRASHED" or (code == "AUTH_FAILED" and self._state.log_in != "")

    async def _end(self) -> None:
        self._forget()
        await self._agent.stop(force=True)

    async def _meaning(self, message: Frame | Garbage | Gone) -> list[RuntimeItem]:
        if isinstance(message, Gone):
            self._forget()
            if self._state.stopping:
                return [*cut_off(self._state), Finished(stop_reason="stopped")]
            error = await self._agent.crash()
            return [*cut_off(self._state), Failed(error=error.info())]
        if isinstance(message, Garbage):
            return [*self._state.signals.garbage(message.size, message.start, self._state.runtime)]
        # Agents quote the address that they asked, with its token.
        frame = Redactor(self._agent.setup.tokens).value(message) if "error" in message else message
        return normalize(self._state, frame)

    async def _judged(self, end: Finished | Failed) -> Finished | Failed:
        """Return how the task ended: what the gateway saw of the last model request goes before the agent's word."""
        if self._state.stopping or (isinstance(end, Failed) and end.error.code == "RUNTIME_CRASHED"):
            return end
        words = end.error.message if isinstance(end, Failed) else ""
        wire = self._agent.setup.row.wire
        seen = model_error(self._state.runtime, wire, await self._host.last_answer(), words)
        return end if seen is None else Failed(error=seen, raw=end.raw)

    def _respond(self) -> None:
        for number, answer in self._state.answers:
            self._agent.connection.respond(number, answer)
        self._state.answers = []


def _endless(runtime: str, what: str) -> Failed:
    message = f"{runtime} {what}, so the task was ended. Divide it into smaller ones."
    return Failed(error=ErrorInfo(code="RUNTIME_PROTOCOL", message=message, retryable=False, runtime=runtime))


def _violated(runtime: str, what: str) -> Failed:
    message = f"{runtime} used something of its own that is switched off ({what}), so the task was ended."
    return Failed(error=ErrorInfo(code="FORBIDDEN", message=message, retryable=False, runtime=runtime))
