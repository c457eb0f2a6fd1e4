"""Which request an event comes from: its id, its client and its trace, wherever the request was made."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from codesdk import CodeSDK, InvalidRequest, Session, SessionSettings
from codesdk.contract.actions import Caller
from codesdk.contract.sender import Sender, traceparent_of
from codesdk.engine.checks.replay import replay_session
from codesdk.handles import Handles
from codesdk.local.directory import DataDir
from codesdk.local.holder import HolderService
from codesdk.observe import Traces

pytestmark = pytest.mark.anyio

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
WRITE = {"call": {"tool": "workspace.write", "input": {"path": "a.txt", "content": "x"}}}
ASKING = {"loop": True, "turns": [{"steps": [WRITE]}, {"steps": [{"text": "Done."}]}]}


def asking(script: Any = ASKING) -> SessionSettings:
    return SessionSettings(runtime_config={"script": script})


async def waiting_call(session: Session) -> str:
    async for event in session.events():
        if event.type == "approval.requested":
            return str(event.payload.tool_call_id)
    raise AssertionError("nobody asked")


async def senders(session: Session) -> list[tuple[str, str | None, str | None, bool]]:
    """Return of each event its type, its request and its client, and whether it names a span."""
    head = await session.service.head(session.id)
    events = [await session.event(seq) for seq in range(1, head + 1)]
    return [
        (event.type, event.trace.request_id, event.trace.client_id, event.trace.traceparent is not None)
        for event in events
    ]


async def test_every_event_says_which_request_brought_it_about(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        web = sdk.traced(client_id="web")
        made = await web.traced(request_id="r-create").create_session(
            runtime="scripted", workspace=tmp_path, settings=asking()
        )
        session = web.traced(request_id="r-start", traceparent=TRACEPARENT)
        first = await Session(session.service, made.id).start("Go.")
        second = await made.traced(request_id="r-queue", traceparent=TRACEPARENT).start("And again.")
        await made.traced(request_id="r-yes", client_id="phone").approve(
            await waiting_call(made), scope="session"
        )
        await first.result()
        await second.result()
        await (await sdk.session(made.id)).close()
        found = await senders(made)
        assert found == [
            ("session.created", "r-create", "web", False),
            ("task.started", "r-start", "web", True),
            *[
                row
                for row in found[2:]
                if row[0] in ("task.queued", "approval.answered", "tool.call.approved")
                or row[1:3] == ("r-yes", "phone")
                or row[1:] in (("r-start", "web", False), ("r-queue", "web", False))
                or row[:2] == ("task.started", "r-queue")
                or row == ("session.closed", None, None, False)
            ],
        ]
        by_type = {row[0]: row for row in found}
        assert by_type["task.queued"] == ("task.queued", "r-queue", "web", True)
        assert by_type["task.started"] == ("task.started", "r-queue", "web", True)
        assert by_type["approval.answered"] == ("approval.answered", "r-yes", "phone", False)
        ends = [row for row in found if row[0] == "task.completed"]
        assert ends == [
            ("task.completed", "r-start", "web", False),
            ("task.completed", "r-queue", "web", False),
        ]
        ports = sdk.engine.ports
        assert await replay_session(ports.log, ports.blobs, made.id) == (len(found), [])


async def test_through_the_control_socket_the_holder_takes_the_names_as_data(tmp_path: Path):
    async with CodeSDK.open(tmp_path / "data") as sdk:
        directory = await DataDir.open_reader(tmp_path / "data")
        try:
            there = Handles(HolderService(directory, Caller()))
            named = there.traced(request_id="r-1", client_id="editor", traceparent=TRACEPARENT)
            session = await named.create_session(
                runtime="scripted", workspace=tmp_path, settings=asking({"turns": [{"steps": []}]})
            )
            await (await session.start("Go.")).result()
            assert {row[1:3] for row in await senders(session)} == {("r-1", "editor")}
            service = HolderService(directory, Caller(request_id="a\nb"))
            with pytest.raises(InvalidRequest, match="request id"):
                await Handles(service).create_session(runtime="scripted", workspace=tmp_path)
            assert len(await sdk.sessions()) == 1
        finally:
            await directory.close()


@pytest.mark.parametrize(
    "said",
    [
        Sender(request_id=""),
        Sender(request_id="x" * 65),
        Sender(request_id="a b"),
        Sender(request_id="a\x1b[2J"),
        Sender(client_id=""),
        Sender(client_id="x" * 65),
        Sender(client_id="two\nlines"),
        Sender(client_id="\u202eright to left"),
        Sender(traceparent=TRACEPARENT.upper()),
        Sender(traceparent=f"00-{'0' * 32}-{SPAN_ID}-01"),
        Sender(traceparent=f"ff-{TRACE_ID}-{SPAN_ID}-01"),
        Sender(traceparent=f"{TRACEPARENT}-more"),
    ],
)
async def test_what_is_no_name_is_refused_before_anything_is_stored(tmp_path: Path, said: Sender):
    async with CodeSDK.open() as sdk:
        with pytest.raises(InvalidRequest):
            sdk.traced(request_id=said.request_id, client_id=said.client_id, traceparent=said.traceparent)
        caller = Caller(request_id=said.request_id, client_id=said.client_id, traceparent=said.traceparent)
        with pytest.raises(InvalidRequest):
            await sdk.as_caller(caller).create_session(runtime="scripted", workspace=tmp_path)
        assert await sdk.sessions() == []


async def test_a_secret_in_a_name_is_redacted_like_everywhere(tmp_path: Path):
    secret = "hunter2-and-then-some"
    async with CodeSDK.open(secrets=[secret]) as sdk:
        named = sdk.traced(request_id=f"r-{secret}", client_id=f"app {secret}")
        session = await named.create_session(runtime="scripted", workspace=tmp_path)
        event = await session.event(1)
        assert secret not in f"{event.trace}"
        assert (event.trace.client_id or "").startswith("app ")


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        (TRACEPARENT, TRACEPARENT),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01-what-comes-later", f"cc-{TRACE_ID}-{SPAN_ID}-01"),
        (f"{TRACEPARENT}-extra", None),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01x", None),
        ("", None),
        ("00-abc", None),
    ],
)
def test_a_header_gives_a_traceparent_or_none(header: str, taken: str | None):
    assert traceparent_of(header) == taken


async def test_a_task_is_a_span_of_its_callers_trace_also_if_it_was_queued(tmp_path: Path):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with CodeSDK.open(observers=[Traces(provider)]) as sdk:
        session = await sdk.create_session(
            runtime="scripted", workspace=tmp_path, permission_mode="ask", settings=asking()
        )
        named = session.traced(traceparent=TRACEPARENT, request_id="r-1", client_id="web")
        first, second = await session.start("Go."), await named.start("And again.")
        await session.approve(await waiting_call(session), scope="session")
        await first.result()
        await second.result()
    tasks = {
        str((span.attributes or {})["codesdk.task.id"]): span
        for span in exporter.get_finished_spans()
        if span.name.startswith("invoke_agent")
    }
    assert tasks[first.id].parent is None
    parent, own = tasks[second.id].parent, tasks[second.id].context
    assert parent is not None
    assert own is not None
    assert (f"{parent.trace_id:032x}", f"{parent.span_id:016x}", parent.is_remote) == (
        TRACE_ID,
        SPAN_ID,
        True,
    )
    assert f"{own.trace_id:032x}" == TRACE_ID
    tools = [span for span in exporter.get_finished_spans() if span.name.startswith("execute_tool")]
    assert {f"{span.context.trace_id:032x}" for span in tools if span.context} >= {TRACE_ID}
    said = tasks[second.id].attributes or {}
    assert (said["codesdk.client.request_id"], said["codesdk.client.id"]) == ("r-1", "web")
