"""How tasks of the real claude end when the model, the key, the context or the program itself fails, and how sessions go on."""

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.alone import alone
from tests.runtimes.claude.rig import READ, opened, script, texts_of

from codesdk import CodeSDKError, SessionSettings, TaskFailure
from codesdk.contract.messages import ArtifactBlock, Code, Message, Text
from codesdk.contract.settings import Budget, Budgets
from codesdk.runtimes.program.retelling import RETOLD

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(autouse=True)
def _offline() -> Iterator[None]:
    with alone():
        yield


def http(status: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"http": {"status": status, **fields}}]


# --- errors ---------------------------------------------------------------------------------------------------

RESET = [{"text": "Half a "}, {"delay_s": 0.3}, {"reset": True}]
REFUSE = [{"text": "I "}, {"refusal": "No."}]
FAILURES: list[tuple[list[Any], str, bool, int]] = [
    ([http(401), http(401)], "AUTH_FAILED", False, 1),
    ([http(403)], "AUTH_FAILED", False, 0),
    ([http(429, retry_after_s=0), http(429, retry_after_s=0)], "RATE_LIMITED", True, 1),
    ([http(529), http(529)], "OVERLOADED", True, 1),
    ([http(500), http(500)], "MODEL_ERROR", True, 1),
    ([[{"context_too_large": True}]], "CONTEXT_TOO_LARGE", False, 0),
    ([REFUSE, REFUSE], "CONTENT_FILTERED", False, 0),
]


async def test_each_failure_of_the_model_has_its_code_and_its_retries_and_the_session_goes_on(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script(*(turn for turns, *_ in FAILURES for turn in turns), "Well."))
        for _turns, code, retryable, retries in FAILURES:
            before = len(await world.notices(session, "retry"))
            with pytest.raises(CodeSDKError) as caught:
                await (await session.start(f"Cause {code}")).result()
            assert (caught.value.code, caught.value.retryable) == (code, retryable), caught.value.message
            assert len(await world.notices(session, "retry")) - before == retries
        assert (await (await session.start("And now?")).result()).text == "Well."
        await world.check(session)


async def test_what_can_be_mended_is_retried_in_sight_and_half_an_answer_is_taken_back(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script(http(429, retry_after_s=0), "After.", RESET, "Whole."))
        assert (await (await session.start("Hurry")).result()).text == "After."
        [retry] = await world.notices(session, "retry")
        assert (retry.details["attempt"], retry.details["error_status"]) == (1, 429)
        assert (await (await session.start("Break")).result()).text == "Whole."
        [taken_back] = await world.payloads(session, "model.output.retracted")
        half = {
            p.block_id for p in await world.payloads(session, "model.output.delta") if p.delta == "Half a "
        }
        assert set(taken_back.block_ids) == half
        completed = await world.payloads(session, "model.output.completed")
        assert [[block.text for block in message.content] for message in completed] == [
            ["After."],
            ["Whole."],
        ]
        await world.check(session)


async def test_what_claude_tells_the_model_on_its_own_is_noted(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script([{"text": "cut "}, {"max_tokens": True}], "rest."))
        assert (await (await session.start("Much")).result()).text == "rest."
        [hidden] = await world.notices(session, "hidden_input")
        assert "token limit" in hidden.details["text"]
        completed = await world.payloads(session, "model.output.completed")
        assert [message.stop_reason for message in completed] == ["max_tokens", "end_turn"]
        await world.check(session)


async def test_over_its_budget_a_task_ends_with_the_engines_reason(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script([READ], "Done."), budgets=Budgets(task=Budget(requests=1)),
            interaction_mode="non_interactive")  # fmt: skip
        with pytest.raises(TaskFailure) as caught:
            await (await session.start("Read")).result()
        assert caught.value.code == "BUDGET_EXCEEDED"
        assert len(await world.payloads(session, "runtime.request.started")) == 1
        await world.check(session)


# --- resume ---------------------------------------------------------------------------------------------------


async def test_after_a_restart_claude_goes_on_with_its_own_copy_and_a_new_system_prompt(
    tmp_path: Path,
) -> None:
    def prompt(text: str) -> SessionSettings:
        return SessionSettings(runtime_config={"system_prompt": text})

    async with opened(tmp_path) as world:
        session = await world.session(script([READ], "One."), settings=prompt("Be first. " * 20_000))
        assert (await (await session.start("First")).result()).text == "One."
        [asked, _] = await world.requests(session)
        assert asked["system"][-1]["text"] == "Be first. " * 20_000
    async with opened(tmp_path) as world:
        again = await world.sdk.session(session.id, plays=script("Two."))
        assert (await (await again.start("Second")).result()).text == "Two."
        asked = (await world.requests(again))[-1]
        assert texts_of(asked) == ["First", "One.", "Second"]
        assert [m["role"] for m in asked["messages"]] == ["user", "assistant", "user", "assistant", "user"]
        names = {event.runtime.runtime_session_id for event in await world.events(again)} - {None}
        assert len(names) == 1
        await world.check(again)


async def test_after_a_restart_code_and_an_image_that_were_not_answered_are_not_said_twice(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script("One.", http(403), http(403)))
        await (await session.start("First")).result()
        ref = await world.sdk.put_artifact(PIXEL, "image/png", "pixel.png")
        image = ArtifactBlock(artifact_id=ref.artifact_id, content_type="image/png")
        for block in (Code(code="x = 1", language="python"), image):
            with pytest.raises(TaskFailure):
                await (await session.start([Message(role="user", content=[block])])).result()
    async with opened(tmp_path) as world:
        again = await world.sdk.session(session.id, plays=script("Two."))
        assert (await (await again.start("Second")).result()).text == "Two."
        asked = (await world.requests(again))[-1]
        said = [text for text in texts_of(asked) if not text.startswith("[Image: ")]
        assert said == ["First", "One.", "```python\nx = 1\n```", "Second"]
        kinds = [block["type"] for message in asked["messages"] for block in message["content"]]
        assert kinds.count("image") == 1
        await world.check(again)


@pytest.mark.parametrize("copy", ["gone", "damaged"])
async def test_without_its_copy_and_in_a_fork_the_conversation_is_retold(tmp_path: Path, copy: str) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script([READ], "One."))
        await (await session.start("First")).result()
    [kept] = (tmp_path / "data" / "runtimes").rglob("projects/*/*.jsonl")
    if copy == "gone":
        shutil.rmtree(tmp_path / "data" / "runtimes")
    else:
        kept.write_text("no copy of anything\n")
    async with opened(tmp_path) as world:
        again = await world.sdk.session(session.id, plays=script("Two."))
        assert (await (await again.start("Second")).result()).text == "Two."
        told = texts_of((await world.requests(again))[-1])
        assert told[:2] == [RETOLD, "[user]\nFirst"]
        assert told[2] == '[assistant]\ncalled workspace.read with {"path":"notes.txt"}'
        assert "remember the milk" in told[3]
        assert told[4:] == ["[assistant]\nOne.", "[user]", "Second"]
        await world.check(again)
        fork = await again.fork()
        fork = await world.sdk.session(fork.id, plays=script("Three."))
        assert (await (await fork.start("Third")).result()).text == "Three."
        told = texts_of((await world.requests(fork))[-1])
        assert told[:2] == [RETOLD, "[user]\nFirst"]
        assert told[-4:] == ["[user]\nSecond", "[assistant]\nTwo.", "[user]", "Third"]
        await world.check(fork)


# --- attachments ----------------------------------------------------------------------------------------------


async def test_an_image_reaches_the_model_and_what_claude_cannot_take_is_refused_before_it_starts(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        session = await world.session(script("A pixel."))
        image = await world.sdk.put_artifact(PIXEL, "image/png", "pixel.png")
        text = await world.sdk.put_artifact(b"a,b", "text/csv", "table.csv")
        sound = await world.sdk.put_artifact(b"RIFF", "audio/wav", "beep.wav")

        def attached(ref: Any) -> ArtifactBlock:
            return ArtifactBlock(artifact_id=ref.artifact_id, content_type=ref.content_type, name=ref.name)

        content = [Text(text="What is this?"), attached(image), attached(text)]
        assert (
            await (await session.start([Message(role="user", content=[*content])])).result()
        ).text == "A pixel."
        [request] = await world.requests(session)
        blocks = request["messages"][-1]["content"]
        [sent] = [block["source"] for block in blocks if block["type"] == "image"]
        assert base64.b64decode(sent["data"]) == PIXEL
        first, second, added = texts_of(request)
        assert (first, second.rstrip()) == ("What is this?", "table.csv:\na,b")
        assert added.startswith("[Image: source: ")
        with pytest.raises(TaskFailure, match="not audio/wav"):
            await (await session.start([Message(role="user", content=[attached(sound)])])).result()
        await world.check(session)
