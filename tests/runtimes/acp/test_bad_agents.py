"""Commands that are no agents, or bad ones: each ends in words, and leaves nothing behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.acp.rig import log_of, notices, opened, payloads, pretending
from tests.runtimes.alone import left_behind

from codesdk import CodeSDK, Limits
from codesdk.contract.errors import CodeSDKError, TaskFailure
from codesdk.runtimes.acp import agent
from codesdk.runtimes.program.signals import MAX_OF_ONE


def give_little_time(monkeypatch: pytest.MonkeyPatch, phase: str, seconds: float = 1.0) -> None:
    """Wait less than usual for an answer in one phase, and no less in the others, however busy the machine is."""
    real, usual = agent.Agent._exchange, agent.REQUEST_S

    async def exchange(self: agent.Agent, method: str, *more: Any) -> Any:
        monkeypatch.setattr(agent, "REQUEST_S", seconds if method == phase else usual)
        return await real(self, method, *more)

    monkeypatch.setattr(agent.Agent, "_exchange", exchange)


async def failure(tmp_path: Path, command: list[str], **row: Any) -> CodeSDKError:
    async with opened(tmp_path, command, **row) as session:
        with pytest.raises(CodeSDKError) as caught:
            await (await session.start("Hello.")).result()
    assert left_behind(tmp_path) == []
    return caught.value


@pytest.mark.slow
async def test_a_command_that_writes_without_end_is_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(agent, "REQUEST_S", 1.0)
    error = await failure(tmp_path, ["/usr/bin/yes"])
    assert error.code == "RUNTIME_PROTOCOL"
    assert "Is it an agent of the Agent Client Protocol?" in error.message


@pytest.mark.parametrize("command", [["/bin/echo", "Hello!"], ["/bin/true"], ["/bin/sh", "-c", "exit 7"]])
async def test_a_command_that_is_no_agent_ends_in_words(tmp_path: Path, command: list[str]):
    error = await failure(tmp_path, command)
    assert error.code == "RUNTIME_CRASHED"
    assert error.message.startswith("acp ended in the middle of its work")


async def test_a_command_that_only_repeats_us_is_no_agent(tmp_path: Path):
    error = await failure(tmp_path, ["/bin/cat"])
    assert error.code == "RUNTIME_PROTOCOL"
    assert "Is it an agent of the Agent Client Protocol?" in error.message


@pytest.mark.parametrize("path", ["/no/such/agent", "agent"])
async def test_a_command_that_is_not_there_is_said_so(tmp_path: Path, path: str):
    error = await failure(tmp_path, [path])
    assert error.code == "RUNTIME_UNAVAILABLE"
    assert path in error.message


@pytest.mark.parametrize("deed", ["v2", "v2-only"])
async def test_an_agent_that_speaks_only_a_later_version_is_refused_in_words(tmp_path: Path, deed: str):
    error = await failure(tmp_path, pretending(deed))
    assert error.code == "RUNTIME_PROTOCOL"
    assert "version" in error.message


PHASES = ["initialize", "session/new", "session/set_mode"]
MODES = {"auto": "quick"}
"""So that the agent is asked for a mode."""


@pytest.mark.slow
@pytest.mark.parametrize("deed", ["mute", "flood-in"])
@pytest.mark.parametrize("phase", PHASES)
async def test_an_agent_that_never_answers_is_ended_whatever_else_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str, phase: str
):
    give_little_time(monkeypatch, phase)
    error = await failure(tmp_path, pretending(deed, phase), modes=MODES)
    assert (error.code, error.retryable) == ("RUNTIME_PROTOCOL", True)
    assert f"did not answer {phase} within 1 s" in error.message


@pytest.mark.slow
async def test_an_agent_that_never_answers_a_prompt_is_ended_when_it_was_silent_for_too_long(tmp_path: Path):
    async with opened(tmp_path, pretending("mute", "session/prompt"), idle_timeout_s=1.0) as session:
        with pytest.raises(TaskFailure, match="sent nothing for 1 s") as caught:
            await (await session.start("Hello.")).result()
        assert (caught.value.code, caught.value.retryable) == ("TIMEOUT", True)
        assert left_behind(tmp_path) == []


async def test_an_agent_that_does_not_ask_for_its_tools_is_not_asked_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent, "LISTED_S", 0.3)
    error = await failure(tmp_path, pretending("good"), lists_tools=True)
    assert error.code == "RUNTIME_PROTOCOL"
    assert "did not ask for its tools" in error.message


async def test_an_agent_that_wants_a_login_is_not_given_one(tmp_path: Path):
    error = await failure(tmp_path, pretending("wants-login"))
    assert error.code == "AUTH_REQUIRED"


@pytest.mark.parametrize(
    "deed",
    [
        *[("dies", phase) for phase in (*PHASES, "session/prompt")],
        ("good", "mid-turn"),
        ("dies-asking",),
        ("dies-in-call",),
    ],
    ids=" ".join,
)
async def test_an_agent_that_dies_in_any_phase_is_a_crash(tmp_path: Path, deed: tuple[str, ...]):
    error = await failure(tmp_path, pretending(*deed), modes=MODES)
    assert (error.code, error.retryable) == ("RUNTIME_CRASHED", True)
    assert "with code 3" in error.message


@pytest.mark.parametrize("deed", ["dies-asking", "dies-in-call"])
async def test_a_call_that_a_dying_agent_had_begun_is_closed_as_its_own_doing(tmp_path: Path, deed: str):
    async with opened(tmp_path, pretending(deed)) as session:
        with pytest.raises(TaskFailure):
            await (await session.start("Hello.")).result()
    [denied] = payloads(await log_of(tmp_path, session), "tool.call.denied")
    assert (denied.name, denied.by.kind) == ("workspace.read", "runtime")


@pytest.mark.slow
async def test_an_agent_that_dies_between_two_tasks_is_started_again(tmp_path: Path):
    async with opened(tmp_path, pretending("dies-afterwards")) as session:
        for text in ("Hello.", "And again."):
            assert (await (await session.start(text)).result()).text == "Done."
            while left_behind(tmp_path):  # noqa: ASYNC110 - nobody tells of its end
                await asyncio.sleep(0.01)
    assert notices(await log_of(tmp_path, session), "violation") == []


@pytest.mark.slow
@pytest.mark.parametrize("deed", ["dies", "mute", "flood-in", "forgets"])
async def test_an_agent_that_cannot_load_its_session_is_told_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str
):
    give_little_time(monkeypatch, "session/load")
    async with opened(tmp_path, pretending(deed, "session/load")) as session:
        await (await session.start("Hello.")).result()
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        again = await sdk.session(session.id)
        assert (await (await again.start("Still there?")).result()).text == "Done."
    assert left_behind(tmp_path) == []


@pytest.mark.slow
async def test_an_agent_that_talks_without_end_is_ended_by_a_stop(tmp_path: Path):
    async with opened(tmp_path, pretending("endless")) as session:
        task = await session.start("Hello.")
        heard = 0
        async for event in task.events():
            heard += event.type == "model.output.delta"
            if heard == 100:
                break
        await task.stop("enough")
        assert (await task.result()).state == "stopped"
        assert left_behind(tmp_path) == []
    [said] = payloads(await log_of(tmp_path, session), "model.output.completed")
    assert said.partial


@pytest.mark.slow
async def test_an_agent_that_talks_without_end_is_ended_where_nobody_stops_it(tmp_path: Path):
    limits = Limits(max_output_chars=1_000_000)
    async with opened(tmp_path, pretending("endless"), limits=limits) as session:
        with pytest.raises(
            TaskFailure, match=r"said more than 1000000 characters \(limits\.max_output_chars\)"
        ) as caught:
            await (await session.start("Hello.")).result()
        assert (caught.value.code, caught.value.retryable) == ("RUNTIME_PROTOCOL", False)
        assert left_behind(tmp_path) == []
    said = payloads(await log_of(tmp_path, session), "model.output.delta")
    assert sum(len(p.delta) for p in said) <= 1_010_000, "what follows is not kept"


async def test_what_a_dying_agent_had_said_is_kept(tmp_path: Path):
    async with opened(tmp_path, pretending("good", "mid-turn")) as session:
        with pytest.raises(TaskFailure):
            await (await session.start("Hello.")).result()
    [said] = payloads(await log_of(tmp_path, session), "model.output.completed")
    assert (said.partial, [block.text for block in said.content]) == (True, ["Half "])


@pytest.mark.parametrize("deed", ["flood", "huge", "huge-frame", "mumbles", "acknowledges", "nameless"])
async def test_an_agent_that_says_too_much_or_too_little_is_still_heard(tmp_path: Path, deed: str):
    async with opened(tmp_path, pretending(deed)) as session:
        assert (await (await session.start("Hello.")).result()).text == "Done."
    events = await log_of(tmp_path, session)
    unknown = notices(events, "unknown_frame")
    if deed in ("huge", "huge-frame", "mumbles"):
        assert "acp wrote a line that is not a message." in unknown
    if deed == "flood":
        assert "acp sent the update dream_update, which CodeSDK does not know." in unknown
        assert len(unknown) == MAX_OF_ONE
    assert left_behind(tmp_path) == []


async def test_an_agent_that_nobody_tested_is_noted_with_the_version_that_it_says(tmp_path: Path):
    async with opened(tmp_path, pretending("good")) as session:
        await (await session.start("Hello.")).result()
    [noted] = [p for p in payloads(await log_of(tmp_path, session), "runtime.notice") if p.kind == "untested"]
    assert noted.details["version"] == "9.9.9-nobody"


@pytest.mark.parametrize("deed", ["native", "native-pending", "native-asks"])
async def test_a_call_of_the_agents_own_ends_the_task(tmp_path: Path, deed: str):
    error = await failure(tmp_path, pretending(deed))
    assert error.code == "FORBIDDEN"
    assert "run_shell" in error.message


@pytest.mark.slow
async def test_a_call_that_did_not_begin_is_denied_and_one_that_did_has_an_unknown_end(tmp_path: Path):
    for deed, kind in (("native-pending", "tool.call.denied"), ("native", "tool.call.completed")):
        place = tmp_path / deed
        place.mkdir()
        async with opened(place, pretending(deed)) as session:
            with pytest.raises(TaskFailure):
                await (await session.start("Again.")).result()
        [end] = payloads(await log_of(place, session), kind)
        assert end.name == "run_shell"


async def test_a_question_about_our_tool_is_allowed_once(tmp_path: Path):
    async with opened(tmp_path, pretending("own-asks")) as session:
        text = (await (await session.start("Hello.")).result()).text
    assert text == '{"outcome": "selected", "optionId": "once"}'
    [call] = payloads(await log_of(tmp_path, session), "tool.call.requested")
    assert (call.name, call.input) == ("workspace.read", {"path": "notes.txt"})


async def test_whatever_else_an_agent_asks_for_is_not_there(tmp_path: Path):
    async with opened(tmp_path, pretending("asks-more")) as session:
        assert (await (await session.start("Hello.")).result()).text == "[-32601, -32601, -32601]"


async def test_a_question_after_a_stop_is_answered_that_it_was_cancelled(tmp_path: Path):
    async with opened(tmp_path, pretending("asks-when-stopped")) as session:
        task = await session.start("Tell a story.")
        async for event in task.events():
            if event.type == "model.output.delta":
                break
        await task.stop("enough")
        assert (await task.result()).state == "stopped"
    [said] = payloads(await log_of(tmp_path, session), "model.output.completed")
    assert (said.partial, [block.text for block in said.content]) == (True, ["Once upon cancelled"])


async def test_an_agent_that_does_not_heed_a_stop_is_ended(tmp_path: Path):
    async with opened(tmp_path, pretending("deaf")) as session:
        task = await session.start("Tell a story.")
        async for event in task.events():
            if event.type == "model.output.delta":
                break
        await task.stop("enough")
        assert (await task.result()).state == "stopped"
        assert left_behind(tmp_path) == []


async def test_an_error_of_the_agent_is_told_in_its_words(tmp_path: Path):
    error = await failure(tmp_path, pretending("refuses"))
    assert error.code == "RUNTIME_PROTOCOL"
    assert error.message.startswith("The agent gave up: Something broke: inside.")


@pytest.mark.parametrize("prompt", ["/memory show", " /help", "plain"])
@pytest.mark.slow
async def test_a_prompt_is_never_a_command_of_the_agents(tmp_path: Path, prompt: str):
    async with opened(tmp_path, pretending("told")) as session:
        told = (await (await session.start(prompt)).result()).text
    assert told == (prompt if prompt == "plain" else f"[user]{prompt}")


async def test_two_sessions_have_an_agent_each(tmp_path: Path):
    first, second = tmp_path / "one", tmp_path / "two"
    first.mkdir()
    second.mkdir()
    async with opened(first, pretending("good")) as one, opened(second, pretending("good")) as two:
        results = await asyncio.gather(*[(await s.start("Hello.")).result() for s in (one, two)])
    assert [result.text for result in results] == ["Done.", "Done."]
