"""A runtime under test, started once → the environment of many cells, played one after the other.

The counterpart of `bench`, whose `Bench` is the environment of one cell.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from codesdk.contract.settings import SessionSettings
from codesdk.contract.tools import InteractionMode, PermissionMode
from codesdk.script import Script
from codesdk.sdk import CodeSDK, Session
from codesdk.testing.bench import SETTINGS, Bench, MakeRuntime, Scenario


class SharedBench(Bench):
    """The environment of many cells: one SDK, and a session with a started agent for each combination of modes.

    To start an agent takes seconds, and most cells do not care what was said before in their session. Some agents
    are started again for another mode. A cell that asks for any other kind of session gets one of its own.
    """

    def __init__(self, make: MakeRuntime) -> None:
        super().__init__(make, Scenario(name="shared", script=Script(turns=())))
        self._open = AsyncExitStack()
        self._sdk: CodeSDK | None = None
        self._sessions: dict[tuple[PermissionMode, InteractionMode], Session] = {}

    def begin(self, scenario: Scenario) -> None:
        """Make ready for the next cell."""
        self.tools.reset()
        self._scenario = scenario
        if self.model is not None:
            self.model.play(scenario.model or scenario.script)

    @asynccontextmanager
    async def sdk(self) -> AsyncGenerator[CodeSDK]:
        """Give the one SDK, which stays open."""
        if self._sdk is None:
            self._sdk = await self._open.enter_async_context(super().sdk())
        yield self._sdk

    async def session(
        self,
        sdk: CodeSDK,
        mode: PermissionMode = "ask",
        interaction: InteractionMode = "interactive",
        *,
        scripted: bool = True,
        settings: SessionSettings = SETTINGS,
        native_tools: Sequence[str] = (),
    ) -> Session:
        """Give the session of these modes, with its settings as if it were new."""
        known = self._sessions.get((mode, interaction))
        usual = scripted and settings == SETTINGS and not native_tools
        if usual and known is not None:
            await known.set(approval_timeout_s=SETTINGS.approval_timeout_s)
            return known
        made = await super().session(
            sdk, mode, interaction, scripted=scripted, settings=settings, native_tools=native_tools
        )
        if usual:
            self._sessions[mode, interaction] = made
        return made

    async def aclose(self) -> None:
        """End the agent and the SDK."""
        await self._open.aclose()
        self.discard()
