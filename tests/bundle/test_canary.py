"""Secrets put in through every entrance: no byte of a bundle has one, not even of those that only became known later."""

import gzip
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.bundle.unpacked import Unpacked
from tests.cli.shell import Shell
from tests.engine.test_redaction_in_engine import SECRETS, LeakyTools, leaky
from tests.stored import everything

from codesdk import ArtifactBlock, CodeSDK, Message, SessionSettings, Text
from codesdk.bundle import Origin, write_bundle
from codesdk.contract.events import OutputCompleted, RuntimeNotice
from codesdk.contract.messages import Text as TextBlock
from codesdk.contract.ports import FileChange, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.runtime import Draft, Identified
from codesdk.redaction.redactor import Redactor
from codesdk.testing.fakes import FakeRuntime, FakeTask, FakeTools, call, done

WORD = "canary-5d2e-of-the-operator"
QUOTED = 'quo"te\\and-é-ñ-canary'
DIGITS = "90871234509871"
KEYS = [
    "sk-ant-api03-canary0123456789abcdef",
    "ghp_canary0123456789abcdefghij",
    "AKIACANARY0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnkiOjF9.c2lnbmF0dXJlLWNhbmFyeQ",
]
PASSWORD = "pass-canary-in-a-url"
TOLD = [WORD, QUOTED, DIGITS]
ALL = " ".join([*TOLD, *KEYS, f"https://me:{PASSWORD}@example.org/x"])
BINARY = b"\xff\xfe" + WORD.encode() + b"\x00\xff"


class Tools(FakeTools):
    """Tools that say secrets in every way that a tool has."""

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        await super().run(call, output)
        for at in range(0, len(ALL), 7):
            output("stdout", ALL[at : at + 7])
        output("stderr", ALL)
        change = FileChange(path=f"{WORD}.txt", diff=f"+{ALL}\n")
        result = {"text": ALL, WORD: [ALL], "number": int(DIGITS), "large": ALL * 500}
        return ToolRun(result=result, changes=[change], exit_code=0)


async def talk(task: FakeTask) -> AsyncIterator[Any]:
    """Say secrets in every way that a runtime has, the number as a number."""
    yield Identified(runtime_session_id=ALL, model=WORD)
    yield Draft(
        OutputCompleted(message_id="m1", content=[TextBlock(text=ALL)]), raw={WORD: ALL, "n": int(DIGITS)}
    )
    yield Draft(RuntimeNotice(kind="warning", message=ALL, details={WORD: [int(DIGITS), ALL]}))
    await task.host.put_artifact(ALL.encode(), "text/plain", WORD)
    await task.host.put_artifact(BINARY, "application/octet-stream", "binary")
    yield call("fake.write", {"key": ALL, WORD: int(DIGITS)}, "c1")
    await task.reply("c1")
    yield call(WORD, {}, "c2")
    await task.reply("c2")
    yield done()


async def fill(data_dir: Path, **options: Any) -> str:
    """Run a session that has secrets at every entrance. Return its id."""
    async with CodeSDK.open(
        data_dir, runtimes={"fake": FakeRuntime(talk)}, tools=Tools(), allow_yolo=True, **options
    ) as sdk:
        upload = await sdk.put_artifact(ALL.encode(), "text/plain", WORD)
        session = await sdk.create_session(
            runtime="fake",
            workspace=data_dir,
            permission_mode="yolo",
            title=ALL,
            model=WORD,
            settings=SessionSettings(runtime_config={"prompt": ALL, WORD: {"n": int(DIGITS)}}),
        )
        block = ArtifactBlock(artifact_id=upload.artifact_id)
        await (await session.start([Message(role="user", content=[Text(text=ALL), block])])).result()
        await session.close(ALL)
    state = data_dir / "runtimes" / "ns-local" / "fake" / session.id
    state.mkdir(parents=True)
    (state / "config.toml").write_text(ALL)
    (state / f"{WORD}.json").write_text(ALL)
    return session.id


def leaks(data: bytes) -> list[str]:
    """Return the secrets that bytes hold in any spelling."""
    spelled = {QUOTED, QUOTED.encode("unicode_escape").decode(), 'quo\\"te\\\\and-é-ñ-canary'}
    wanted = [WORD, DIGITS, PASSWORD, *KEYS, *spelled]
    return [secret for secret in wanted if secret.encode() in data]


def test_the_check_finds_what_it_looks_for():
    assert len(leaks(ALL.encode() + BINARY)) == 4 + len(KEYS)


async def test_what_was_known_when_it_happened_is_in_no_byte_of_the_bundle(tmp_path: Path):
    session_id = await fill(tmp_path, secrets=TOLD)
    async with CodeSDK.open(tmp_path, secrets=TOLD) as sdk:
        target = io.BytesIO()
        await sdk.write_bundle(session_id, target)
    bundle = Unpacked(target.getvalue())
    assert leaks(bundle.bytes) == []
    assert bundle.bytes.count(b"[redacted]") > 50
    assert bundle.json("verify.json")["ok"] is True


async def test_what_became_known_later_is_taken_out_of_everything_that_was_stored_before(tmp_path: Path):
    session_id = await fill(tmp_path)
    async with CodeSDK.open(tmp_path) as sdk:
        target = io.BytesIO()
        origin = Origin(archive=sdk.archive, redactor=Redactor(TOLD), data_dir=tmp_path)
        manifest = await write_bundle(target, origin, session_id)
    bundle = Unpacked(target.getvalue())
    assert {WORD, DIGITS} <= set(leaks(everything(tmp_path))), (
        "it was stored, so there is something to take out"
    )
    assert leaks(bundle.bytes) == []
    assert {file.path for file in manifest.files} >= {"config.json", "transcript.json", "runtime.json"}
    assert len(bundle.events) == manifest.last_seq


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"])
async def test_the_command_knows_the_keys_of_its_environment(tmp_path: Path, name: str):
    session_id = await fill(tmp_path)
    shell = Shell(tmp_path)
    ran = shell.spawn("--data-dir", str(tmp_path), "bundle", session_id, "-o", "b.tar.gz", **{name: WORD})
    assert (ran.code, ran.err) == (0, "")
    assert WORD.encode() not in gzip.decompress((tmp_path / "b.tar.gz").read_bytes())
    assert WORD not in ran.out


@pytest.mark.slow
async def test_the_engines_own_leaky_session_leaks_nothing_into_its_bundle(tmp_path: Path):
    tools = LeakyTools()
    async with CodeSDK.open(
        tmp_path, runtimes={"fake": FakeRuntime(leaky)}, tools=tools, secrets=SECRETS, allow_yolo=True
    ) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, permission_mode="yolo")
        task = await session.start("Say it.")
        async for event in session.events():
            if event.type == "tool.call.denied" or event.type in ("task.failed", "task.stopped"):
                break
        target = io.BytesIO()
        await sdk.write_bundle(session.id, target)
        await task.stop("enough")
    data = gzip.decompress(target.getvalue())
    assert [secret for secret in SECRETS if secret.encode() in data] == []
    assert data.count(b"[redacted]") > 20
