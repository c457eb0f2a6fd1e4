"""An adapter that keeps to the protocol: all that a runtime can do goes over the wire, in both directions."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp.client.client import Client
from tests.runtimes.external.adapters import python_adapter
from tests.runtimes.external.memory import piped

from codesdk import CodeSDK, adapter
from codesdk.contract.access import AuthStatus, LoginDialog, LoginOutcome, LoginPrompt
from codesdk.contract.capabilities import Capabilities, Isolation
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.messages import Message, text_of
from codesdk.contract.models import InstructionSources, ModelAccess
from codesdk.contract.ownership import WireRules
from codesdk.contract.runtime import HistoryLost, Host, Identified, RuntimeEnv, RuntimeItem, TaskInput
from codesdk.contract.settings import SessionSettings
from codesdk.contract.tools import Question
from codesdk.runtimes.external.hosting import hosted_runtime
from codesdk.runtimes.external.messages import WINDOW
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, FakeTask, call, delta, done, memory_sdk, message

ENV = RuntimeEnv(
    cwd="/",
    env={},
    credential_namespace="ada",
    isolation=Isolation(level="ephemeral", mode="subprocess"),
    login="through",
)


async def says(play: Any, words: str = "Go.", **session: Any) -> str:
    """Return what a task of a runtime behind the protocol says."""
    async with piped(FakeRuntime(play)) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        made = await sdk.create_session(runtime=runtime.name, **session)
        return (await (await made.start(words)).result()).text


# --- what a task may ask for ----------------------------------------------------------------------


async def test_a_task_is_given_its_model_and_its_tools():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        sources = InstructionSources(names=("AGENTS.md",))
        model, tools = await task.host.model_endpoint(sources), await task.host.tool_endpoint()
        again = await task.host.model_endpoint(sources)
        yield message(
            f"{model.startswith('http://127.0.0.1')} {tools.startswith('http://')} {again == model}"
        )
        yield done()

    assert await says(play) == "True True True"


async def test_rules_that_leave_tools_in_model_requests_need_a_session_that_enabled_some():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        try:
            await task.host.model_endpoint(rules=WireRules(natives=("web_search",)))
        except CodeSDKError as error:
            yield message(f"{error.code}: {error.message}")
        yield done()

    told = await says(play)
    assert told.startswith("FORBIDDEN: The session enabled no tools of the runtime's own, so web_search")


async def test_a_runtime_learns_when_its_tools_were_read_and_how_its_model_answered():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        host = task.host
        url, before = await host.tool_endpoint(), await host.tools_read()
        waiting = asyncio.create_task(host.tools_read(before))
        async with Client(url, mode="legacy") as client:
            await client.list_tools()
        none = await host.last_answer()
        async with httpx2.AsyncClient() as http:
            await http.post(f"{await host.model_endpoint()}/v1/messages", json=asked)
        answer = await host.last_answer()
        assert answer is not None
        yield message(f"{await waiting > before} {none} {answer.http_status} {answer.error}")
        yield done()

    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go"}]}
    plays = parse_object(
        {"turns": [{"steps": [{"http": {"status": 401, "message": "No such key."}}]}]}, "a test"
    )
    async with (
        piped(FakeRuntime(play, capabilities=Capabilities(input_capture="exact"))) as runtime,
        CodeSDK.open(runtimes={runtime.name: runtime}, providers={}) as sdk,
    ):
        session = await sdk.create_session(runtime=runtime.name, plays=plays)
        told = (await (await session.start("Go.")).result()).text
    assert told.startswith("True None 401 ")
    assert "No such key." in told


async def test_artifacts_are_stored_and_read_over_the_wire():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        data = bytes(range(256)) * 1000
        ref = await task.host.put_artifact(data, "application/octet-stream", "all")
        same = await task.host.read_artifact(ref.artifact_id) == data
        try:
            await task.host.read_artifact("art_none")
        except CodeSDKError as error:
            yield message(f"{same} {error.code}")
        yield done()

    assert await says(play) == "True NOT_FOUND"


async def test_a_runtime_asks_before_it_runs_a_tool_of_its_own():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        announced = call("own.run", {"command": "ls"}, origin="native")
        yield announced
        yield message(str((await task.host.may_run(announced)).denied is None))
        yield done()

    assert await says(play, interaction_mode="non_interactive") == "False"


async def test_a_person_answers_a_question_of_the_runtime():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        asked = call("own.ask", {"question": "Left?"}, origin="native")
        reply = await task.host.ask_user(asked, Question(text="Left?"))
        yield message(f"{reply.result} {reply.is_error}")
        yield done()

    async with piped(FakeRuntime(play)) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        task = await (await sdk.create_session(runtime=runtime.name)).start("Go.")
        async for event in task.events():
            if event.type == "approval.requested":
                await task.answer(event.payload.approval_id, "Right.")
        assert (await task.result()).text == "Right. False"


async def test_a_question_that_the_runtime_gives_up_is_withdrawn():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        asking = asyncio.create_task(task.host.may_run(call("own.run", {}, origin="native")))
        await task.until(lambda: bool(task.steered))
        asking.cancel()
        yield message("Never mind.")
        yield done()

    async with piped(FakeRuntime(play)) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        task = await (await sdk.create_session(runtime=runtime.name)).start("Go.")
        async for event in task.events():
            if event.type == "approval.requested":
                await task.steer("Forget it.")
        assert (await task.result()).text == "Never mind."
        assert await sdk.approvals() == []


async def test_what_is_learned_is_redacted_in_the_item_that_follows():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        task.host.learn(["tok-0123456789abcdef"])
        yield message("It is tok-0123456789abcdef.")
        yield done()

    told = await says(play)
    assert "tok-0123456789abcdef" not in told
    assert told.startswith("It is ")


# --- what comes in --------------------------------------------------------------------------------


async def test_results_denials_and_steering_reach_the_task():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        yield call("fake.read", {"path": "a"}, "c1")
        yield call("no.such", {}, "c2")
        first, second = await task.reply("c1"), await task.reply("c2")
        await task.until(lambda: bool(task.steered))
        words = text_of(task.steered[0].content)
        yield message(f"{getattr(first, 'is_error', None)} {isinstance(second, str)} {words}")
        yield done()

    async with piped(FakeRuntime(play)) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime=runtime.name, permission_mode="yolo")
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "tool.call.completed":  # before it runs, steering is part of what it is given
                await task.steer("Left.")
        assert (await task.result()).text == "False True Left."


async def test_an_error_at_the_start_is_the_error_of_the_task():
    class Refusing(FakeRuntime):
        async def start_task(self, host: Host, task: TaskInput) -> FakeTask:
            raise InvalidRequest("This model is not known.", runtime="piped")

    async with piped(Refusing()) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        task = await (await sdk.create_session(runtime=runtime.name)).start("Go.")
        with pytest.raises(CodeSDKError, match="This model is not known") as raised:
            await task.result()
    assert raised.value.code == "INVALID_REQUEST"


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, KeyboardInterrupt])
async def test_an_exception_in_a_stream_is_a_crash(kind: type[BaseException]):
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        yield delta("Half")
        raise kind("no disk left")

    async with piped(FakeRuntime(play)) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        task = await (await sdk.create_session(runtime=runtime.name)).start("Go.")
        with pytest.raises(CodeSDKError, match="no disk left") as raised:
            await task.result()
    assert raised.value.code == "RUNTIME_CRASHED"


async def test_what_json_cannot_say_is_noted_and_the_task_goes_on():
    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        yield "not an item"  # pyright: ignore[reportReturnType]
        yield delta("half a \ud800 pair")
        yield message("Hello.")
        yield done()

    async with piped(FakeRuntime(play)) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        task = await (await sdk.create_session(runtime=runtime.name)).start("Go.")
        assert (await task.result()).text == "Hello."
        notices = [event.payload.kind async for event in task.events() if event.type == "runtime.notice"]
        assert notices == ["adapter", "unknown_frame", "unknown_frame"]


# --- history --------------------------------------------------------------------------------------


class Keeping(FakeRuntime):
    """Keeps its own conversations, and may lose one."""

    def __init__(self, loses: bool = False) -> None:
        super().__init__(self.play)
        self.given: list[tuple[str, int]] = []
        self._loses = loses

    async def play(self, task: FakeTask) -> AsyncIterator[RuntimeItem]:
        yield Identified(runtime_session_id="own-1")
        yield message(f"{len(self.given)}", f"m{len(self.given)}")
        yield done()

    async def start_task(self, host: Host, task: TaskInput) -> FakeTask:
        self.given.append((task.history, len(task.messages)))
        if self._loses and task.history == "native":
            raise HistoryLost("it was moved")
        return await super().start_task(host, task)

    async def recall(self, host: Host, task: TaskInput, tail: Sequence[Message]) -> int | None:
        return len(tail)


async def test_a_runtime_that_keeps_its_conversation_is_told_only_what_is_new():
    kept = Keeping()
    async with piped(kept) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime=runtime.name)
        for words in ("One.", "Two."):
            await (await session.start(words)).result()
    assert kept.given == [("given", 1), ("native", 1)]


async def test_a_runtime_that_lost_its_conversation_is_given_the_transcript():
    kept = Keeping(loses=True)
    async with piped(kept) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime=runtime.name)
        for words in ("One.", "Two."):
            await (await session.start(words)).result()
    assert kept.given == [("given", 1), ("native", 1), ("given", 3)]


# --- accounts -------------------------------------------------------------------------------------


class Account(FakeRuntime):
    """A runtime with logins of its own."""

    def __init__(self) -> None:
        super().__init__([message("Hello."), done()], capabilities=Capabilities(login_traffic=["through"]))
        self.code = ""

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        ready = self.code == "1234"
        return AuthStatus(
            ok=ready, logged_in=ready, auth_model="both", problem=None if ready else "Not logged in."
        )

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        await dialog.show(LoginPrompt(message="Open this page.", url="http://127.0.0.1/login"))
        self.code = await dialog.ask(LoginPrompt(message="What does it say?"))
        return LoginOutcome(logged_in=True, account_label=env.credential_namespace)


class Person:
    """Somebody who logs in."""

    def __init__(self, answer: str | None) -> None:
        self.shown: list[str] = []
        self.asked = asyncio.Event()
        self._answer = answer

    async def show(self, prompt: LoginPrompt) -> None:
        self.shown.append(prompt.message)

    async def ask(self, prompt: LoginPrompt) -> str:
        self.shown.append(prompt.message)
        self.asked.set()
        if self._answer is None:
            await asyncio.Event().wait()
        return str(self._answer)


async def test_a_login_is_a_dialog_over_the_wire():
    async with piped(Account()) as runtime:
        before, person = await runtime.auth_status(ENV), Person("1234")
        outcome = await runtime.ensure_login(ENV, person)
        after = await runtime.auth_status(ENV)
    assert person.shown == ["Open this page.", "What does it say?"]
    assert outcome == LoginOutcome(logged_in=True, account_label="ada")
    assert (before.ok, before.problem, after.ok) == (False, "Not logged in.", True)


async def test_a_login_that_the_person_gives_up_ends():
    async with piped(Account()) as runtime:
        person = Person(None)
        logging_in = asyncio.create_task(runtime.ensure_login(ENV, person))
        await person.asked.wait()
        logging_in.cancel()
        with pytest.raises(asyncio.CancelledError):
            await logging_in
        assert not (await runtime.auth_status(ENV)).ok


async def test_a_runtime_without_logins_is_not_asked_whether_there_is_a_key():
    played = {"chat": ModelAccess(kind="key", label="the operator's key")}
    async with piped(FakeRuntime([done()]), wire="chat") as runtime:
        without = await runtime.auth_status(ENV)
        with_key = await runtime.auth_status(msgspec.structs.replace(ENV, models=played))
    assert (without.ok, without.problem) == (False, "There is no key for openai.")
    assert "OPENAI_API_KEY" in (without.to_do or "")
    assert (with_key.ok, with_key.account_label) == (True, "the operator's key")


# --- what it says of itself -----------------------------------------------------------------------


def test_options_that_a_hosted_adapter_does_not_take_are_refused_on_both_sides():
    with pytest.raises(InvalidRequest, match="A hosted runtime takes no script"):
        hosted_runtime("scripted", script=parse_object({"turns": [{"steps": [{"text": "Hi."}]}]}, "here"))  # type: ignore[call-arg]
    with pytest.raises(InvalidRequest, match="unexpected keyword argument 'progarm'"):
        adapter.main(["codex", '{"progarm": "codex"}'])


async def test_options_that_the_adapter_does_not_name_are_refused():
    from codesdk.runtimes.scripted import ScriptedOptions

    async with (
        piped(FakeRuntime([message("Hi."), done()], options=ScriptedOptions)) as runtime,
        memory_sdk(runtimes=[runtime]) as sdk,
    ):
        settings = SessionSettings(runtime_config={"skript": 1})
        with pytest.raises(InvalidRequest, match="It takes script"):
            await sdk.create_session(runtime=runtime.name, settings=settings)


async def test_the_log_says_which_adapter_works_in_a_session_once_for_each_process():
    async with (
        piped(FakeRuntime([message("Hi."), done()]), version="1.2") as runtime,
        memory_sdk(runtimes=[runtime]) as sdk,
    ):
        session = await sdk.create_session(runtime=runtime.name)
        told: list[Any] = []
        for _ in range(2):
            task = await session.start("Go.")
            told += [event.payload async for event in task.events() if event.type == "runtime.notice"]
    details = {"name": "fake", "version": "1.2", "protocol": 1}
    assert [(notice.kind, notice.details) for notice in told] == [("adapter", details)]


async def test_an_adapter_runs_as_a_process_and_its_session_says_so():
    async with piped(FakeRuntime([done()])) as runtime, memory_sdk(runtimes=[runtime]) as sdk:
        session = await sdk.create_session(runtime=runtime.name)
        created = await anext(session.events())
    assert created.type == "session.created"
    assert created.payload.isolation.mode == "subprocess"


# --- back-pressure --------------------------------------------------------------------------------


async def test_an_adapter_sends_no_more_than_the_engine_pulls():
    sent = 0

    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        nonlocal sent
        for _ in range(4 * WINDOW):
            sent += 1
            yield delta("x")
        yield done()

    fake = FakeRuntime(play)
    async with piped(fake) as runtime:
        given = TaskInput(
            session_id="s",
            task_id="t",
            env=ENV,
            messages=[],
            model_messages=0,
            tools=[],
            permission_mode="ask",
            interaction_mode="interactive",
            runtime_config={},
        )
        handle = await runtime.start_task(_NoHost(), given)  # pyright: ignore[reportArgumentType]
        stream, taken = handle.events(), 0
        seen: list[int] = []
        async for _ in stream:
            taken += 1
            seen.append(sent - taken)
        await handle.close()
        await runtime.close_session("s")
    assert taken == 4 * WINDOW + 2  # the end, and a notice of the engine's own
    # One more is made before its turn to be sent comes.
    assert max(seen) <= WINDOW + 1


class _NoHost:
    """Nothing else is asked of it."""

    def app_server(self) -> None:
        """Nobody wants messages of an app server."""


# --- the process ----------------------------------------------------------------------------------

TELLING = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": {}}
    if message["method"] == "initialize":
        answer["result"] = {"protocol_version": 1, "name": "x", "version": "1", "capabilities": {}}
    print(json.dumps(answer), flush=True)
    if message["method"] == "start_task":
        task = message["params"]["task"]["task_id"]
        told = {"env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid(), "argv": sys.argv[1:]}
        content = [{"type": "text", "text": json.dumps(told)}]
        said = {"type": "model.output.completed", "payload": {"message_id": "m", "content": content}}
        for item in (said, {"type": "finished", "stop_reason": "end_turn"}):
            params = {"task_id": task, "item": item}
            print(json.dumps({"jsonrpc": "2.0", "method": "item", "params": params}), flush=True)
"""


async def test_a_process_has_an_environment_of_its_own_private_folders_and_its_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    runtime = python_adapter(TELLING, "a b")
    assert await runtime.introduce() is None
    state, workspace = tmp_path / "state", tmp_path / "workspace"
    workspace.mkdir()
    async with memory_sdk(runtimes=[runtime], state_dir=str(state)) as sdk:
        session = await sdk.create_session(runtime=runtime.name, workspace=workspace)
        told = json.loads((await (await session.start("Go.")).result()).text)
        home = Path(told["env"]["HOME"])
        assert home.is_relative_to(state)
        assert stat.S_IMODE((await asyncio.to_thread(home.stat)).st_mode) == 0o700
        assert Path(told["env"]["CODESDK_LOGIN_DIR"]).is_relative_to(state)
    assert told["cwd"] == str(workspace)
    assert told["argv"] == ['"a b"']
    assert "OPENAI_API_KEY" not in told["env"]
    assert set(told["env"]) <= {
        *("PATH", "LANG", "HOME", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "CODESDK_LOGIN_DIR"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
    }
    assert told["env"]["PATH"] == "/usr/local/bin:/usr/bin:/bin"


async def test_sessions_have_processes_of_their_own():
    runtime = python_adapter(TELLING)
    assert await runtime.introduce() is None
    async with memory_sdk(runtimes=[runtime]) as sdk:
        sessions = [await sdk.create_session(runtime=runtime.name) for _ in range(2)]
        first, second, again = [
            json.loads((await (await session.start("Go.")).result()).text)["env"]["HOME"]
            for session in (sessions[0], sessions[1], sessions[0])
        ]
    assert (first == again, first == second) == (True, False)
    # What was made for a session without a state directory is removed.
    assert not await asyncio.to_thread(Path(first).exists)
