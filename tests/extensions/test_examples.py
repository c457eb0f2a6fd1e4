"""The extensions in `examples/extensions` do what they say, each in fewer than a hundred lines."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.rig import WRITE, Emitted, Extensions, both, extended, session_in, settle

from codesdk import CodeSDK, Task
from codesdk.extensions import ActionResult, ExtensionOptions, HandlerResult

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples" / "extensions"
POLICY = """
[[rules]]
id = "ask"
result = "ask"
tool = "workspace.write"
answer_by = ["extension:auto-approve"]
"""


def example(name: str, **options: Any) -> ExtensionOptions:
    return ExtensionOptions(roots=(str(EXAMPLES / name),), **options)


@pytest.mark.parametrize("name", ["auto-approve", "needs-answer"])
def test_an_example_is_short(name: str):
    assert len((EXAMPLES / name / "events.py").read_text().splitlines()) < 100


def write(path: str) -> dict[str, Any]:
    return {"call": {"tool": "workspace.write", "input": {"path": path, "content": "x"}}}


async def approved(
    ext: Extensions, tmp_path: Path, value: Any, path: str = "a.txt", calls: int = 1
) -> list[str]:
    """Return what became of the calls of a session with this setting: who answered each."""
    turns = [*([write(path)] for _ in range(calls)), [{"text": "Done."}]]
    async with extended(ext, tmp_path, turns, policy=POLICY, options=example("auto-approve")) as sdk:
        session = await session_in(sdk, tmp_path)
        await session.set(values={"auto_approve": value})
        return await answers(sdk, await session.start("Go."))


async def answers(sdk: CodeSDK, task: Task) -> list[str]:
    """Run a task, and return who answered each of its questions. A person denies what the extension leaves open."""
    emitted = Emitted(sdk)
    answered: list[str] = []
    async for event in task.events():
        if event.type == "approval.requested":
            await settle(sdk)
            last = emitted.all[-1][1][-1]
            if not (isinstance(last, ActionResult) and last.status == "performed"):
                await task.deny(event.payload.tool_call_id or "")
        elif event.type == "approval.answered":
            answered.append(event.payload.by.kind)
    return answered


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CODESDK_AUTO_APPROVE_STATE", str(tmp_path / "state" / "spent.json"))
    return tmp_path / "state" / "spent.json"


def spent(state: Path) -> list[int]:
    """Return how much each session has spent."""
    return [len(events) for events in json.loads(state.read_text()).values()]


async def test_auto_approve_answers_within_its_paths_and_its_budget(
    ext: Extensions, tmp_path: Path, state: Path
):
    setting = {"paths": ["*.txt"], "budget": 2}
    assert await approved(ext, tmp_path, setting, calls=3) == ["extension", "extension", "user"]
    assert spent(state) == [2]


async def test_a_restart_does_not_fill_the_budget_of_auto_approve_up_again(
    ext: Extensions, tmp_path: Path, state: Path
):
    half = [[write("a.txt")], [write("b.txt")], [{"text": "Done."}]]
    answered: list[str] = []
    session_id = ""
    for _ in range(2):
        async with extended(
            ext, tmp_path, half * 2, policy=POLICY, stored=True, options=example("auto-approve")
        ) as sdk:
            session = await sdk.session(session_id) if session_id else await session_in(sdk, tmp_path)
            session_id = session.id
            await session.set(values={"auto_approve": {"paths": ["*.txt"], "budget": 3}})
            answered += await answers(sdk, await session.start("Go."))
    assert answered == ["extension", "extension", "extension", "user"]
    assert spent(state) == [3]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (None, "a.txt"),
        ("yes", "a.txt"),
        ({"paths": ["*.md"], "budget": 5}, "a.txt"),
        ({"paths": ["*"], "budget": 5}, "b/../a.txt"),
        ({"paths": ["*.txt"]}, "a.txt"),
        ({"paths": "*.txt", "budget": 5}, "a.txt"),
        ({"paths": ["*.txt"], "budget": "5"}, "a.txt"),
    ],
)
async def test_auto_approve_leaves_everything_else_to_people(
    ext: Extensions, tmp_path: Path, state: Path, value: Any, path: str
):
    assert await approved(ext, tmp_path, value, path) == ["user"]


@both
async def test_needs_answer_runs_its_command_for_each_question(
    ext: Extensions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    told = tmp_path / "told.json"
    code = "import json, sys; open(sys.argv[1], 'w').write(json.dumps([sys.argv[2], json.load(sys.stdin)]))"
    (tmp_path / "tell.py").write_text(code)
    monkeypatch.setenv("CODESDK_NOTIFY_COMMAND", f"{sys.executable} {tmp_path / 'tell.py'} {told}")
    options = example("needs-answer", hosting=ext.hosting, environment=["CODESDK_NOTIFY_COMMAND"])
    async with extended(ext, tmp_path, [[WRITE], [{"text": "Done."}]], options=options) as sdk:
        emitted = Emitted(sdk)
        session = await session_in(sdk, tmp_path)
        task = await session.start("Go.")
        async for event in task.events():
            if event.type == "approval.requested":
                await settle(sdk)
                summary, about = json.loads(told.read_text())
                assert summary == event.payload.summary
                assert about["session"]["id"] == session.id
                assert about["question"]["approval_id"] == event.payload.approval_id
                await task.deny(event.payload.tool_call_id or "")
    (result,) = emitted.of("approval.requested")
    assert isinstance(result, HandlerResult)
    assert result.value == {"notified": True}
