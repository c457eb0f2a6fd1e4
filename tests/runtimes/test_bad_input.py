"""What can go wrong with a program, its login or its model: each ends in the right code, and says what to do next."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.runtimes.alone import alone, left_behind, tried_outside

from codesdk import CodeSDK, CodeSDKError, Session, SessionSettings
from codesdk.contract.runtime import Runtime
from codesdk.runtimes.claude.adapter import ClaudeRuntime
from codesdk.runtimes.codex.adapter import CodexRuntime
from codesdk.script import parse_object

PROGRAMS = {"claude-agent-sdk": "claude", "codex-sdk": "codex"}
INSTALLS = {"claude": "pip install 'codesdk[claude]'", "codex": "pip install 'codesdk[codex]'"}
VERSIONS = {"claude": "2.1.325", "codex": "0.163.0"}
KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY"}


class Bad(NamedTuple):
    """A line of the list: what the model answers with, if it is about that, the code, and words of the message."""

    steps: list[dict[str, Any]] | None
    code: str
    says: str
    """With `{install}`, `{version}` and `{key}` of the program."""


def http(status: int, message: str = "") -> list[dict[str, Any]]:
    return [{"http": {"status": status, "message": message or f"HTTP {status}", "retry_after_s": 0}}]


BAD: dict[str, Bad] = {
    "program missing": Bad(None, "RUNTIME_UNAVAILABLE", "Install it with: {install}"),
    "program of the wrong version": Bad(
        None,
        "RUNTIME_UNAVAILABLE",
        "is version 1.0.7, and {version} is the one that was tested. Check this version with: codesdk runtimes certify",
    ),
    "no login": Bad(None, "AUTH_REQUIRED", "Set {key} where CodeSDK runs; or store a key: codesdk keys add"),
    "expired login": Bad(http(401, "The login has expired"), "AUTH_FAILED", "{key}"),
    "key refused": Bad(http(401, "invalid key"), "AUTH_FAILED", "The provider refused the key; check {key}"),
    "model unknown": Bad(http(404, "no such model"), "MODEL_ERROR", "choose another model"),
    "rate limited": Bad(http(429), "RATE_LIMITED", "ry again"),
    "context too large": Bad([{"context_too_large": True}], "CONTEXT_TOO_LARGE", "`codesdk compact`"),
    "stream cut": Bad([{"text": "Half. "}, {"reset": True}], "MODEL_ERROR", "Try again."),
    "program killed": Bad(
        [{"text": "Half. "}, {"silence": True}], "RUNTIME_CRASHED", "Start the task again."
    ),
    "program hung": Bad(
        [{"text": "Half. "}, {"silence": True}], "TIMEOUT", "Try again, or raise idle_timeout_s."
    ),
    "garbage on its stdout": Bad(None, "RUNTIME_PROTOCOL", "Try again, or install it again."),
}
SIGNALS = {"program killed": signal.SIGKILL, "program hung": signal.SIGSTOP}
IDLE_S = {"program hung": 5.0}
PRETENDING = {
    "program of the wrong version": "print('1.0.7 (Somebody Else)')",
    "garbage on its stdout": """
import os, sys, time
if "--version" in sys.argv:
    print({version!r})
elif "models" in sys.argv:
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
else:
    print("Welcome! There is a newer version.", flush=True)
    time.sleep(600)
""",
}
"""Programs that stand in for the real one."""


@pytest.fixture(autouse=True)
def loopback_only(tmp_path: Path) -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0
        assert left_behind(tmp_path) == []


async def program_for(line: str, program: str, folder: Path) -> str | None:
    """Return the path of the program that is driven for a line of the list; None is the real one."""
    if line == "program missing":
        return str(folder / "nowhere")
    if line not in PRETENDING:
        return None
    real: Any = ClaudeRuntime() if program == "claude" else CodexRuntime()
    code = PRETENDING[line].format(version=VERSIONS[program], real=(await real.find()).path)
    path = folder / program
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(0o755)
    return str(path)


def pid_of(runtime: Any, session: Session) -> int:
    """Return the process that a session's program runs in."""
    if isinstance(runtime, ClaudeRuntime):
        return runtime._live[session.id].process.pid
    return runtime._servers[session.id].child.pid


async def failure(line: str, runtime: Runtime, folder: Path) -> CodeSDKError:
    """Return what a task ends with."""
    # What never comes to ask a model needs somebody who would pay, or a task would not begin.
    steps = BAD[line].steps or ([{"text": "Never."}] if line != "no login" else None)
    plays = parse_object({"turns": [{"steps": steps}] * 12}, line) if steps else None
    workspace = folder / "workspace"
    workspace.mkdir()
    async with CodeSDK.open(folder / "data", runtimes={runtime.name: runtime}, providers={}) as sdk:
        settings = SessionSettings(idle_timeout_s=IDLE_S.get(line, 900.0))
        session = await sdk.create_session(
            runtime=runtime.name, workspace=workspace, plays=plays, settings=settings
        )
        task = await session.start("Hello.")
        if line in SIGNALS:
            async for event in task.events():
                if event.type == "model.output.delta":
                    os.killpg(pid_of(runtime, session), SIGNALS[line])
                    break
        with pytest.raises(CodeSDKError) as caught:
            await task.result()
        if line in SIGNALS:
            assert left_behind(folder) == []
    return caught.value


@pytest.mark.parametrize("line", BAD)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_it_ends_in_the_right_code_and_says_what_to_do(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if line == "garbage on its stdout":  # nobody is to wait that long for an answer that never comes
        monkeypatch.setattr("codesdk.runtimes.claude.live.START_S", 1.0)
        monkeypatch.setattr("codesdk.runtimes.codex.server.REQUEST_S", 1.0)
    program = PROGRAMS[name]
    given = await program_for(line, program, tmp_path)
    runtime: Any = ClaudeRuntime(given, max_retries=1) if program == "claude" else CodexRuntime(given)
    error = await failure(line, runtime, tmp_path)
    said = BAD[line].says.format(install=INSTALLS[program], version=VERSIONS[program], key=KEYS[program])
    assert (error.code, said in error.message) == (BAD[line].code, True), error.message
