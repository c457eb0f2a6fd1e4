"""The schema of the protocol, as its own library has it, judges what we send, and what the real agents said.

It is not part of the adapter: docs/decisions/0027.
"""

from pathlib import Path
from typing import Any

import pytest
from acp import schema
from pydantic import BaseModel
from tests.runtimes.acp.goldens import CASES, GOLDENS
from tests.runtimes.acp.rig import opened, pretending
from tests.runtimes.acp.test_normalize import lines
from tests.runtimes.acp.test_rows import placed, setup_of

from codesdk.runtimes.acp import ROWS
from codesdk.runtimes.acp.launch import known_names, mcp_server, working_folder
from codesdk.runtimes.acp.row import fill
from codesdk.runtimes.program.jsonrpc import Connection

SENT: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeRequest,
    "session/new": schema.NewSessionRequest,
    "session/load": schema.LoadSessionRequest,
    "session/resume": schema.ResumeSessionRequest,
    "session/prompt": schema.PromptRequest,
    "session/cancel": schema.CancelNotification,
    "session/set_mode": schema.SetSessionModeRequest,
}
HEARD: dict[str, type[BaseModel]] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
}


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is sent to agents in a test."""
    sent: list[dict[str, Any]] = []
    write, respond = Connection._write, Connection.respond

    async def writing(self: Connection, frame: dict[str, Any]) -> None:
        sent.append(frame)
        await write(self, frame)

    def responding(self: Connection, number: Any, answer: dict[str, Any]) -> None:
        sent.append(answer)
        respond(self, number, answer)

    monkeypatch.setattr(Connection, "_write", writing)
    monkeypatch.setattr(Connection, "respond", responding)
    return sent


@pytest.mark.slow
async def test_what_is_sent_to_an_agent_is_as_the_protocol_says(tmp_path: Path, frames: list[dict[str, Any]]):
    async with opened(tmp_path, pretending("own-asks"), modes={"auto": "quiet"}) as session:
        with pytest.raises(Exception, match="no such mode"):  # the pretender has none
            await (await session.start("Hello.")).result()
    async with opened(tmp_path, pretending("own-asks")) as session:
        await (await session.start("Hello.")).result()
    async with opened(tmp_path, pretending("asks-when-stopped")) as session:
        task = await session.start("Hello.")
        async for event in task.events():
            if event.type == "model.output.delta":
                break
        await task.stop()
        await task.result()
    for frame in frames:
        if "method" in frame:
            SENT[frame["method"]].model_validate(frame["params"])
        elif "result" in frame:
            schema.RequestPermissionResponse.model_validate(frame["result"])
    methods = {frame.get("method") for frame in frames}
    assert methods == {*SENT, None} - {"session/load", "session/resume"}


@pytest.mark.parametrize("name", ROWS)
def test_what_every_session_begins_with_is_as_the_protocol_says(name: str, tmp_path: Path):
    setup, places = setup_of(ROWS[name].row), placed(tmp_path)
    params = {
        "cwd": str(working_folder(places)),
        "mcpServers": [mcp_server(setup)],
        "_meta": fill(setup.row.meta, known_names(setup, places)),
    }
    schema.NewSessionRequest.model_validate(params)
    schema.LoadSessionRequest.model_validate({"sessionId": "s", **params})


@pytest.mark.parametrize("case", CASES)
def test_what_the_agents_said_is_as_the_protocol_says(case: str):
    judged = 0
    for line in lines(GOLDENS / case / "raw.jsonl"):
        frame = line["frame"]
        if frame["method"] in HEARD:
            HEARD[frame["method"]].model_validate(frame["params"])
            judged += 1
        elif frame["method"] == "session/prompt" and "result" in frame:
            schema.PromptResponse.model_validate(frame["result"])
            judged += 1
    assert judged or case.endswith("unauthorized")
