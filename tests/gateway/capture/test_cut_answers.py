"""Answers that are cut off or say nothing of their usage: what had passed is counted, and marked as estimated."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.gateway.agent import agent_runtime
from tests.gateway.capture.test_tap import check, events_of, payloads, session_of
from tests.gateway.peers import PATHS, PATIENCE_S, WIRES, Handler, body_of, peer, say, stream

from codesdk import CodeSDK
from codesdk.contract.models import Tokens
from codesdk.contract.ownership import WireRules
from codesdk.contract.runtime import Finished
from codesdk.gateway.capture.usage import count_usage
from codesdk.gateway.providers import Provider
from codesdk.gateway.wires.exchange import Call, Seen, Wire

TEXT = "x" * 400
"""A hundred tokens, at four characters each."""


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def anthropic(delta: dict[str, Any], block: dict[str, Any]) -> bytes:
    usage = {"input_tokens": 50, "output_tokens": 1}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": usage,
    }
    return (
        event({"type": "message_start", "message": message})
        + event({"type": "content_block_start", "index": 0, "content_block": block})
        + event({"type": "content_block_delta", "index": 0, "delta": delta})
    )


BEGUN: dict[str, tuple[Wire, bytes]] = {
    "anthropic": (
        "anthropic",
        anthropic({"type": "text_delta", "text": TEXT}, {"type": "text", "text": ""}),
    ),
    "anthropic, thinking": (
        "anthropic",
        anthropic({"type": "thinking_delta", "thinking": TEXT}, {"type": "thinking", "thinking": ""}),
    ),
    "anthropic, inside a call": (
        "anthropic",
        anthropic(
            {"type": "input_json_delta", "partial_json": TEXT},
            {"type": "tool_use", "id": "toolu_1", "name": "write", "input": {}},
        ),
    ),
    "responses": (
        "responses",
        event({"type": "response.output_text.delta", "output_index": 0, "delta": TEXT}),
    ),
    "responses, inside a call": (
        "responses",
        event(
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {"type": "function_call", "id": "fc", "call_id": "c", "name": "w", "arguments": ""},
            }
        )
        + event({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": TEXT}),
    ),
    "chat": ("chat", event({"choices": [{"index": 0, "delta": {"content": TEXT}}]})),
    "chat, inside a call": (
        "chat",
        event(
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {
                            "tool_calls": [
                                {"index": 0, "id": "c", "function": {"name": "w", "arguments": TEXT}}
                            ]
                        },
                    }
                ]
            }
        ),
    ),
    "chat, another choice": ("chat", event({"choices": [{"index": 1, "delta": {"content": TEXT}}]})),
    "gemini": (
        "gemini",
        event(
            {
                "candidates": [{"content": {"role": "model", "parts": [{"text": TEXT}]}}],
                "usageMetadata": {"promptTokenCount": 50, "candidatesTokenCount": 1},
            }
        ),
    ),
}


def leaving(wire: Wire) -> Any:
    """Return an agent that hangs up as soon as a part of its answer is here."""

    async def play(task: Any) -> AsyncIterator[Any]:
        rules = WireRules(natives=("write", "w"))
        url = await task.host.model_endpoint(rules=rules) + PATHS[wire]
        async with (
            httpx2.AsyncClient(timeout=PATIENCE_S) as client,
            client.stream("POST", url, json=body_of(wire, "Go")) as answer,
        ):
            await anext(answer.aiter_raw())
        yield Finished(stop_reason="end_turn")

    return play


async def reports(tmp_path: Path, provides: Handler, play: Any) -> list[tuple[str, str, int, int, bool]]:
    """Play one task. Return how its requests ended, and what was counted."""
    async with (
        peer(provides) as provider,
        CodeSDK.open(
            tmp_path / "data",
            runtimes={"agent": agent_runtime(play)},
            providers={wire: Provider(origin=provider.url, key="key-0123456789") for wire in WIRES},
        ) as sdk,
    ):
        session = await session_of(sdk, tmp_path, None)
        await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
    used = {p.request_id: p for p in payloads(events, "usage.reported")}
    ended = payloads(events, "runtime.request.completed")
    return [
        (p.status, u.source, u.input, u.output, u.estimated)
        for p in ended
        if (u := used.get(p.request_id)) is not None
    ]


@pytest.mark.slow
@pytest.mark.parametrize("case", BEGUN)
async def test_a_stream_that_its_client_abandons_is_counted_as_far_as_it_came(
    tmp_path: Path, case: str
) -> None:
    wire, begun = BEGUN[case]
    told = wire in ("anthropic", "gemini")  # the others tell nothing before the end
    [(status, source, given, written, estimated)] = await reports(tmp_path, stream(begun), leaving(wire))
    assert (status, source, estimated) == ("abandoned", "gateway", True)
    assert given == (50 if told else len(httpx2.Request("POST", "http://x", json=body_of(wire)).read()) // 4)
    assert written == 100


async def test_a_stream_that_the_provider_breaks_off_is_counted_as_far_as_it_came(tmp_path: Path) -> None:
    async def play(task: Any) -> AsyncIterator[Any]:
        url = await task.host.model_endpoint() + PATHS["anthropic"]
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            with pytest.raises(httpx2.RemoteProtocolError):
                await client.post(url, json=body_of("anthropic"))
        yield Finished(stop_reason="end_turn")

    broken = stream(BEGUN["anthropic"][1], abort=True)
    [(status, _, given, written, estimated)] = await reports(tmp_path, broken, play)
    assert (status, given, written, estimated) == ("failed", 50, 100, True)


async def test_a_stream_whose_client_did_not_ask_for_usage_is_counted(tmp_path: Path) -> None:
    ended = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}) + b"data: [DONE]\n\n"
    whole = stream(BEGUN["chat"][1], ended, end=True)

    async def play(task: Any) -> AsyncIterator[Any]:
        url = await task.host.model_endpoint() + PATHS["chat"]
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            await client.post(url, json=body_of("chat"))
        yield Finished(stop_reason="end_turn")

    [(status, _, _, written, estimated)] = await reports(tmp_path, whole, play)
    assert (status, written, estimated) == ("completed", 100, True)


async def test_a_request_that_is_abandoned_before_its_answer_is_counted_with_its_input(
    tmp_path: Path,
) -> None:
    asked = asyncio.Event()

    async def silent(writer: asyncio.StreamWriter) -> None:
        asked.set()

    async def play(task: Any) -> AsyncIterator[Any]:
        url = await task.host.model_endpoint() + PATHS["anthropic"]
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            asking = asyncio.create_task(client.post(url, json=body_of("anthropic", TEXT)))
            await asyncio.wait_for(asked.wait(), PATIENCE_S)
            asking.cancel()
            await asyncio.wait([asking])
        yield Finished(stop_reason="end_turn")

    [(status, _, given, written, estimated)] = await reports(tmp_path, silent, play)
    assert (status, written, estimated) == ("abandoned", 0, True)
    assert given > 100


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "no"}}', 529),
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "no"}}', 200),
    ],
)
async def test_a_refusal_of_the_provider_uses_nothing(tmp_path: Path, answer: bytes, status: int) -> None:
    async def play(task: Any) -> AsyncIterator[Any]:
        url = await task.host.model_endpoint() + PATHS["anthropic"]
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            await client.post(url, json=body_of("anthropic", stream=False))
        yield Finished(stop_reason="end_turn")

    assert await reports(tmp_path, say(answer, status), play) == []


@pytest.mark.parametrize(
    ("seen", "unread", "counted"),
    [
        (
            Seen(stop_reason="end_turn", tokens=Tokens(input=5, output=7)),
            0,
            (Tokens(input=5, output=7), False),
        ),
        (Seen(stop_reason="end_turn", text=TEXT), 0, (Tokens(input=30, output=100), True)),
        (Seen(tokens=Tokens(input=5, output=200), text=TEXT), 0, (Tokens(input=5, output=200), True)),
        (
            Seen(tokens=Tokens(input=5, output=1, reasoning=40), text=TEXT),
            0,
            (Tokens(input=5, output=60, reasoning=40), True),
        ),
        (Seen(calls=[Call("c", "ab", "x" * 4)]), 0, (Tokens(input=30, output=2), True)),
        (Seen(error="neither"), 400, (Tokens(input=30, output=100), True)),
        (Seen(error="overloaded"), 0, (None, False)),
    ],
)
def test_what_the_provider_said_at_the_end_counts_and_else_what_passed(
    seen: Seen, unread: int, counted: tuple[Tokens | None, bool]
) -> None:
    assert count_usage(seen, 30, unread) == counted
