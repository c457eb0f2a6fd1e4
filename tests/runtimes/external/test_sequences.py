"""Messages in any order, good and bad, cut anywhere, in both directions.

Of an adapter: the task ends once, and its log holds. Of an engine: each request is answered once, and the adapter ends
when the engine hangs up.
"""

import asyncio
import json
import socket
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.counts import COUNTS
from tests.runtimes.external.memory import MemoryAdapter, frame
from tests.runtimes.external.samples import frames

from codesdk import Task
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import TERMINAL_TYPES
from codesdk.engine import verify_session
from codesdk.runtimes.external.server import serve_streams
from codesdk.store import MemoryBlobs, MemoryLog
from codesdk.testing.fakes import FakeRuntime, memory_sdk

GOOD = frames("adapter")
ASKED = frames("engine")
ANSWERS = [
    json.dumps({"jsonrpc": "2.0", "id": number, **rest}).encode() + b"\n"
    for number in (1, 2, 3, 99, None, "x")
    for rest in ({"result": {}}, {"error": {"code": -32603, "message": "no"}}, {})
]
NOISE = [
    b"\n",
    b"null\n",
    b"Welcome!\n",
    b"\xff\xfe\n",
    b'{"jsonrpc":"1.0","method":"item"}\n',
    b"[" * 2000 + b"\n",
]
CODES = {"RUNTIME_PROTOCOL", "RUNTIME_CRASHED", "MODEL_ERROR", "RUNTIME_UNAVAILABLE", "FORBIDDEN"}
values = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([]), st.just({}))


@st.composite
def broken(draw: st.DrawFn, good: list[bytes]) -> bytes:
    """Return a good message with one value replaced, or left out."""
    message = json.loads(draw(st.sampled_from(good)))
    place: Any = message
    while True:
        key = draw(st.sampled_from(sorted(place, key=str)))
        if not (isinstance(place[key], dict) and place[key]) or draw(st.booleans()):
            break
        place = place[key]
    if draw(st.booleans()):
        del place[key]
    else:
        place[key] = draw(values)
    return json.dumps(message).encode() + b"\n"


def messages(good: list[bytes]) -> st.SearchStrategy[list[bytes]]:
    return st.lists(
        st.one_of(
            st.sampled_from(good),
            broken(good),
            st.sampled_from(ANSWERS),
            st.sampled_from(NOISE),
            st.just(frame("item", None)),
        ),
        max_size=12,
    )


@pytest.mark.slow
@given(lines=messages(GOOD), piece=st.integers(1, 400))
@settings(deadline=None, max_examples=COUNTS.examples)
def test_a_task_ends_once_and_its_log_holds_whatever_an_adapter_says(lines: list[bytes], piece: int):
    asyncio.run(_play(b"".join(lines), piece))


async def _error_of(task: Task) -> CodeSDKError | None:
    try:
        await task.result()
    except CodeSDKError as error:
        return error
    return None


async def _play(output: bytes, piece: int) -> None:
    adapter, log, blobs = MemoryAdapter(), MemoryLog(), MemoryBlobs()
    adapter.output, adapter.piece = output, piece
    async with adapter.running() as runtime:
        async with memory_sdk(runtimes=[runtime], log=log, blobs=blobs) as sdk:
            session = await sdk.create_session(
                runtime=runtime.name, permission_mode="yolo", interaction_mode="non_interactive"
            )
            task = await session.start("Go.")
            error = await _error_of(task)
            assert error is None or error.code in CODES, error
            ends = [event.type async for event in task.events() if event.type in TERMINAL_TYPES]
            assert len(ends) == 1
            await session.close()
        assert await verify_session(log, blobs, session.id) == []


@pytest.mark.slow
@given(lines=messages(ASKED), piece=st.integers(1, 400))
@settings(deadline=None, max_examples=COUNTS.examples)
def test_an_adapter_answers_each_request_once_whatever_an_engine_says(lines: list[bytes], piece: int):
    asyncio.run(_serve(b"".join(lines), piece))


async def _serve(given: bytes, piece: int) -> None:
    here, there = socket.socketpair()
    heard, speaking = await asyncio.open_connection(sock=here)
    reader, writer = await asyncio.open_connection(sock=there)
    serving = asyncio.create_task(serve_streams(FakeRuntime(), reader, writer))
    for start in range(0, len(given), piece):
        speaking.write(given[start : start + piece])
    speaking.write_eof()
    async with asyncio.timeout(30):
        await serving
        writer.close()
        said = [json.loads(line) for line in (await heard.read()).splitlines()]
    speaking.close()
    answers = [message["id"] for message in said if "method" not in message]
    # Ids are not the adapter's to choose. One that was used twice is answered once while it is open.
    asked = [message["id"] for message in _objects(given) if "method" in message and "id" in message]
    assert all(answers.count(number) <= asked.count(number) for number in answers if number is not None)
    assert all("result" in message or "error" in message for message in said if "method" not in message)


def _objects(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in data.split(b"\n"):
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict):
            found.append(message)
    return found
