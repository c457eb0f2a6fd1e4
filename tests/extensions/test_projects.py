"""The project of a session, as extensions know it: the one that it was created with, or that of its workspace."""

from pathlib import Path
from typing import Any

import pytest
from tests.extensions.rig import Extensions, extended, session_in, settle
from tests.extensions.test_actions import problems

from codesdk import InvalidRequest
from codesdk.contract.events import SessionCreated
from codesdk.extensions.signals import project_of

pytestmark = pytest.mark.anyio

NOTES = """
def handle(event, tools): note(event.payload["session"]["project_id"])
def register(registry): registry.on("turn.completed", handle)
"""


async def test_a_project_that_is_given_is_kept_in_the_log_and_in_forks_and_told(
    ext: Extensions, tmp_path: Path, seen: list[Any]
):
    ext.write("helper", NOTES)
    async with extended(ext, tmp_path, [[{"text": "Hi."}]] * 3, stored=True) as sdk:
        given = await session_in(sdk, tmp_path, project_id="shop/checkout")
        fork = await given.fork()
        plain = await session_in(sdk, tmp_path)
        for session in (given, fork, plain):
            await (await session.start("Go.")).result()
            await settle(sdk)
            assert await problems(sdk, session) == []
        first = (await given.event(1)).payload
        assert isinstance(first, SessionCreated)
        rows = [(await one.info()).project_id for one in (given, fork, plain)]
        assert (first.project_id, rows) == ("shop/checkout", ["shop/checkout", "shop/checkout", None])
    assert seen == ["shop/checkout", "shop/checkout", project_of(str(tmp_path / "ws"))]


@pytest.mark.parametrize("bad", ["", " ", "-a", "a b", "x" * 129, "ä"])
async def test_what_cannot_name_a_project_is_refused(ext: Extensions, tmp_path: Path, bad: str):
    async with extended(ext, tmp_path) as sdk:
        with pytest.raises(InvalidRequest, match="A project_id is"):
            await session_in(sdk, tmp_path, project_id=bad)
        assert await sdk.sessions() == []
