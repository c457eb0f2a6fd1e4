"""A script that a session plays goes on where the session is: after a restart, in a fork, with faults in between."""

from pathlib import Path

import pytest
from tests.gateway.capture.test_tap import check, opened, session_of, turns

from codesdk import Session
from codesdk.contract.errors import TaskFailure
from codesdk.script import parse_object


async def said(session: Session, text: str = "And?") -> str:
    return (await (await session.start(text)).result()).text


@pytest.mark.slow
async def test_it_goes_on_after_each_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, turns("one", "two", "three", "four"))
        assert [await said(session), await said(session)] == ["one", "two"]
    async with opened(tmp_path) as sdk:
        again = await sdk.session(session.id, plays=turns("one", "two", "three", "four"))
        assert await said(again) == "three"
    async with opened(tmp_path) as sdk:
        again = await sdk.session(session.id)
        assert await said(again) == "four"
        with pytest.raises(TaskFailure):
            await said(again)
        assert sdk.model_problems(session.id) == ["The script has 4 turns; request 5 asks for another."]
        await check(sdk, again)


async def test_a_turn_that_was_a_fault_is_used_up_too(tmp_path: Path) -> None:
    refused = {"steps": [{"http": {"status": 400, "message": "no"}}]}
    script = parse_object({"turns": [refused, {"steps": [{"text": "then"}]}]}, "script")
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, script)
        with pytest.raises(TaskFailure):
            await said(session)
    async with opened(tmp_path) as sdk:
        assert await said(await sdk.session(session.id)) == "then"


@pytest.mark.slow
async def test_a_script_that_is_given_begins_at_its_first_turn_and_the_log_says_that_it_was(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, turns("one", "two"))
        await said(session)
        other = await sdk.session(session.id, plays=turns("uno", "due"))
        assert await said(other) == "uno"
        head = await sdk.service.head(session.id)
        events = [await session.event(seq) for seq in range(1, head + 1)]
        [changed] = [event.payload for event in events if event.type == "session.settings_changed"]
        assert changed.equipped == ["script"]
    async with opened(tmp_path) as sdk:
        again = await sdk.session(session.id)
        assert await said(again) == "due"
        await check(sdk, again)


async def test_a_fork_goes_on_from_where_it_branched_off(tmp_path: Path) -> None:
    async with opened(tmp_path) as sdk:
        session = await session_of(sdk, tmp_path, turns("one", "two", "three"))
        assert [await said(session), await said(session)] == ["one", "two"]
        assert await said(await session.fork()) == "three"
