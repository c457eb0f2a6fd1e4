"""A program that says it is opencode, and does what that never should: each ends as it must, and nothing is left behind."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtimes.alone import alone, left_behind, tried_outside
from tests.runtimes.opencode import pretender
from tests.runtimes.opencode.rig import notices, payloads

from codesdk import CodeSDK, CodeSDKError
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.runtimes.opencode.adapter import OpencodeRuntime
from codesdk.runtimes.program.pinned import OPENCODE
from codesdk.script import parse_object

NEVER = parse_object({"turns": [{"steps": [{"text": "Never."}]}]}, "a test")


@pytest.fixture(autouse=True)
def loopback_only(tmp_path: Path) -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0
        assert left_behind(tmp_path) == []


def pretending(folder: Path, mode: str, version: str = OPENCODE.version) -> str:
    """Return a program that does what a mode asks for."""
    code = Path(pretender.__file__).read_text()
    code = code.replace('MODE = "MODE"', f"MODE = {mode!r}").replace(
        'VERSION = "VERSION"', f"VERSION = {version!r}"
    )
    path = folder / "opencode"
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(0o755)
    return str(path)


async def played(
    folder: Path, program: str, *, stops: bool = False, allow_untested: bool = True
) -> tuple[str | CodeSDKError, list[Event]]:
    """Run one task, and stop it at its first words if it `stops`. Return its text or its error, and the log."""
    runtime = OpencodeRuntime(program)
    (folder / "workspace").mkdir()
    async with (
        asyncio.timeout(60),
        CodeSDK.open(
            folder / "data",
            runtimes={runtime.name: runtime},
            providers={},
            allow_untested=allow_untested,
        ) as sdk,
    ):
        session = await sdk.create_session(runtime=runtime.name, workspace=folder / "workspace", plays=NEVER)
        task = await session.start("Hello.")
        if stops:
            async for event in task.events():
                if event.type == "model.output.delta":
                    await task.stop()
        try:
            outcome: str | CodeSDKError = (await task.result()).text
        except CodeSDKError as error:
            outcome = error
        return outcome, [decode(frame.data) async for frame in sdk.archive.frames(session.id)]


def replies(events: list[Event]) -> list[str]:
    """Return the answers to the program's questions, as it repeats them."""
    kept = [event for event in events if event.type == "runtime.notice" and event.payload.kind == "signal"]
    told = [event.runtime.raw for event in kept if event.runtime is not None]
    return [raw["properties"]["reply"] for raw in told if raw["type"] == "permission.replied"]


@pytest.mark.parametrize(
    ("mode", "code", "says"),
    [
        (
            "never says its port",
            "RUNTIME_PROTOCOL",
            "did not answer within 2 s. Try again, or install it again.",
        ),
        ("dies at once", "RUNTIME_CRASHED", "with code 5. Start the task again. It wrote: no space left"),
        ("dies when it is greeted", "RUNTIME_CRASHED", "with code 4. Start the task again."),
        ("dies in a task", "RUNTIME_CRASHED", "with code 3. Start the task again."),
        ("hangs up on its events", "RUNTIME_CRASHED", "Start the task again."),
        ("answers garbage", "RUNTIME_PROTOCOL", "opencode refused a request: GET /global/health: 200 <html>"),
        ("answers at length", "MODEL_ERROR", "more than 67,108,864 bytes"),
        (
            "ignores its rules",
            "RUNTIME_PROTOCOL",
            "it did not take the rules for its tools. Install it again.",
        ),
        ("has no tools", "RUNTIME_PROTOCOL", "it could not reach its tools (no). Install it again."),
        ("runs a tool", "FORBIDDEN", "opencode used something of its own that is switched off (bash)"),
        ("asks for a tool", "FORBIDDEN", "is switched off (bash, which was refused)"),
    ],
)
async def test_it_ends_in_the_right_code_and_says_what_to_do(
    mode: str, code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if mode == "never says its port":  # nobody is to wait that long for an answer that never comes
        monkeypatch.setattr("codesdk.runtimes.opencode.server.START_S", 2.0)
    error, _ = await played(tmp_path, pretending(tmp_path, mode))
    assert isinstance(error, CodeSDKError)
    assert (error.code, says in error.message) == (code, True), error.message


@pytest.mark.parametrize("version", ["1.18.35", "2.0.1", "None"])
async def test_a_version_that_nobody_knows_is_refused(tmp_path: Path, version: str):
    error, _ = await played(tmp_path, pretending(tmp_path, "well", version))
    assert isinstance(error, CodeSDKError)
    assert error.code == "RUNTIME_PROTOCOL"
    assert f"it says that it is version {version}, and not {OPENCODE.version}" in error.message


async def test_a_program_that_belongs_to_no_package_needs_the_operators_permission(tmp_path: Path):
    error, _ = await played(tmp_path, pretending(tmp_path, "well"), allow_untested=False)
    assert isinstance(error, CodeSDKError)
    assert error.code == "RUNTIME_UNAVAILABLE"
    assert f"is of an unknown version, and {OPENCODE.version} is the one that was tested" in error.message


async def test_a_missing_program_says_what_installs_it(tmp_path: Path):
    error, _ = await played(tmp_path, str(tmp_path / "nowhere"))
    assert isinstance(error, CodeSDKError)
    assert error.code == "RUNTIME_UNAVAILABLE"
    assert "Install it with: codesdk runtimes install opencode" in error.message


@pytest.mark.parametrize("mode", ["floods", "sends a large event", "sends garbage events"])
async def test_events_that_nobody_understands_are_noted_and_the_task_goes_on(tmp_path: Path, mode: str):
    text, events = await played(tmp_path, pretending(tmp_path, mode))
    assert text == "Hello."
    noted = [notice for notice in notices(events) if notice.kind == "unknown_frame"]
    assert 0 < len(noted) < 100
    assert all(len(str(event.runtime.raw)) < 10_000 for event in events if event.runtime is not None)
    if mode == "sends a large event":
        [notice] = noted
        assert notice.details["size"] > 100_000_000


async def test_a_question_about_our_tool_is_allowed_at_once_and_for_this_once(tmp_path: Path):
    text, events = await played(tmp_path, pretending(tmp_path, "asks for ours"))
    assert text == "Hello."
    assert replies(events) == ["once"]


async def test_a_question_that_waits_is_refused_when_the_task_is_stopped(tmp_path: Path):
    _, events = await played(tmp_path, pretending(tmp_path, "leaves a question"), stops=True)
    assert replies(events) == ["reject"]
    assert events[-1].type == "task.stopped"


async def test_what_opencode_ran_by_itself_is_on_record(tmp_path: Path):
    _, events = await played(tmp_path, pretending(tmp_path, "runs a tool"))
    assert [(p.name, p.input) for p in payloads(events, "tool.call.requested")] == [
        ("bash", {"command": "id"})
    ]
    assert [(p.executed_by, p.outcome) for p in payloads(events, "tool.call.completed")] == [
        ("runtime", "unknown")
    ]
    assert "violation" in [notice.kind for notice in notices(events)]
