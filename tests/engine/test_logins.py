"""Logins as the engine holds them between two requests, and where the state of a session's runtime lives."""

import asyncio
from pathlib import Path

import pytest

from codesdk import CodeSDK, Forbidden, InvalidRequest
from codesdk.contract.access import AuthStatus, LoginDialog, LoginOutcome, LoginPrompt
from codesdk.contract.errors import Conflict, NotFound
from codesdk.contract.events import SessionCreated
from codesdk.contract.runtime import Finished, Host, RuntimeEnv, RuntimeTask, TaskInput
from codesdk.engine import Permits
from codesdk.testing.fakes import FakeRuntime

CODE = LoginPrompt(message="Open the page.", url="https://login.example/device", code="ABCD-1234")
PASTE = LoginPrompt(message="Paste the code from the page.", url="https://login.example/authorize")


class Accounted(FakeRuntime):
    """A runtime with an account: a device code first, then a code to paste. Notes where it was asked to live."""

    def __init__(self) -> None:
        super().__init__([Finished(stop_reason="end_turn")])
        self.seen: list[RuntimeEnv] = []
        self.pasted = ""
        self.cancelled = False

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return AuthStatus(ok=True, logged_in=bool(self.pasted), auth_model="oauth_local")

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        self.seen.append(env)
        try:
            await dialog.show(CODE)
            self.pasted = await dialog.ask(PASTE)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.pasted == "wrong":
            raise ValueError(self.pasted)
        return LoginOutcome(logged_in=True, account_label="max")

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        self.seen.append(task.env)
        return await super().start_task(host, task)


def on(runtime: Accounted, **permits: object) -> Permits:
    return Permits(logins={runtime.name: "beside"}, **permits)  # pyright: ignore[reportArgumentType]


async def test_a_login_waits_for_the_person_between_two_requests(tmp_path: Path) -> None:
    runtime = Accounted()
    async with CodeSDK.open(tmp_path, runtimes={runtime.name: runtime}, permits=on(runtime)) as sdk:
        begun = await sdk.engine.begin_login(runtime.name, "alice")
        logins = sdk.engine.logins
        state = begun if begun.asks else await logins.state(begun.login_id, "alice", 10.0)
        assert (state.prompt, state.asks, state.outcome) == (PASTE, True, None)
        with pytest.raises(NotFound):
            await logins.answer(state.login_id, "bob", "stolen")
        over = await logins.answer(state.login_id, "alice", "the-code")
        assert over.outcome == LoginOutcome(logged_in=True, account_label="max")
        assert await logins.state(state.login_id, "alice", 10.0) == over
        with pytest.raises(Conflict):
            await logins.answer(state.login_id, "alice", "once more")
    (env,) = runtime.seen
    assert (env.credential_namespace, env.login, runtime.pasted) == ("alice", "beside", "the-code")


async def test_a_login_that_is_given_up_ends_what_it_started(tmp_path: Path) -> None:
    runtime = Accounted()
    async with CodeSDK.open(tmp_path, runtimes={runtime.name: runtime}, permits=on(runtime)) as sdk:
        begun = await sdk.engine.begin_login(runtime.name)
        await sdk.engine.logins.cancel(begun.login_id, "local")
        assert runtime.cancelled
        with pytest.raises(NotFound):
            await sdk.engine.logins.state(begun.login_id, "local")
        runtime.cancelled = False
        await sdk.engine.begin_login(runtime.name)
    assert runtime.cancelled  # closing the engine gives up what is open


async def test_a_login_that_fails_says_so_without_the_answer(tmp_path: Path) -> None:
    runtime = Accounted()
    async with CodeSDK.open(tmp_path, runtimes={runtime.name: runtime}, permits=on(runtime)) as sdk:
        begun = await sdk.engine.begin_login(runtime.name)
        state = begun if begun.asks else await sdk.engine.logins.state(begun.login_id, "local", 10.0)
        over = await sdk.engine.logins.answer(state.login_id, "local", "wrong")
    assert over.outcome is not None
    assert over.outcome.problem == f"The login of {runtime.name} failed (ValueError)."


async def test_without_the_operators_switch_no_login_begins(tmp_path: Path) -> None:
    runtime = Accounted()
    async with CodeSDK.open(tmp_path, runtimes={runtime.name: runtime}) as sdk:
        with pytest.raises(Forbidden, match=f"CODESDK_LOGINS={runtime.name}"):
            await sdk.engine.begin_login(runtime.name)
    assert runtime.seen == []


async def test_another_namespace_is_for_those_whom_the_operator_allows_it(tmp_path: Path) -> None:
    runtime = Accounted()
    permits = on(runtime, namespaces=("team",), isolation=("namespaced", "ephemeral"))
    async with CodeSDK.open(tmp_path, runtimes={runtime.name: runtime}, permits=permits) as sdk:
        bob = sdk.as_principal("bob")
        with pytest.raises(Forbidden, match="namespace alice is not enabled here"):
            await sdk.engine.begin_login(runtime.name, "bob", "alice")
        with pytest.raises(Forbidden, match="namespace alice is not enabled here"):
            await bob.create_session(runtime=runtime.name, workspace=tmp_path, credential_namespace="alice")
        with pytest.raises(Forbidden, match="level shared is not enabled here"):
            await bob.create_session(runtime=runtime.name, workspace=tmp_path, isolation="shared")
        with pytest.raises(InvalidRequest):
            await bob.create_session(runtime=runtime.name, workspace=tmp_path, credential_namespace="")
        for chosen in ({}, {"credential_namespace": "team"}, {"isolation": "ephemeral"}):
            session = await bob.create_session(runtime=runtime.name, workspace=tmp_path, **chosen)  # pyright: ignore[reportArgumentType]
            await (await session.start("Hello")).result()
            created, env = (await session.event(1)).payload, runtime.seen[-1]
            assert isinstance(created, SessionCreated)
            assert (created.credential_namespace, created.isolation) == (
                env.credential_namespace,
                env.isolation,
            )
    lived = [(env.credential_namespace, env.isolation.level) for env in runtime.seen]
    assert lived == [("bob", "namespaced"), ("team", "namespaced"), ("bob", "ephemeral")]


async def test_a_session_does_not_work_in_a_namespace_that_is_no_longer_allowed(tmp_path: Path) -> None:
    runtime = Accounted()
    async with CodeSDK.open(tmp_path, runtimes={runtime.name: runtime}) as sdk:
        session = await sdk.create_session(
            runtime=runtime.name, workspace=tmp_path, credential_namespace="team", isolation="shared"
        )
    for permits in (Permits(namespaces=("team",)), Permits(isolation=("namespaced", "shared"))):
        async with CodeSDK.open(tmp_path, runtimes={runtime.name: runtime}, permits=permits) as sdk:
            with pytest.raises(Forbidden):
                await (await sdk.session(session.id)).start("Hello")
    assert runtime.seen == []
