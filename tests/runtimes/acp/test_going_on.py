"""How an agent goes on with its session in another process, and how it gets our tools without HTTP."""

from pathlib import Path

import pytest
from tests.runtimes.acp.rig import log_of, notices, opened, payloads, pretending
from tests.runtimes.alone import left_behind

from codesdk import CodeSDK, CodeSDKError


@pytest.mark.parametrize(
    ("deed", "asked"),
    [
        ("loads", "initialize session/load session/prompt"),
        ("resumes", "initialize session/load session/resume session/prompt"),
        ("only-resumes", "initialize session/resume session/prompt"),
        ("goes-on-with-nothing", "initialize session/load session/resume session/new session/prompt"),
    ],
)
async def test_a_session_is_loaded_else_resumed_else_told_again(tmp_path: Path, deed: str, asked: str):
    async with opened(tmp_path, pretending(deed)) as session:
        assert (await (await session.start("Hello.")).result()).text == "Done."
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        again = await sdk.session(session.id)
        said = (await (await again.start("Still there?")).result()).text
    methods, _, words = said.partition(": ")
    assert methods == asked
    if deed == "goes-on-with-nothing":
        assert "Hello." in words
        assert words.endswith("Still there?")
    else:
        assert words == "Still there?", "it knows the rest"
    rebuilt = notices(await log_of(tmp_path, session), "reconstructed")
    assert len(rebuilt) == (deed == "goes-on-with-nothing")
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("unanswered", "told"),
    [
        (["Go on."], "Still there?"),
        (["Go on.", "Hello."], "Hello.Still there?"),
        (["Go on.", "Go on."], "Go on.Still there?"),
        (["Hello."], "Hello.Still there?"),
    ],
)
async def test_what_an_agent_tells_after_its_last_answer_is_not_said_again_and_all_else_is(
    tmp_path: Path, unanswered: list[str], told: str
):
    async with opened(tmp_path, pretending("loads-unanswered")) as session:
        assert (await (await session.start("Hello.")).result()).text == "Done."
        for words in unanswered:
            with pytest.raises(CodeSDKError):
                await (await session.start(words)).result()
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        again = await sdk.session(session.id)
        said = (await (await again.start("Still there?")).result()).text
    assert said == f"initialize session/load session/prompt: {told}"
    assert notices(await log_of(tmp_path, session), "reconstructed") == []


async def test_an_agent_without_http_calls_our_tools_through_a_program_of_ours(tmp_path: Path):
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "notes.txt").write_text("remember the milk\n")
    row = {"transports": ["stdio"], "lists_tools": True}
    async with opened(tmp_path, pretending("calls-by-program"), **row) as session:
        said = (await (await session.start("What do my notes say?")).result()).text
    assert "remember the milk" in said
    events = await log_of(tmp_path, session)
    [created] = payloads(events, "session.created")
    assert created.mcp_transport == "stdio"
    [call] = payloads(events, "tool.call.completed")
    assert (call.name, call.executed_by, call.is_error) == ("workspace.read", "codesdk", False)
    assert left_behind(tmp_path) == []
