"""A known secret may pass through the engine anywhere; nothing of it is ever stored or shown."""

import base64
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.acting import create_session
from tests.engine.rig import Rig, rig, texts
from tests.stored import stored

from codesdk import CodeSDK, Session, SessionSettings, Task, TaskFailure
from codesdk.contract import events as ev
from codesdk.contract.messages import Reasoning, Text
from codesdk.contract.ports import FileChange, PolicyQuestion, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.runtime import Draft, Identified, RuntimeItem, ToolReply
from codesdk.contract.settings import SessionConfig
from codesdk.contract.tools import Evaluation
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.policy.modes import ModePolicy
from codesdk.testing.fakes import FakeRuntime, FakeTask, FakeTools, call, delta, done, message

CANARY = "canary-7f3a9c-of-ours"
QUOTED = 'quo"te\\and-é-ñ'
SECRETS = [CANARY, QUOTED]
SPELLED = "".join(f"\\u{ord(letter):04x}" for letter in CANARY)
BASIC = base64.b64encode(f"me:{CANARY}!".encode()).decode()
IN_URL = "".join(f"%{ord(letter):02x}" for letter in CANARY)
ENCODED = f"Basic {BASIC} {CANARY.encode().hex()} ?k={IN_URL}"
BOTH = f'{CANARY} and {QUOTED}, or {{"key":"{SPELLED}"}}, {ENCODED}'


def pieces(text: str, size: int = 5) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


async def leaky(task: FakeTask, size: int = 5) -> AsyncIterator[RuntimeItem]:
    """Say the secrets in every way that a runtime has."""
    yield Identified(runtime_session_id=BOTH, model=BOTH)
    for piece in pieces(BOTH, size):
        yield delta(piece)
    yield Draft(delta("x").payload, raw={"said": BOTH, BOTH: [BOTH]})
    yield Draft(delta("x").payload, raw={"large": BOTH * 500})
    yield Draft(
        ev.OutputCompleted(message_id="m1", content=[Reasoning(text=BOTH), Text(text=BOTH)]), raw=BOTH * 500
    )
    yield Draft(ev.RuntimeNotice(kind="warning", message=BOTH, details={BOTH: {"deep": [BOTH]}}))
    odd: Any = {"no item": BOTH}
    yield odd
    bad: Any = BOTH
    yield Draft(ev.OutputDelta(kind=bad, block_id="b", message_id="m", delta=BOTH))
    await task.host.put_artifact(BOTH.encode(), "text/plain", BOTH)
    yield call("fake.write", {"key": BOTH, BOTH: 1}, "c1")
    assert await task.reply("c1") is not None
    yield call("fake.write", {"raises": BOTH * 1000}, "c2")
    yield call("fake.write", {"denied": BOTH}, "c3")
    yield call(BOTH, {}, "c4")
    yield call("fake.read", {"invalid": BOTH}, "c5")
    yield call("fake.read", {"not json": object(), "key": BOTH}, "c6")
    for name in ("c2", "c3", "c4", "c5", "c6"):
        await task.reply(name)
    await task.until(lambda: bool(task.steered))
    for piece in pieces(BOTH, size):
        yield delta(piece, "m9")
    raise RuntimeError(BOTH)


class LeakyTools(FakeTools):
    """Tools that say the secrets in every way that a tool has."""

    def __init__(self, size: int = 5) -> None:
        super().__init__()
        self.size = size

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        await super().run(call, output)
        for piece in pieces(BOTH, self.size):
            output("stdout", piece)
        if "raises" in call.input:
            raise ValueError(BOTH)
        change = FileChange(path=f"{CANARY}.txt", diff=f"+{BOTH}\n")
        return ToolRun(result={"small": BOTH, BOTH: 1, "large": BOTH * 1000}, changes=[change])


class Quoting(ModePolicy):
    """A policy that quotes what it was asked about."""

    def evaluate(self, question: PolicyQuestion) -> Evaluation:
        opinion = super().evaluate(question)
        return msgspec.structs.replace(opinion, reason=str(question.input), rule=str(question.input))


async def answer(task: Task, session: Session) -> None:
    """Approve all questions but one, and go on until nothing waits."""
    steered = False
    async for event in task.events():
        if isinstance(event.payload, ev.ApprovalRequested) and event.payload.tool_call_id:
            if "denied" in event.payload.summary:
                await session.deny(event.payload.tool_call_id, BOTH)
            else:
                await session.approve(event.payload.tool_call_id, reason=BOTH)
        ends = isinstance(event.payload, ev.ToolCallCompleted) and event.payload.runtime_tool_call_id == "c2"
        if ends and not steered:
            steered = True
            await session.steer(BOTH)


def spellings(secret: str) -> list[bytes]:
    escaped = msgspec.json.encode(secret)[1:-1]
    encoded = [secret.encode().hex().encode(), IN_URL.encode(), BASIC.encode()[4:-4]]
    return [secret.encode(), escaped, ascii(secret)[1:-1].encode(), repr(secret)[1:-1].encode(), *encoded]


def unescaped(data: bytes) -> bytes:
    """Undo the escapes of characters, whatever number of times they were quoted."""
    return re.sub(rb"\\+u00([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), data)


def leaks(data: bytes) -> list[bytes]:
    """Return the spellings of secrets in bytes."""
    plain = unescaped(data)
    return [spelling for secret in SECRETS for spelling in spellings(secret) if spelling in plain]


@pytest.mark.anyio
@pytest.mark.parametrize("scope", ["engine", "session"])
async def test_no_byte_of_a_data_directory_holds_a_known_secret(tmp_path: Path, scope: str):
    path = tmp_path / "data"
    runtime, tools = FakeRuntime(leaky), LeakyTools()
    own: Any = {"secrets": SECRETS} if scope == "engine" else {}
    async with CodeSDK.open(path, runtimes={"fake": runtime}, tools=tools, policy=Quoting(), **own) as sdk:
        session = await sdk.create_session(
            runtime="fake",
            workspace=tmp_path,
            title=BOTH,
            model=BOTH,
            settings=SessionSettings(runtime_config={"token": BOTH}),
            secrets=() if scope == "engine" else SECRETS,
            idempotency_key="k",
        )
        if scope == "engine":
            await sdk.put_artifact(BOTH.encode(), "text/plain", BOTH)
        task = await session.start(f"Use {BOTH}", idempotency_key="k")
        await answer(task, session)
        with pytest.raises(TaskFailure) as failure:
            await task.result()
        shown = b"".join([frame.data async for frame in sdk.archive.frames(session.id)])
        fork = await session.fork(title=BOTH)
        stopped = await fork.start(BOTH)
        await fork.stop(BOTH, task_id=stopped.id)
        await fork.close(BOTH)
        await session.close(BOTH)
        ids = [session.id, fork.id]
        for session_id in ids:
            assert await verify_session(sdk.archive.log, sdk.archive.blobs, session_id) == []
            assert (await replay_session(sdk.archive.log, sdk.archive.blobs, session_id))[1] == []
        rows = msgspec.json.encode([await sdk.sessions(), await sdk.approvals(), await session.transcript()])
    files = stored(path)
    assert b"[redacted]" in files["codesdk.db blobs"]
    assert {name: found for name, data in files.items() if (found := leaks(data))} == {}
    assert leaks(rows + shown + str(failure.value).encode()) == []
    assert b"[redacted]" in files["codesdk.db"]
    # Those who need the secret did get it.
    assert [run.invocation.input for run in tools.runs] == [
        {"key": BOTH, BOTH: 1},
        {"raises": BOTH * 1000},
    ]


def frames(r: Rig, session: Session) -> bytes:
    return b"\n".join(frame.data for frame in r.frames(session.id))


@pytest.mark.parametrize("life", ["recovered", "reopened", "live"])
def test_secrets_that_are_given_again_are_kept_out_again(life: str):
    with rig() as r:
        session = r.open("yolo", secrets=(CANARY,))
        r.start(session)
        if life == "recovered":
            r.crash()
        elif life == "reopened":
            r.reopen()
        else:
            r.emit(done())
        session = r.get(r.sdk.session(session.id, secrets=[CANARY, "another-secret"]))
        r.start(session, f"{CANARY} and another-secret")
        r.emit(*map(delta, pieces(f"{CANARY} and another-secret")), done())
        assert CANARY.encode() not in frames(r, session)
        assert b"another-secret" not in frames(r, session)
        said = [m for m in texts(r.get(session.transcript())) if m[0] != "tool"]
        assert said[-2:] == [
            ("user", "[redacted] and [redacted]"),
            ("assistant", "[redacted] and [redacted]"),
        ]


def test_a_session_found_again_by_its_key_has_its_secrets_again():
    with rig() as r:
        wanted = SessionConfig(runtime="fake", workspace="/workspace")
        first = r.get(create_session(r.engine, wanted, secrets=iter([CANARY]), key="k"))
        r.reopen()
        again = r.get(create_session(r.engine, wanted, key="k"))
        assert again.session_id == first.session_id
        session = r.handle(again.session_id)
        r.start(session, CANARY)
        assert CANARY.encode() not in frames(r, session)


def test_a_delta_is_held_back_only_as_long_as_it_may_be_a_secret():
    with rig(secrets=(CANARY,)) as r:
        session = r.open()
        r.start(session)
        r.emit(delta("my can"), delta("ary bird"))
        assert "".join(p.delta for p in r.all(session, ev.OutputDelta)) == "my canary bird"
        r.emit(delta(" and my " + CANARY[:8]))
        r.emit(done())
        assert r.ended(session)[0].text == "my canary bird and my " + CANARY[:8]


def test_a_redacted_input_is_run_as_it_was_given_and_hashed_as_it_is_stored():
    with rig(secrets=(CANARY,)) as r:
        session = r.open("yolo")
        r.start(session)
        r.emit(call("fake.read", {"key": CANARY}), message("Done."), done())
        requested = r.one(session, ev.ToolCallRequested)
        assert (requested.input, requested.input_redacted) == ({"key": "[redacted]"}, True)
        assert [run.input for run in r.tools.invocations] == [{"key": CANARY}]
        assert r.play.replies == {"c1": ToolReply(result="ok", is_error=False)}
