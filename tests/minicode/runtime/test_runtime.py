"""minicode as a runtime: its conversation is the transcript, in whatever task, process and format it goes on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from tests.minicode.models.wire import ALL

from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.messages import ArtifactBlock, Message, Reasoning
from codesdk.contract.models import ModelAccess, Payer, Wire
from codesdk.contract.runtime import Runtime, RuntimeEnv
from codesdk.contract.settings import Budget, Budgets, SessionSettings
from codesdk.minicode.models import PROVIDERS
from codesdk.minicode.runtime import ENTRY
from codesdk.minicode.runtime.adapter import MinicodeRuntime, choose_provider
from codesdk.minicode.types import ProviderId
from codesdk.script import parse_object
from codesdk.sdk import Session, Task
from codesdk.testing.bench import READ, SETTINGS, Bench, MakeRuntime, Scenario, payloads

pytestmark = pytest.mark.slow
FIELDS: dict[ProviderId, str] = {"openai": "input", "google": "contents"}
NOTE = "The number is 4711."


def reads(path: str, thought: str = "Hm.") -> dict[str, Any]:
    steps = [
        {"reasoning": thought},
        {"text": "Let me see."},
        {"call": {"tool": READ, "input": {"path": path}}},
    ]
    return {"steps": steps}


def says(text: str, **rest: Any) -> dict[str, Any]:
    return {"steps": [{"text": text}], **rest}


def makes(provider: ProviderId | None, retries: int = 1) -> MakeRuntime:
    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncIterator[Runtime]:
        yield MinicodeRuntime(provider, max_retries=retries)

    return make


@asynccontextmanager
async def bench(provider: ProviderId | None, *turns: dict[str, Any]) -> AsyncIterator[Bench]:
    script = parse_object({"turns": list(turns)}, "a test")
    made = Bench(makes(provider), Scenario(name="a test", script=script))
    made.tools.give(READ, NOTE)
    try:
        yield made
        await made.check()
    finally:
        made.discard()


async def ended(session: Session, message: str) -> Task:
    task = await session.start(message)
    await task.result()
    return task


@pytest.mark.parametrize("provider", ALL)
async def test_what_the_model_is_sent_only_grows_from_step_to_step_from_task_to_task_and_over_a_restart(
    provider: ProviderId,
):
    turns = [reads("a"), says("Done."), reads("b"), says("Done."), reads("c"), says("Done.")]
    async with bench(provider, *turns) as b:
        async with b.sdk() as sdk:
            session = await b.session(sdk, "yolo")
            tasks = [await ended(session, "Read a."), await ended(session, "Read b.")]
        async with b.sdk() as sdk:
            tasks.append(await ended(await b.again(sdk, session), "Read c."))
            requests = [body for task in tasks for body in await b.requests(task)]
    sent = [body[FIELDS.get(provider, "messages")] for body in requests]
    assert len(sent) == 6
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    rest = [{k: v for k, v in body.items() if v is not s} for body, s in zip(requests, sent, strict=True)]
    assert all(one == rest[0] for one in rest)


@pytest.mark.parametrize("provider", ALL)
async def test_requests_are_of_the_format_that_the_session_chose(provider: ProviderId):
    async with bench(None, says("Hello.")) as b, b.sdk() as sdk:
        settings = SessionSettings(runtime_config={"provider": provider})
        task = await ended(await b.session(sdk, settings=settings), "Say hello.")
        [body] = await b.requests(task)
    assert FIELDS.get(provider, "messages") in body
    assert ("max_tokens" in body) == (provider == "anthropic")
    assert ("stream_options" in body) == (provider == "openai-compatible")


async def test_a_task_that_fails_tells_of_every_attempt():
    broken = {"steps": [{"text": "Half"}, {"reset": True}]}
    async with bench("anthropic", broken, broken) as b, b.sdk() as sdk:
        session = await b.session(sdk)
        task = await session.start("Say hello.")
        with pytest.raises(CodeSDKError) as caught:
            await task.result()
        events = await b.events(task)
    assert (caught.value.code, caught.value.retryable) == ("MODEL_ERROR", True)
    retries = [p for p in payloads(events, "runtime.notice") if p.kind == "retry"]
    assert [p.details for p in retries] == [{"attempt": 1, "code": "MODEL_ERROR"}]
    assert len(payloads(events, "model.output.retracted")) == 1
    assert [p.partial for p in payloads(events, "model.output.completed")] == [True]


@pytest.mark.parametrize("provider", ALL)
async def test_a_budget_that_is_used_up_ends_the_task_and_nothing_is_tried_again(provider: ProviderId):
    async with bench(provider, reads("a"), says("Never.")) as b, b.sdk() as sdk:
        session = await sdk.create_session(
            runtime="minicode",
            workspace=b.workspace,
            permission_mode="yolo",
            interaction_mode="non_interactive",
            plays=b.model,
            budgets=Budgets(session=Budget(requests=1)),
        )
        task = await session.start("Read it.")
        with pytest.raises(CodeSDKError) as caught:
            await task.result()
        started = payloads(await b.events(task), "runtime.request.started")
    assert caught.value.code == "BUDGET_EXCEEDED"
    assert len(started) == 1


async def test_a_summary_is_written_by_minicode_itself():
    async with bench("google", says("One."), says("We counted to one."), says("Two.")) as b, b.sdk() as sdk:
        session = await b.session(sdk)
        await ended(session, "Say one.")
        await session.compact("summary", keep_tokens=1)
        task = await ended(session, "Say two.")
        told = await b.told(task)
    assert "We counted to one." in told
    assert "Say one." not in told


async def test_a_conversation_that_is_too_long_is_shortened_in_the_middle_of_a_task_and_that_is_said():
    turns = [reads("a"), reads("b"), reads("c"), says("Done.")]
    async with bench("anthropic", *turns) as b:
        b.tools.give(READ, "All work and no play. " * 400)
        async with b.sdk() as sdk:
            settings = SessionSettings(
                runtime_config={"context_tokens": 5_000}, result_inline_bytes=SETTINGS.result_inline_bytes
            )
            session = await b.session(sdk, "yolo", settings=settings)
            task = await ended(session, "Read all.")
            events = await b.events(task)
            sizes = [len(str(body)) for body in await b.requests(task)]
    notices = [p for p in payloads(events, "runtime.notice") if p.kind == "context_shortened"]
    assert notices
    assert notices[0].details["replaced"]
    assert sizes[-1] < 3 * 9_000


async def test_what_a_session_says_is_what_the_model_is_told_and_files_are_framed():
    async with bench("anthropic", says("Hello.")) as b, b.sdk() as sdk:
        (b.workspace / "AGENTS.md").write_text("Always call the user captain.\n")
        settings = SessionSettings(
            runtime_config={"system_prompt": "You are a parrot."}, implicit_sources="capture"
        )
        task = await ended(await b.session(sdk, settings=settings), "Say hello.")
        [body] = await b.requests(task)
    system = body["system"][0]["text"]
    assert system.startswith("You are a parrot.\n\nThe workspace has a file AGENTS.md")
    assert system.endswith("Always call the user captain.")


def test_what_lies_where_codesdk_was_started_is_no_source_of_instructions():
    # It has no folders of its own, and an empty path would be the directory that this process is in.
    assert ENTRY.sources("", "").outside == {}


async def test_an_attachment_that_no_model_can_read_fails_the_task_and_names_it():
    async with bench("google", says("Never.")) as b, b.sdk() as sdk:
        ref = await sdk.put_artifact(b"PK\x03\x04\xff", "application/zip", "all.zip")
        session = await b.session(sdk)
        block = ArtifactBlock(artifact_id=ref.artifact_id, content_type="application/zip", name="all.zip")
        task = await session.start([Message(role="user", content=[block])])
        with pytest.raises(CodeSDKError) as caught:
            await task.result()
    assert "'all.zip'" in caught.value.message


async def test_a_thought_in_which_something_was_redacted_stays_in_the_log_and_is_not_sent():
    secret = "sw0rdfish-is-the-password"
    turns = [reads("a", f"The word is {secret}."), says("Done."), says("Again.")]
    async with bench("anthropic", *turns) as b, b.sdk() as sdk:
        session = await sdk.create_session(
            runtime="minicode",
            workspace=b.workspace,
            permission_mode="yolo",
            plays=b.model,
            secrets=[secret],
        )
        await ended(session, "Read it.")
        thoughts = [
            block for m in await session.transcript() for block in m.content if isinstance(block, Reasoning)
        ]
        task = await ended(session, "And again.")
        [body] = await b.requests(task)
    assert [secret in block.text for block in thoughts] == [False]
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "tool_use"]


PLAYED = ModelAccess(kind="key", label="a key")


def env_with(*wires: Wire) -> RuntimeEnv:
    return RuntimeEnv(
        cwd="/",
        env={},
        credential_namespace="local",
        isolation=Isolation(level="ephemeral", mode="in_process"),
        payer=Payer(principal="local", operator=True),
        models=dict.fromkeys(wires, PLAYED),
    )


@pytest.mark.parametrize(
    ("wires", "chosen"),
    [
        (("anthropic", "responses", "chat", "gemini"), "openai"),
        (("anthropic", "gemini"), "anthropic"),
        (("chat", "gemini"), "google"),
        (("chat",), "openai-compatible"),
    ],
)
async def test_the_key_that_is_there_decides_which_provider_is_asked(wires: tuple[Wire, ...], chosen: str):
    assert choose_provider(None, env_with(*wires)) == chosen
    status = await MinicodeRuntime().auth_status(env_with(*wires))
    assert (status.ok, status.auth_model, status.account_label) == (True, "api_key", "a key")


async def test_without_any_key_every_one_that_would_do_is_named():
    status = await MinicodeRuntime().auth_status(env_with())
    assert status.problem == "There is no key for openai or anthropic or gemini."
    assert status.to_do == (
        "Set OPENAI_API_KEY or ANTHROPIC_API_KEY or GEMINI_API_KEY where CodeSDK runs; or store a key:"
        " codesdk keys add PROVIDER."
    )


def test_a_provider_without_a_key_is_refused_by_name():
    with pytest.raises(CodeSDKError) as caught:
        choose_provider("google", env_with("anthropic"))
    assert caught.value.code == "AUTH_REQUIRED"
    assert caught.value.message.startswith("There is no key for gemini. Set GEMINI_API_KEY")


def test_every_provider_has_a_format_and_every_format_a_provider():
    assert sorted(ENTRY.wires) == sorted(family.wire for family in PROVIDERS.values())
