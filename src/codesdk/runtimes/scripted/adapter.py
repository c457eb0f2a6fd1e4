"""The scripted runtime: plays a script in process, without a model. For tests, demos and load.

It keeps no state: a task begins at the turn that the session's count of model messages
points at, so that a session continues where it was after a restart, too.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, cast

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import Message, ToolResult, text_of
from codesdk.contract.options import read_options
from codesdk.contract.runtime import (
    Failed,
    Finished,
    Host,
    Identified,
    RuntimeEnv,
    RuntimeItem,
    RuntimeTask,
    TaskInput,
    ToolReply,
)
from codesdk.contract.tools import ToolIdentity
from codesdk.contract.workspace import Workspace
from codesdk.runtimes.scripted import NAME, ScriptedOptions
from codesdk.runtimes.scripted.turn import (
    AwaitReplies,
    Control,
    Emit,
    End,
    Part,
    TurnPlay,
    failed,
)
from codesdk.sandbox import Beneath, PathRefused
from codesdk.script import MAX_BYTES, Script, ScriptContext, model, parse_object, parse_script, unmet

_CAPABILITIES = Capabilities(supports_artifacts=False, supports_images=False)


class ScriptedRuntime:
    """Plays what `runtime_config["script"]` of a session names or holds; the given script for those without one."""

    def __init__(self, script: Script | None = None) -> None:
        if script is not None:
            _refuse_unplayable(script)
        self._script = script
        self._loaded: dict[str, tuple[Any, Script]] = {}

    @property
    def name(self) -> str:
        return NAME

    @property
    def options(self) -> type[ScriptedOptions]:
        return ScriptedOptions

    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return Availability(ok=True)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return AuthStatus(ok=True, logged_in=False, auth_model="none", account_label="no account needed")

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        return LoginOutcome(logged_in=False, problem="There is no account to log in to.")

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        given = read_options(ScriptedOptions, task.runtime_config, NAME).script
        script = self._script
        if script is None or given is not None:
            script = await self._script_of(task, given)
        return ScriptedTask(script, task)

    async def close_session(self, session_id: str) -> None:
        self._loaded.pop(session_id, None)

    async def _script_of(self, task: TaskInput, given: str | dict[str, Any] | None) -> Script:
        """Return the session's script. It is loaded once: a session does not change its script halfway."""
        known = self._loaded.get(task.session_id)
        if known is not None and known[0] == given:
            return known[1]
        if isinstance(given, str):
            script = await asyncio.to_thread(_load, task.env.workspace, given)
        elif isinstance(given, dict):
            script = await asyncio.to_thread(parse_object, given, 'runtime_config["script"]')
        else:
            raise InvalidRequest(
                'The scripted runtime needs a script: give runtime_config["script"] the path of a script file'
                " in the workspace, or a script as an object.",
                runtime=NAME,
            )
        _refuse_unplayable(script)
        self._loaded[task.session_id] = (given, script)
        return script


class ScriptedTask:
    """One task: plays turns until one has no calls."""

    def __init__(self, script: Script, task: TaskInput) -> None:
        self._script = script
        self._task = task
        self._offered = frozenset(tool.name for tool in task.tools)
        self._user = next((text_of(m.content) for m in reversed(task.messages) if m.role == "user"), None)
        self._results = _results_after_last_answer(task.messages)
        self._replies: dict[str, str] = {}
        self._steered = 0
        self._stopping = False
        self._ignore_stop = False
        self._late_deltas = 0
        self._play: TurnPlay | None = None
        self._closed = False
        self._wake = asyncio.Event()

    async def events(self) -> AsyncGenerator[RuntimeItem, None]:
        """Play. One flat loop, because each layer of generators would slow down a burst."""
        for part in self._parts() if not self._ending else ():
            if isinstance(part, Emit):
                item = part.item
                for _ in range(part.count):
                    yield item
                    if self._ending:
                        break
            elif isinstance(part, End):
                if part.item is not None:
                    yield part.item
                return
            else:
                await self._control(part)
            if self._ending:  # before the next part is made: it may need the replies that now never come
                break
        if self._closed:
            return
        for late in self._late:
            yield late
        yield Finished(stop_reason="stopped", raw={"kind": "stopped"})

    async def send_tool_result(self, call: ToolIdentity, reply: ToolReply) -> None:
        self._reply(call, _readable(reply.result))

    async def send_tool_denied(self, call: ToolIdentity, reason: str) -> None:
        self._reply(call, reason)

    async def steer(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._user = text_of(message.content)
            self._steered += 1
        self._wake.set()

    async def stop(self, reason: str) -> None:
        self._stopping = True
        self._wake.set()

    async def close(self) -> None:
        self._closed = True
        self._wake.set()

    @property
    def _late(self) -> Iterator[RuntimeItem]:
        """What comes after a stop although it should not."""
        return repeat(self._play.late_delta(), self._late_deltas) if self._play else iter(())

    @property
    def _ending(self) -> bool:
        return self._closed or (self._stopping and not self._ignore_stop)

    def _parts(self) -> Iterator[Part]:
        """Yield what there is to do, turn by turn. A turn is opened when all calls of the one before are answered."""
        task, number = self._task, self._task.model_messages
        yield Emit(Identified(runtime_session_id=f"{NAME}-{task.session_id}", model=task.model))
        while True:
            play = self._open(number)
            if isinstance(play, Failed):
                yield End(play)
                return
            self._play = play
            yield from play.parts()
            if not play.call_ids:
                yield End(Finished(stop_reason=play.turn.effective_stop_reason, raw={"turn": number}))
                return
            yield AwaitReplies(play.call_ids)
            self._results = [self._replies[call_id] for call_id in play.call_ids]
            number += 1

    def _open(self, number: int) -> TurnPlay | Failed:
        """Return the turn to play as answer `number`, or why there is none."""
        turn = self._script.turn(number)
        if turn is None:
            count = len(self._script.turns)
            has = "1 turn" if count == 1 else f"{count} turns"
            message = (
                f"The script has {has}, but turn {number + 1} was asked for. Add turns, or set loop: true."
            )
            return failed("RUNTIME_PROTOCOL", message, {"turn": number, "kind": "no_turn"})
        seen = ScriptContext(user=self._user, results=self._results, offered=self._offered)
        problem = None if turn.expect is None else unmet(turn.expect, seen)
        if problem is not None:
            message = f"Turn {number + 1} of the script: {problem}."
            return failed("INVALID_REQUEST", message, {"turn": number, "kind": "expect"})
        return TurnPlay(turn, self._task.task_id, number, self._task.model)

    async def _control(self, step: Control) -> None:
        """Do what a step asks of the driver."""
        match step:
            case AwaitReplies():
                await self._wait(lambda: self._replies.keys() >= set(step.call_ids))
            case model.DelayStep():
                await self._delay(step.seconds)
            case model.AwaitSteerStep():
                await self._wait(lambda: self._steered > 0)
                self._steered -= 1
            case model.StallStep(until="stopped"):
                await self._wait(lambda: self._stopping)
            case model.StallStep():
                self._ignore_stop = True
                await self._wait(lambda: False)
            case model.CrashStep():
                raise RuntimeError("The script made the runtime crash here.")
            case model.LateEventsStep():
                self._late_deltas = step.deltas
            case model.IgnoreStopStep():
                self._ignore_stop = True

    async def _wait(self, done: Callable[[], bool]) -> None:
        """Wait until `done()` is true, or the task ends."""
        while not done() and not self._ending:
            self._wake.clear()
            await self._wake.wait()

    async def _delay(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wait(lambda: False)
        except TimeoutError:
            pass

    def _reply(self, call: ToolIdentity, text: str) -> None:
        if call.runtime_tool_call_id is not None:
            self._replies[call.runtime_tool_call_id] = text
            self._wake.set()


def _load(workspace: Workspace, path: str) -> Script:
    """Return the script in a file of the workspace. Blocking.

    No error quotes the file: whoever names it need not be allowed to read it.
    """
    try:
        with Beneath(workspace) as files:
            text = files.read(path, MAX_BYTES).data.decode("utf-8-sig")
        return parse_script(text, path)
    except PathRefused as error:
        raise InvalidRequest(f'The script "{path[:200]}" cannot be read: {error}.', runtime=NAME) from None
    except (UnicodeDecodeError, InvalidRequest):
        raise InvalidRequest(
            f'"{path[:200]}" is not a valid script. `codesdk run --script FILE` names what is wrong, and where.',
            runtime=NAME,
        ) from None


def _refuse_unplayable(script: Script) -> None:
    """Raise if the script has faults that only a model endpoint can have."""
    refused = cast("tuple[type, ...]", model.GatewayOnlyStep.__args__)
    found = [
        f"turns[{number}].steps[{place}].{model.key_of(step)}"
        for number, turn in enumerate(script.turns)
        for place, step in enumerate(turn.steps)
        if isinstance(step, refused)
    ]
    if found:
        raise InvalidRequest(
            f"The scripted runtime cannot play {', '.join(found[:5])}: these faults belong to a model endpoint."
            " Play this script through the model gateway, or take them out.",
            runtime=NAME,
        )


def _results_after_last_answer(messages: Sequence[Message]) -> list[str]:
    results: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        results += [_readable(b.result) for b in reversed(message.content) if isinstance(b, ToolResult)]
    return results[::-1]


def _readable(result: Any) -> str:
    """Return a tool's result as the text that expectations look at: itself, or its JSON."""
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()
