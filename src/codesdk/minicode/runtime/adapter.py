"""The runtime `minicode`: a task → a turn of the loop, with the engine's tools and a model behind the gateway.

It keeps nothing between tasks: its conversation is the session's transcript, which each task brings along.
"""

from collections.abc import Iterable

from codesdk.contract.access import (
    AuthStatus,
    Availability,
    LoginDialog,
    LoginOutcome,
    answering,
    key_status,
)
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.models import STAND_IN, Wire
from codesdk.contract.options import read_options
from codesdk.contract.runtime import Host, RuntimeEnv, RuntimeTask, TaskInput
from codesdk.minicode.agent import RETRIES, Agent
from codesdk.minicode.models import INSTALL, PROVIDERS, ModelSettings, open_model, what_is_missing
from codesdk.minicode.runtime import ENTRY, NAME, MinicodeOptions
from codesdk.minicode.runtime.task import MinicodeTask
from codesdk.minicode.runtime.tools import EngineTools
from codesdk.minicode.types import ProviderId

INSTRUCTIONS = (
    "You are a coding agent. You work on the files of one workspace, and only through the tools that are offered to"
    " you; paths are relative to that workspace. Look before you change something, and check what you have changed."
    " A tool call may be refused; the reason is in its result. Then go on without it, or say what you would have done."
    " Answer briefly."
)
_KEY_ADVICE = "Check the key that CodeSDK has for the provider: `codesdk runtimes doctor minicode` names it."
_CAPABILITIES = Capabilities(
    input_capture="exact", auth_model="api_key", instruction_files=list(ENTRY.instructions.captured)
)


class MinicodeRuntime:
    """minicode behind the runtime protocol. `provider` is the one that is asked if a session chooses none."""

    def __init__(self, provider: ProviderId | None = None, *, max_retries: int = RETRIES) -> None:
        self._provider: ProviderId | None = provider
        self._max_retries = max_retries

    @property
    def name(self) -> str:
        return NAME

    @property
    def options(self) -> type[MinicodeOptions]:
        return MinicodeOptions

    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def check_available(self, env: RuntimeEnv) -> Availability:
        """Return whether the libraries are there: of the kinds of providers that would answer, or of all if none would."""
        asked: Iterable[ProviderId] = [p for p, family in PROVIDERS.items() if family.wire in env.models]
        if self._provider is not None:
            asked = [self._provider]
        problem = what_is_missing(asked or PROVIDERS)
        if problem is None:
            return Availability(ok=True)
        return Availability(ok=False, problem=problem, to_do=f"Run: {INSTALL}.")

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        """Return whether a model would answer, in any of the four formats."""
        return key_status(ENTRY.wires, env.models, env.payer)

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        raise InvalidRequest(f"{NAME} has no login of its own: its models come through the gateway.")

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        options = read_options(MinicodeOptions, task.runtime_config, NAME)
        provider = choose_provider(options.provider or self._provider, task.env)
        family = PROVIDERS[provider]
        url = await host.model_endpoint(ENTRY.sources("", ""), None, ENTRY.rules())
        settings = ModelSettings(
            provider=provider,
            model=task.model or family.models[0],
            key=STAND_IN,
            base_url=url + family.path,
            effort=options.effort,
            max_output_tokens=options.max_output_tokens,
            direct=True,
            key_advice=_KEY_ADVICE,
        )
        model = await open_model(settings, host.read_artifact)
        agent = Agent(
            model=model,
            tools=EngineTools(task.tools),
            instructions="\n\n".join(
                (options.system_prompt or INSTRUCTIONS, *(file.framed for file in task.instructions))
            ),
            max_steps=options.max_steps,
            retries=self._max_retries,
            context_tokens=options.context_tokens or settings.context_tokens,
        )
        return MinicodeTask(agent, model, host, task)

    async def close_session(self, session_id: str) -> None:
        """Do nothing: nothing is kept."""


def choose_provider(wanted: ProviderId | None, env: RuntimeEnv) -> ProviderId:
    """Return the kind of provider that is asked: the one that is wanted, or the first that would answer."""
    usable: dict[Wire, ProviderId] = {
        family.wire: provider for provider, family in PROVIDERS.items() if family.wire in env.models
    }
    wires = ENTRY.wires if wanted is None else (PROVIDERS[wanted].wire,)
    wire = answering(wires, env.models)
    if wire is None:
        status = key_status(wires, env.models, env.payer)
        raise CodeSDKError(f"{status.problem} {status.to_do}", code="AUTH_REQUIRED", runtime=NAME)
    return usable[wire]
