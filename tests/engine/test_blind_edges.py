"""With every redaction before it taken away, the choke point alone keeps secrets out of all that is stored or shown.

What it cannot do is left to the edges: a secret that comes in pieces (each delta is an event of its own), and hashes
that were taken of the unredacted form.
"""

import io
import logging
import tarfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.acting import follow, live_session
from tests.engine.test_redaction_in_engine import (
    BOTH,
    CANARY,
    SECRETS,
    LeakyTools,
    Quoting,
    answer,
    leaks,
    leaky,
)
from tests.extensions.jobs_rig import Watched
from tests.extensions.rig import Extensions
from tests.stored import stored

from codesdk import CodeSDK, Session, SessionSettings, TaskFailure
from codesdk.contract.models import ExactInput, ExactPart, ModelAnswered, ModelAsked, Tokens
from codesdk.contract.runtime import RuntimeItem
from codesdk.contract.tools import ANSWER_TOOL
from codesdk.engine.sessions.scope import SessionScope
from codesdk.redaction import Redactor, StreamRedactor
from codesdk.testing.fakes import FakeRuntime, FakeTask, call, done

WHOLE = 100_000


class _Open(StreamRedactor):
    def feed(self, delta: str) -> str:
        return delta

    def flush(self) -> str:
        return ""


class Blind(Redactor):
    """A redactor that finds nothing."""

    def text(self, text: str) -> str:
        return text

    def value(self, value: Any) -> Any:
        return value

    def data(self, data: bytes) -> bytes:
        return data

    def suspects(self, text: str) -> bool:
        return False

    def stream(self) -> StreamRedactor:
        return _Open(self)


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the redactor away from all who redact before something is stored, and from the bundle."""

    async def nothing(sdk: CodeSDK, session_id: str) -> Redactor:
        return Blind(SECRETS)

    monkeypatch.setattr(SessionScope, "redactor", property(lambda scope: Blind(SECRETS)))
    monkeypatch.setattr(CodeSDK, "_redactor_of", nothing)


async def leak_models(sdk: CodeSDK, session: Session) -> None:
    """Have the gateway tell of a request with secrets in all of its parts."""
    tap = (await live_session(sdk.engine, session.id)).resources.tap
    asked = ModelAsked(purpose="main", model=BOTH, content=1)
    request_id = await tap.opened(asked)
    assert isinstance(request_id, str)
    part = ExactPart("sha256:" + "0" * 64, msgspec.json.encode({"content": BOTH}))
    exact = ExactInput(
        wire="anthropic",
        fields={"system": BOTH, BOTH: 1},
        parts={"messages": [part]},
        tools=[],
        estimated_tokens=1,
        overhead_tokens=1,
        sources={"sources": [{"origin": BOTH}]},
    )
    await tap.taken(request_id, exact)
    tap.closed(request_id, ModelAnswered(status="completed", duration_ms=1, model=BOTH, usage=Tokens()))
    await tap.keep(msgspec.json.encode({"answer": BOTH}))


async def bundle(sdk: CodeSDK, session: Session) -> bytes:
    """Return all that is in a session's bundle."""
    target = io.BytesIO()
    await sdk.write_bundle(session.id, target)
    with tarfile.open(fileobj=io.BytesIO(target.getvalue())) as archive:
        files = [archive.extractfile(member) for member in archive.getmembers()]
        return b"\n".join(file.read() for file in files if file is not None)


@pytest.mark.anyio
@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("scope", ["engine", "session"])
async def test_no_secret_is_stored_or_shown_if_every_edge_is_blind(
    tmp_path: Path, scope: str, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "data"
    runtime, tools = FakeRuntime(partial(leaky, size=WHOLE)), LeakyTools(WHOLE)
    own: Any = {"secrets": SECRETS} if scope == "engine" else {}
    shown: list[bytes] = []
    with caplog.at_level(logging.WARNING, "codesdk.redaction"):
        async with CodeSDK.open(
            path, runtimes={"fake": runtime}, tools=tools, policy=Quoting(), **own
        ) as sdk:
            session = await sdk.create_session(
                runtime="fake",
                workspace=tmp_path,
                title=BOTH,
                model=BOTH,
                settings=SessionSettings(runtime_config={"token": BOTH}),
                secrets=() if scope == "engine" else SECRETS,
            )
            task = await session.start(f"Use {BOTH}")
            await answer(task, session)
            with pytest.raises(TaskFailure) as failure:
                await task.result()
            await leak_models(sdk, session)
            shown += [frame.data async for frame in sdk.archive.frames(session.id)]
            live = await live_session(sdk.engine, session.id)
            async for batch in follow(live, 0):  # from the ring, as subscribers are shown it
                shown += [item.frame for item in batch]
                if batch[-1].event.seq == live.state.seq:
                    break
            shown.append(await bundle(sdk, session))
            fork = await session.fork(title=BOTH)
            stopped = await fork.start(BOTH)
            await fork.stop(BOTH, task_id=stopped.id)
            await fork.close(BOTH)
            await session.close(BOTH)
            shown.append(
                msgspec.json.encode([await sdk.sessions(), await sdk.approvals(), await session.transcript()])
            )
            assert sdk.engine.ports.strain.late_redactions > 10
    shown.append(str(failure.value).encode())
    files = stored(path)
    assert {name: found for name, data in files.items() if (found := leaks(data))} == {}
    assert leaks(b"\n".join(shown)) == []
    assert tools.runs[0].invocation.input == {"key": BOTH, BOTH: 1}
    told = [record.getMessage() for record in caplog.records if record.name == "codesdk.redaction"]
    assert any("tool.call.completed" in line for line in told)
    assert leaks("\n".join(told).encode()) == []


TELLING = f"""
SAID = {BOTH!r}
async def asked(event, tools):
    await tools.enqueue_job({{"type": "mail", "payload": {{"to": SAID, SAID: [SAID]}}}})
    return {{"message": SAID, "more": {{SAID: SAID}}}}
def refused(event, tools):
    request = {{"kind": "action_request", "action_type": SAID, "request_id": SAID, "payload": {{}}}}
    return {{**request, "message": SAID}}
def broken(event, tools):
    raise ValueError(SAID)
def remarks(event, tools):
    payload = {{"id": "hint", "text": SAID, "data": {{SAID: SAID}}}}
    return {{"kind": "action_request", "action_type": "transcript.upsert", "request_id": SAID, "payload": payload}}
def mail(event, tools):
    raise OSError(SAID)
def register(registry):
    for handler in (asked, refused, broken, remarks):
        registry.on("suggest_request.requested", handler)
    registry.job("mail", mail, attempts=1)
"""
"""An extension that says the secrets in every way that it has."""


async def answering(task: FakeTask) -> AsyncIterator[RuntimeItem]:
    """Owe a result, and have the secrets in it."""
    yield call(ANSWER_TOOL, {"said": BOTH, "more": [BOTH]}, "c1")
    await task.reply("c1")
    yield done()


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("scope", ["engine", "session"])
async def test_nothing_that_is_put_beside_a_task_holds_a_secret_if_every_edge_is_blind(
    tmp_path: Path, scope: str
):
    ext = Extensions(tmp_path / "extensions")
    acts = ["queue.enqueue", "transcript.upsert"]
    ext.write("helper", TELLING, events=["suggest_request.requested"], actions=acts)
    own: Any = {"secrets": SECRETS} if scope == "engine" else {}
    async with CodeSDK.open(
        tmp_path / "data", runtimes={"fake": FakeRuntime(answering)}, extensions=ext.options(), **own
    ) as sdk:
        watched = Watched(sdk)
        session = await sdk.create_session(
            runtime="fake", workspace=tmp_path, secrets=() if scope == "engine" else SECRETS
        )
        schema = {"type": "object", "properties": {"said": {"type": "string"}}}
        task = await session.start("Go.", output_schema=schema)
        result = await task.result()
        assert result.data is not None
        # Each with a key: what is kept under it is the result as it was shown.
        await session.set(values={"said": BOTH, "more": {BOTH: BOTH}}, idempotency_key="set")
        put = await session.supplement("mine", BOTH, data={BOTH: BOTH}, idempotency_key="put")
        suggested = await session.suggest(BOTH, idempotency_key="ask")
        assert [one.kind for one in suggested] == [
            "handler_result",
            "action_result",
            "handler_error",
            "action_result",
        ]
        (job,) = await watched.ended()
        assert job.state == "failed"
        row = await session.info()
        shown = [result, put, suggested, row, await session.supplements(), await sdk.job(job.job_id)]
        assert sdk.audit is not None
        audited = await sdk.audit.read()
        assert [one.outcome for one in audited if one.action.startswith("extension.")] == [
            "performed",
            "forbidden",
            "performed",
        ]
        shown.append(audited)
        assert leaks(msgspec.json.encode(shown)) == []
    files = stored(tmp_path / "data")
    assert {name: found for name, data in files.items() if (found := leaks(data))} == {}


@pytest.mark.usefixtures("blind")
async def test_a_redacted_input_is_never_run_from_the_store_even_if_its_edge_forgot_it(tmp_path: Path):
    async def asking(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        yield call("fake.write", {"key": CANARY}, "c1")
        await task.until(lambda: task.stopped is not None)

    runtime = FakeRuntime(asking)
    async with CodeSDK.open(runtimes={"fake": runtime}, tools=LeakyTools(), secrets=SECRETS) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path)
        task = await session.start("Go")
        async for event in task.events():
            if event.type == "approval.requested":
                live = await live_session(sdk.engine, session.id)
                assert live.state.task is not None
                (waiting,) = live.state.task.calls.values()
                break
        assert (waiting.input, waiting.input_redacted) == ({"key": "[redacted]"}, True)
        await task.stop("seen")
