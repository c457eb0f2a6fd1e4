"""Secrets in a session of the real programs, then a search through the whole data directory, their own folders included.

A program is told nothing that holds a known secret: the user's words, files, results and settings are redacted before
it sees them, and the provider's key is the gateway's alone. What the model says reaches it as it is, or it could not
do what the model wants, and it writes that down. So that lies in its own folder, for the owner only, while the session
is loaded; when the program has ended, the folder is emptied if a secret is in it.
"""

import asyncio
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.canaries import KNOWN, LATER, PASSWORD, PATTERNS, PROVIDER, files, leaks
from tests.runtimes.alone import alone

from codesdk import ArtifactBlock, CodeSDK, Message, Session, SessionSettings, Text
from codesdk.contract.models import STAND_IN
from codesdk.contract.runtime import Runtime
from codesdk.runtimes.claude.adapter import ClaudeRuntime
from codesdk.runtimes.codex.adapter import CodexRuntime
from codesdk.runtimes.opencode.adapter import OpencodeRuntime
from codesdk.script import Script, parse_object

TOLD = " ".join([KNOWN, PROVIDER, *PATTERNS.values(), f"https://me:{PASSWORD}@example.org/x"])
"""What everybody but the model says."""
SAID = "canary-that-the-model-says-3ac1"
KEY = "sk-ant-api03-saidbythemodel0123456789"
THINKS = {"reasoning": f"The key is {SAID}."}
SAYS = {"text": f"I say {SAID} and {KEY}. "}
READS = {"call": {"tool": "workspace.read", "input": {"path": "notes.txt"}, "id": "r1"}}
WRITES = {"call": {"tool": "workspace.write", "input": {"path": "out.txt", "content": SAID}, "id": "w1"}}
PROGRAMS: dict[str, type[ClaudeRuntime | CodexRuntime | OpencodeRuntime]] = {
    "claude": ClaudeRuntime,
    "codex": CodexRuntime,
    "opencode": OpencodeRuntime,
}
INSTRUCTIONS = {"claude": "CLAUDE.md", "codex": "AGENTS.md", "opencode": "AGENTS.md"}
COPIES = {"claude": "*.jsonl", "codex": "*.jsonl", "opencode": "opencode.db*"}
"""The files in which a program writes down what was said."""
TOKENS = {"claude": set[str](), "codex": {"config.toml", "logs_2"}, "opencode": {"opencode.log"}}
"""The files in which a program that runs has the addresses that it uses."""


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, PROVIDER)
    with alone():
        yield


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    for name in ("notes.txt", *INSTRUCTIONS.values()):
        (folder / name).write_text(f"{name}: {TOLD}\n")
    return folder


def script(*turns: list[Any]) -> Script:
    return parse_object({"turns": [{"steps": steps} for steps in turns]}, "the test")


async def talk(sdk: CodeSDK, runtime: Runtime, workspace: Path, plays: Script) -> Session:
    """Run a task that has secrets in everything that a program is given."""
    session = await sdk.create_session(
        runtime=runtime.name,
        workspace=workspace,
        plays=plays,
        permission_mode="yolo",
        secrets=[KNOWN, SAID],
        settings=SessionSettings(implicit_sources="capture", runtime_config={"system_prompt": TOLD}),
    )
    content: list[Any] = [Text(text=TOLD)]
    if runtime.name == "claude-agent-sdk":
        upload = await sdk.put_artifact(TOLD.encode(), "text/plain", "notes")
        content.append(ArtifactBlock(artifact_id=upload.artifact_id, content_type="text/plain"))
    task = await session.start([Message(role="user", content=content)])
    assert (await task.result()).state == "completed"
    return session


async def tokens(sdk: CodeSDK, session: Session) -> list[str]:
    """Return the tokens that the session gave its program: its address at the gateway, and at the tools."""
    known = (await sdk.engine.redactor_of(session.id)).secrets
    found = [secret for secret in known if secret not in (KNOWN, SAID, PROVIDER, LATER, STAND_IN)]
    assert len(found) == 2
    return found


def places(data: Path, words: list[str]) -> set[tuple[str, str]]:
    """Return in which of the runtime's files which words are, and hold all else to have none."""
    found = leaks(dict(files(data)), words)
    inside = {(name, word) for name, word in found if "runtimes/" in name}
    assert [each for each in found if each not in inside] == []
    return inside


async def until_written(data: Path, pattern: str, *words: str) -> None:
    """Wait until a program has written one of the words into one of its files: it does so a while after."""

    def written() -> bool:
        found = [path.read_bytes() for path in (data / "runtimes").rglob(pattern)]
        return any(word.encode() in each for each in found for word in words)

    async with asyncio.timeout(60):
        while not written():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("program", PROGRAMS)
async def test_what_the_model_says_is_in_the_programs_folder_while_the_session_is_loaded_and_nothing_else_is(
    tmp_path: Path, workspace: Path, program: str
):
    runtime, data = PROGRAMS[program](), tmp_path / "data"
    told = [KNOWN, PROVIDER, PASSWORD, *PATTERNS.values()]
    plays = script([THINKS, SAYS, READS], [WRITES], [SAYS])
    async with CodeSDK.open(data, runtimes={runtime.name: runtime}, secrets=[LATER], allow_yolo=True) as sdk:
        session = await talk(sdk, runtime, workspace, plays)
        assert (workspace / "out.txt").read_text() == SAID, "what the model wants is done as it is"
        own = await tokens(sdk, session)
        await until_written(data, COPIES[program], SAID)
        assert places(data, told) == set()
        assert {word for _, word in places(data, [SAID, KEY])} == {SAID, KEY}
        in_use = {Path(name.split(" ")[1]).name for name, _ in places(data, own) if name.startswith("file ")}
        assert {name.partition(".sqlite")[0] for name in in_use} <= TOKENS[program]
        [root] = (data / "runtimes").glob(f"*/*/{session.id}")
        assert root.stat().st_mode & 0o777 == 0o700
        bundle = io.BytesIO()
        await sdk.write_bundle(session.id, bundle)
        packed = {"bundle": gzip.decompress(bundle.getvalue())}
        assert leaks(packed, [*told, *own, SAID, KEY]) == []
    everything = [*told, *own, SAID, KEY]
    assert leaks(dict(files(data)), everything) == []
    async with CodeSDK.open(data, runtimes={runtime.name: runtime}, allow_yolo=True) as sdk:
        again = await sdk.session(session.id, secrets=[KNOWN, SAID], plays=script([{"text": "Yes."}]))
        assert (await (await again.start("Still there?")).result()).text == "Yes."
        await again.close("enough")
        assert leaks(dict(files(data)), everything) == []
        await sdk.delete_session(session.id)
    assert list((data / "runtimes").glob(f"*/*/{session.id}")) == []


@pytest.mark.parametrize("program", PROGRAMS)
async def test_what_a_program_wrote_down_stays_if_the_model_said_no_secret_and_has_no_token_in_it(
    tmp_path: Path, workspace: Path, program: str
):
    runtime, data = PROGRAMS[program](), tmp_path / "data"
    async with CodeSDK.open(data, runtimes={runtime.name: runtime}, secrets=[LATER], allow_yolo=True) as sdk:
        session = await talk(sdk, runtime, workspace, script([READS], [{"text": "Done."}]))
        own = await tokens(sdk, session)
        if program == "codex":
            await until_written(data, "logs_*", *own)
    assert leaks(dict(files(data)), [*own, KNOWN, PROVIDER, PASSWORD, *PATTERNS.values()]) == []
    copies = [path.read_bytes() for path in (data / "runtimes").rglob(COPIES[program])]
    assert any(b"Done." in copy and b"[redacted]" in copy for copy in copies)
