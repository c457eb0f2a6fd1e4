"""What may pass the gateway with the operator's key, tried against a provider that notes all it is asked."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.gateway.agent import KEY as LOGIN, agent_runtime, claude_like
from tests.gateway.capture.test_tap import check, events_of, payloads, session_of, turns
from tests.gateway.peers import PATHS, WIRES, Peer, body_of, error_text, peer, post, say, send_raw

from codesdk import CodeSDK, TaskFailure
from codesdk.contract.settings import Budget, Budgets
from codesdk.gateway.providers import Provider
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.upstream import Upstream
from codesdk.gateway.wires.exchange import Wire

KEY = "key-of-the-operator-0123456789"
CLIENTS: dict[Wire, str] = {
    "anthropic": "anthropic-version: 2023-06-01",
    "responses": "user-agent: codex_cli_rs/0.163.0",
    "chat": "user-agent: openai/2.0",
    "gemini": "x-goog-api-client: google-genai-sdk",
}


FILE = {"type": "file", "file_id": "file_of_somebody"}
URI = {
    "mimeType": "image/png",
    "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/of-somebody",
}
ARGUMENTS = '{"file_id": "a"}'
DATA = "data:image/png;base64,eA=="
INLINE = {"type": "base64", "media_type": "image/png", "data": "eA=="}


def said(*content: Any) -> list[Any]:
    """Return the messages of a request in which a user says this."""
    return [{"role": "user", "content": content}]


def result(content: Any) -> Any:
    """Return the result of a tool, as Anthropic has it."""
    return {"type": "tool_result", "tool_use_id": "t", "content": content}


async def refused(method: str, target: str, wire: Wire, body: bytes = b"{}") -> bytes:
    """Send a request that must not pass. Return the message of the refusal."""
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream(KEY)
        answer = await send_raw(gateway.admit(upstream) + target, CLIENTS[wire], method=method, body=body)
        await upstream.close()
    assert provider.asked == []
    head, _, said = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    return error_text(wire, said).encode() if method != "HEAD" else b""


async def passed(target: str, *headers: str, method: str = "POST", wire: Wire | None = None) -> str:
    """Send a request that passes. Return what the provider got, without its body."""
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream(KEY)
        body = b"" if wire is None else httpx2.Request("POST", "http://x", json=body_of(wire)).read()
        answer = await send_raw(gateway.admit(upstream) + target, *headers, method=method, body=body)
        await upstream.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    (asked,) = provider.asked
    return asked.partition(b"\r\n\r\n")[0].decode()


# --- method and path ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "wire"),
    [
        ("POST", "/v1/messages/batches", "anthropic"),
        ("GET", "/v1/messages/batches/b_1/results", "anthropic"),
        ("POST", "/v1/files", "anthropic"),
        ("GET", "/v1/files", "anthropic"),
        ("DELETE", "/v1/organizations/api_keys/key_1", "anthropic"),
        ("GET", "/v1/organizations/users", "anthropic"),
        ("DELETE", "/v1/models/claude", "anthropic"),
        ("HEAD", "/v1/models", "anthropic"),
        ("GET", "/v1/messages", "anthropic"),
        ("POST", "/v1/complete", "anthropic"),
        ("POST", "/v1/batches", "chat"),
        ("POST", "/v1/files", "chat"),
        ("DELETE", "/v1/files/file_1", "chat"),
        ("POST", "/v1/images/generations", "chat"),
        ("POST", "/v1/embeddings", "chat"),
        ("POST", "/v1/audio/speech", "chat"),
        ("POST", "/v1/fine_tuning/jobs", "chat"),
        ("GET", "/v1/chat/completions", "chat"),
        ("DELETE", "/v1/models/ft:gpt-5:mine", "chat"),
        ("DELETE", "/v1/organization/admin_api_keys/key_1", "chat"),
        ("GET", "/v1/responses/resp_1", "responses"),
        ("DELETE", "/v1/responses/resp_1", "responses"),
        ("POST", "/v1/responses/resp_1/cancel", "responses"),
        ("POST", "/v1beta/models/embedding-001:embedContent", "gemini"),
        ("POST", "/v1beta/models/imagen-4:predict", "gemini"),
        ("POST", "/v1beta/models/gemini-2.5-flash:batchGenerateContent", "gemini"),
        ("POST", "/v1beta/cachedContents", "gemini"),
        ("DELETE", "/v1beta/files/file_1", "gemini"),
        ("POST", "/upload/v1beta/files", "gemini"),
        ("GET", "/v1beta/models/m/operations", "gemini"),
    ],
)
@pytest.mark.slow
async def test_what_is_neither_a_model_request_nor_a_list_of_models_never_reaches_the_provider(
    method: str, target: str, wire: Wire
) -> None:
    said = await refused(method, target, wire)
    assert method == "HEAD" or f"{method} {target} is not a route of this gateway".encode() in said


@pytest.mark.parametrize(
    "target",
    [
        "//x/v1/messages",
        "//v1/messages",
        "/v1//messages",
        "/v1/messages/",
        "/v1/./messages",
        "/v1/models/../messages",
        "/v1/models/..",
        "/v1/models/%2e%2e/files",
        "/v1/models/..%2ffiles",
        "/v1%2Fmessages",
        "/v1/models/a%5C..%5Cb",
        "/v1/models/a%252Fb",
        "/v1/messages%3Fbeta=true",
        "/v1/messages%23",
        "/v1/messages%0d%0ax-injected:%201",
        "/v1/messages%00",
        "/v1/models/%C3%A9",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.slow
async def test_a_path_that_two_readers_may_take_for_different_ones_is_refused(
    method: str, target: str
) -> None:
    said = await refused(method, target, "anthropic" if "messages" in target else "chat")
    assert b"it is not passed on" in said


async def test_an_escaped_slash_in_the_prefix_is_refused_as_well() -> None:
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream(KEY)
        token = gateway.admit(upstream).rpartition("/")[2]
        answer = await send_raw(f"{gateway.url}/g%2F{token}/v1/models", method="GET")
        await upstream.close()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert provider.asked == []


@pytest.mark.parametrize(
    ("client", "target"),
    [
        ("anthropic", "/v1/models?limit=3&after_id=a"),
        ("anthropic", "/v1/models/claude-sonnet-5"),
        ("chat", "/v1/models"),
        ("chat", "/models?client_version=0.163.0"),
        ("chat", "/v1/models/ft:gpt-5:mine"),
        ("gemini", "/v1beta/models?pageSize=50&pageToken=a%2Fb"),
        ("gemini", "/v1beta/models/gemini-2.5-flash"),
    ],
)
async def test_the_models_of_a_provider_can_be_listed(client: Wire, target: str) -> None:
    head = await passed(target, CLIENTS[client], method="GET")
    assert head.startswith(f"GET {target} HTTP/1.1\r\n")
    assert KEY in head


async def test_an_escape_that_changes_nothing_is_sent_as_what_it_stands_for() -> None:
    target = "/v1beta/models/gemini%2D2.5-flash%3AgenerateContent"
    head = await passed(target, wire="gemini")
    assert head.startswith("POST /v1beta/models/gemini-2.5-flash:generateContent HTTP/1.1\r\n")


async def test_a_response_in_the_background_is_refused_because_nobody_would_see_its_usage() -> None:
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream(KEY)
        answer = await post(gateway.admit(upstream), "responses", background=True)
        await upstream.close()
    assert provider.asked == []
    assert answer.status_code == 400
    assert "background" in error_text("responses", answer.content)


@pytest.mark.parametrize(
    ("wire", "field", "value"),
    [
        ("responses", "previous_response_id", "resp_of_somebody"),
        ("responses", "conversation", {"id": "conv_of_somebody"}),
        ("responses", "prompt", {"id": "pmpt_with_tools"}),
        ("gemini", "cachedContent", "cachedContents/of-somebody"),
        ("gemini", "cached_content", "cachedContents/of-somebody"),
        ("responses", "input", said({"type": "input_file", "file_id": "file_of_somebody"})),
        ("responses", "input", said({"type": "input_image", "file_id": "file_of_somebody"})),
        ("responses", "input", [{"type": "item_reference", "id": "msg_of_somebody"}]),
        ("responses", "input", [{"id": "msg_of_somebody"}]),
        ("responses", "input", [{"type": "function_call_output", "call_id": "c", "output": [FILE]}]),
        ("responses", "input", [{"type": "computer_call_output", "call_id": "c", "output": FILE}]),
        ("anthropic", "messages", said({"type": "document", "source": FILE})),
        ("anthropic", "messages", said({"type": "image", "source": FILE})),
        ("anthropic", "messages", said({"type": "container_upload", "file_id": "file_of_somebody"})),
        ("anthropic", "messages", said(result([{"type": "image", "source": FILE}]))),
        (
            "anthropic",
            "messages",
            said({"type": "document", "source": {"type": "content", "content": [FILE]}}),
        ),
        ("anthropic", "container", "container_of_somebody"),
        ("chat", "messages", said({"type": "file", "file": {"file_id": "file_of_somebody"}})),
        ("chat", "messages", [{"role": "assistant", "audio": {"id": "audio_of_somebody"}}]),
        ("gemini", "contents", [{"parts": [{"fileData": URI}]}]),
        ("gemini", "contents", [{"parts": [{"fileData": None, "text": "Hi", "file_data": URI}]}]),
        (
            "gemini",
            "contents",
            [{"parts": [{"functionResponse": {"name": "f", "parts": [{"fileData": URI}]}}]}],
        ),
        ("gemini", "systemInstruction", {"parts": [{"file_data": {"file_uri": "files/of-somebody"}}]}),
    ],
)
async def test_what_is_stored_at_the_provider_under_the_key_is_nobodys_to_use(
    wire: Wire, field: str, value: Any
) -> None:
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream(KEY)
        answer = await post(gateway.admit(upstream), wire, **{field: value})
        await upstream.close()
    assert provider.asked == []
    assert answer.status_code == 400
    assert "nothing stored at the provider" in error_text(wire, answer.content)


@pytest.mark.parametrize(
    ("wire", "field", "value"),
    [
        ("responses", "input", said({"type": "input_file", "filename": "a.pdf", "file_data": DATA})),
        ("responses", "input", said({"type": "input_image", "image_url": DATA, "file_id": None})),
        (
            "responses",
            "input",
            [{"type": "function_call", "call_id": "c", "name": "f", "arguments": ARGUMENTS}],
        ),
        ("anthropic", "messages", said({"type": "image", "source": INLINE})),
        ("anthropic", "messages", said(result([{"type": "image", "source": INLINE}]))),
        ("anthropic", "messages", said({"type": "tool_use", "id": "t", "name": "f", "input": FILE})),
        ("chat", "messages", said({"type": "file", "file": {"filename": "a.pdf", "file_data": DATA}})),
        ("chat", "messages", said({"type": "image_url", "image_url": {"url": DATA}})),
        ("gemini", "contents", [{"parts": [{"functionCall": {"name": "f", "args": {"fileData": URI}}}]}]),
        ("gemini", "contents", [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "eA=="}}]}]),
    ],
)
async def test_what_a_request_brings_itself_passes(wire: Wire, field: str, value: Any) -> None:
    async with peer(say(b"{}")) as provider, Gateway() as gateway:
        upstream = provider.upstream(KEY)
        answer = await post(gateway.admit(upstream), wire, **{field: value})
        await upstream.close()
    assert (answer.status_code, len(provider.asked)) == (200, 1)


# --- query and headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ("beta=true", "?beta=true"),
        ("$httpMethod=DELETE&access_token=x&beta=true&callback=f", "?beta=true"),
        ("alt=proto", ""),
        ("alt=media&alt=sse", "?alt=sse"),
        ("alt=sse&alt=json", "?alt=sse"),
        ("%61lt=media", ""),
        (f"key={LOGIN}&alt=sse", "?alt=sse"),
        ("", ""),
    ],
)
async def test_only_known_parameters_leave_and_each_once(sent: str, left: str) -> None:
    path = "/v1beta/models/m:streamGenerateContent"
    head = await passed(f"{path}?{sent}", wire="gemini")
    assert head.startswith(f"POST {path}{left} HTTP/1.1\r\n")


@pytest.mark.parametrize("wire", WIRES)
async def test_with_the_operators_key_no_header_leaves_that_changes_a_request_or_who_pays(wire: Wire) -> None:
    bad = [
        "x-http-method-override: DELETE",
        "x-method-override: DELETE",
        "x-original-url: /v1/files",
        "x-forwarded-for: 10.0.0.1",
        "cookie: session=1",
        "openai-organization: org-other",
        "openai-project: proj_other",
        "x-goog-user-project: other",
        "chatgpt-account-id: other",
        "proxy-authorization: Basic eDp5",
        f"authorization: Bearer {LOGIN}",
        f"x-api-key: {LOGIN}",
        f"x-goog-api-key: {LOGIN}",
        "x-something-new: 1",
    ]
    good = ["content-type: application/json", CLIENTS[wire], "x-stainless-lang: python"]
    head = await passed(PATHS[wire], *bad, *good, wire=wire)
    lines = {line.lower() for line in head.split("\r\n")[1:]}
    assert lines.isdisjoint(line.lower() for line in bad)
    assert set(good) <= lines
    assert head.count(KEY) == 1
    assert LOGIN not in head


# --- in a session -------------------------------------------------------------------------------------------


def asking_around(
    *targets: tuple[str, str], seen: list[int], client: str = "anthropic-version: 2023-06-01"
) -> Any:
    """Return an agent that sends requests of its own before it asks its model."""

    async def play(task: Any) -> AsyncIterator[Any]:
        base_url = await task.host.model_endpoint()
        name, _, value = client.partition(": ")
        async with httpx2.AsyncClient(headers={name: value}) as sender:
            for method, target in targets:
                answer = await sender.request(method, base_url + target)
                seen.append(answer.status_code)
        async for item in claude_like(task):
            yield item

    return play


def models_of(provider: Peer) -> dict[Wire, Provider]:
    return {wire: Provider(origin=provider.url, key=KEY) for wire in WIRES}


async def test_what_passes_is_in_the_log_and_counts_as_a_request_and_the_rest_is_neither(
    tmp_path: Path,
) -> None:
    seen: list[int] = []
    play = asking_around(("GET", "/v1/models"), ("DELETE", "/v1/files/f"), ("GET", "/v1/models"), seen=seen)
    async with peer(say(b'{"data": []}', 200, "connection: close")) as provider:
        runtimes = {"agent": agent_runtime(play)}
        async with CodeSDK.open(tmp_path / "data", runtimes=runtimes, providers=models_of(provider)) as sdk:
            session = await session_of(sdk, tmp_path, None, budgets=Budgets(session=Budget(requests=2)))
            with pytest.raises(TaskFailure) as caught:
                await (await session.start("Hello")).result()
            events = await events_of(sdk, session)
            await check(sdk, session)
    assert seen == [200, 404, 200]
    assert caught.value.code == "BUDGET_EXCEEDED"
    assert [asked.split(b" HTTP")[0] for asked in provider.asked] == [b"GET /v1/models"] * 2
    started = payloads(events, "runtime.request.started")
    ended = payloads(events, "runtime.request.completed")
    assert [(p.purpose, p.model) for p in started] == [("models", None)] * 2
    assert [(p.request_id, p.status, p.http_status) for p in ended] == [
        (p.request_id, "completed", 200) for p in started
    ]


async def test_over_the_budget_a_list_of_models_is_refused_and_does_not_end_the_task(tmp_path: Path) -> None:
    seen: list[int] = []

    async def play(task: Any) -> AsyncIterator[Any]:
        last: list[Any] = []
        async for item in claude_like(task):
            last.append(item)
        async with httpx2.AsyncClient(headers={"anthropic-version": "2023-06-01"}) as client:
            seen.append((await client.get(await task.host.model_endpoint() + "/v1/models")).status_code)
        for item in last:
            yield item

    async with CodeSDK.open(tmp_path / "data", runtimes={"agent": agent_runtime(play)}, providers={}) as sdk:
        budgets = Budgets(session=Budget(requests=1))
        session = await session_of(sdk, tmp_path, turns("Hi."), budgets=budgets)
        assert (await (await session.start("Hello")).result()).text == "Hi."
    assert seen == [403]


async def test_models_of_a_provider_without_a_key_are_refused_and_the_task_goes_on(tmp_path: Path) -> None:
    seen: list[int] = []
    play = asking_around(("GET", "/v1/models"), seen=seen, client="user-agent: openai/2.0")
    async with Gateway() as upstream:
        url = upstream.admit(ScriptedModel(turns("Hi.")))
        async with CodeSDK.open(
            tmp_path / "data",
            runtimes={"agent": agent_runtime(play)},
            providers={"anthropic": Provider(origin=url, key=KEY)},
        ) as sdk:
            session = await session_of(sdk, tmp_path, None)
            assert (await (await session.start("Hello")).result()).text == "Hi."
    assert seen == [401]


async def test_a_provider_without_a_key_is_not_asked_for_its_models() -> None:
    upstream = Upstream()
    async with Gateway() as gateway, httpx2.AsyncClient() as client:
        answer = await client.get(gateway.admit(upstream) + "/v1/models")
    await upstream.close()
    assert answer.status_code == 401
