"""A canary in every place where a secret can enter a session through its gateway: nothing that is kept has it."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from tests.gateway.agent import agent_runtime
from tests.gateway.peers import WIRES, peer
from tests.stored import everything

from codesdk import CodeSDK, SessionSettings
from codesdk.contract.errors import CodeSDKError, ErrorInfo
from codesdk.contract.events import OutputCompleted
from codesdk.contract.messages import Text
from codesdk.contract.runtime import Draft, Failed, Finished
from codesdk.gateway.providers import Provider
from codesdk.gateway.wires.exchange import Wire

PROVIDER_KEY = "canary-provider-key-7f3a9c51"
LOGIN = "canary-login-of-the-runtime-42d8"
TOLD = "canary-that-the-app-named-b06e"
CANARIES = (PROVIDER_KEY, LOGIN, TOLD)


def stream(text: str) -> bytes:
    """Return an answer of Anthropic's that says a text in pieces of three characters."""
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-judged",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 3, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": text[i : i + 3]},
            }
            for i in range(0, len(text), 3)
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def http(status: str, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nx-echo: {LOGIN}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


ANSWERS = {
    "in its text": http("200 OK", "text/event-stream", stream(f"Your keys: {' '.join(CANARIES)}.")),
    "in an error": http(
        "401 Unauthorized",
        "application/json",
        json.dumps(
            {
                "type": "error",
                "error": {"type": "authentication_error", "message": f"bad: {' '.join(CANARIES)}"},
            }
        ).encode(),
    ),
    "in no JSON at all": http("500 Oops", "text/plain", " ".join(CANARIES).encode()),
}


async def careless(task: Any) -> AsyncIterator[Any]:
    """An agent that puts what it should not know everywhere: in headers, query, body, model name, and its output."""
    client = anthropic.AsyncAnthropic(
        base_url=await task.host.model_endpoint(),
        api_key=LOGIN,
        max_retries=0,
        default_headers={"authorization": f"Bearer {LOGIN}", "x-note": TOLD},
        default_query={"beta": "true", "key": LOGIN, "note": TOLD},
    )
    async with client:
        try:
            async with client.messages.stream(
                model=f"model-{TOLD}",
                max_tokens=10,
                system=f"The login is {LOGIN}, the other is {TOLD}.",
                messages=[{"role": "user", "content": f"{LOGIN} {TOLD}"}],
                tools=[
                    {"name": "t", "description": TOLD, "input_schema": {"type": "object", "title": LOGIN}}
                ],
                metadata={"user_id": TOLD},
            ) as answer:
                said = (await answer.get_final_message()).content[0]
        except anthropic.APIError as error:
            yield Failed(
                error=ErrorInfo(code="MODEL_ERROR", message=str(error), retryable=False, raw=str(error))
            )
            return
    text = said.text if said.type == "text" else ""
    yield Draft(OutputCompleted(message_id="m1", content=[Text(text=text)]), raw={"said": text})
    yield Finished(stop_reason="end_turn")


@pytest.mark.parametrize("mode", ["passthrough", "record"])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.slow
async def test_nothing_that_is_kept_or_logged_has_a_canary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: Any, answer: str
) -> None:
    caplog.set_level(logging.DEBUG)
    data = tmp_path / "data"

    async def answering(writer: Any) -> None:
        writer.write(ANSWERS[answer])
        await writer.drain()

    async with peer(answering) as provider:
        providers: dict[Wire, Provider] = {w: Provider(origin=provider.url, key=PROVIDER_KEY) for w in WIRES}
        runtimes = {"agent": agent_runtime(careless)}
        async with CodeSDK.open(data, providers=providers, runtimes=runtimes) as sdk:
            session = await sdk.create_session(
                runtime="agent", workspace=tmp_path, secrets=[TOLD], settings=SessionSettings(gateway=mode)
            )
            task = await session.start(f"Here is {TOLD}.")
            try:
                shown = repr(await task.result())
            except CodeSDKError as error:
                shown = f"{error!r} {error.info()!r}"
            kept = [row.ref async for row in artifacts(sdk, session.id)]
        asked = b"".join(provider.asked)
    assert PROVIDER_KEY.encode() in asked, "the provider itself gets the key"
    assert len(kept) >= 5, "there is something to look at"
    stored = everything(data)
    assert b"model.input" in stored
    # The agent's own HTTP client is in this process and logs what it likes; what counts is what CodeSDK says.
    logged = "\n".join(
        r.getMessage() for r in caplog.records if r.name.startswith(("codesdk", "uvicorn", "asyncio"))
    )
    for canary in CANARIES:
        assert canary not in shown
        assert canary not in logged
        assert canary.encode() not in stored
        assert canary[:-4].encode() not in stored, "nor most of it"


async def artifacts(sdk: CodeSDK, session_id: str) -> AsyncIterator[Any]:
    for row in await sdk.archive.artifacts(session_id):
        yield row
