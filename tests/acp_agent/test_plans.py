"""Plans of runtimes, as an editor is shown them: as they come, and the last one when a session is loaded."""

from pathlib import Path
from typing import Any

from tests.acp_agent.editor import connected, local
from tests.runtimes.external.adapters import LIAR, python_adapter

from codesdk import CodeSDK
from codesdk.acp_agent.place import Offer


def planned(*entries: tuple[str, str]) -> Any:
    """Return a step in which an adapter tells a plan."""
    details = {"entries": [{"content": content, "status": status} for content, status in entries]}
    payload = {"kind": "plan", "message": "A plan.", "details": details}
    return {"item": {"type": "runtime.notice", "payload": payload}}


def shown(*entries: tuple[str, str]) -> Any:
    plan = [{"content": content, "status": status, "priority": "medium"} for content, status in entries]
    return {"sessionUpdate": "plan", "entries": plan}


BEFORE = [("Look", "in_progress"), ("Change", "pending")]
AFTER = [("Look", "completed"), ("Change", "in_progress")]
DONE = {"item": {"type": "finished", "stop_reason": "end_turn"}}


async def test_a_plan_is_shown_as_it_changes_and_the_last_one_when_the_session_is_loaded(tmp_path: Path):
    plan = {"start_task": [{"result": {}}, planned(*BEFORE), planned(*AFTER), DONE]}
    runtime = python_adapter(LIAR, plan)
    await runtime.introduce()
    async with CodeSDK.open(runtimes={runtime.name: runtime}) as sdk:
        async with connected(local(sdk), Offer(runtimes=(runtime.name,))) as editor:
            await editor.hello()
            session = await editor.new(tmp_path)
            await editor.prompt(session)
            assert editor.of("plan") == [shown(*BEFORE), shown(*AFTER)]
        async with connected(local(sdk)) as again:
            await again.hello()
            await again.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
            assert again.of("plan") == [shown(*AFTER)]
