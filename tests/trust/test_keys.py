"""The operator's key goes to the operator's address: nothing that a request, a session or a workspace says moves it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.peers import PATHS, Peer, body_of, peer, say, send_raw

from codesdk import CodeSDK
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.options import read_options
from codesdk.gateway.providers import ORIGINS, Provider, providers_from
from codesdk.gateway.server import Gateway
from codesdk.gateway.wires.exchange import Wire
from codesdk.runtimes.claude import NAME, ClaudeOptions

KEY = "key-of-the-operator-0123456789"
ANSWER = say(b"{}", 200, "content-type: application/json")
HEADERS = (
    "host: {evil}",
    "x-forwarded-host: {evil}",
    "forwarded: host={evil};proto=http",
    "x-original-url: http://{evil}/v1/messages",
    "x-rewrite-url: http://{evil}/v1/messages",
    "x-stainless-base-url: http://{evil}",
    "anthropic-base-url: http://{evil}",
    "openai-base-url: http://{evil}",
    "proxy-connection: keep-alive",
)
TARGETS = (
    "@{evil}/v1/messages",
    ":80@{evil}/v1/messages",
    "/@{evil}/v1/messages",
    "//{evil}/v1/messages",
    "/\\{evil}/v1/messages",
    "/%2f%2f{evil}/v1/messages",
    "/v1/messages#@{evil}/",
    "/v1/messages?base_url=http://{evil}&origin=http://{evil}",
    "/../../{evil}/v1/messages",
    "/http://{evil}/v1/messages",
)


async def send(gateway: Gateway, provider: Peer, target: str, *headers: str) -> None:
    upstream = provider.upstream(KEY)
    url = gateway.admit(upstream)
    body = json.dumps(body_of("anthropic")).encode()
    await send_raw(url + target, "content-type: application/json", *headers, body=body)
    await upstream.close()


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.slow
async def test_a_header_of_a_request_does_not_move_the_key(header: str):
    async with peer(ANSWER) as provider, peer(ANSWER) as evil, Gateway() as gateway:
        await send(
            gateway, provider, PATHS["anthropic"], header.format(evil=evil.url.removeprefix("http://"))
        )
    assert (len(provider.asked), evil.asked) == (1, [])
    assert KEY.encode() in provider.asked[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.slow
async def test_a_spelling_of_the_address_does_not_move_the_key(target: str):
    async with peer(ANSWER) as provider, peer(ANSWER) as evil, Gateway() as gateway:
        await send(gateway, provider, target.format(evil=evil.url.removeprefix("http://")))
    assert evil.asked == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_provider_that_redirects_does_not_move_the_key(status: int):
    async with peer(ANSWER) as evil:
        moved = say(b"", status, f"location: {evil.url}/v1/messages")
        async with peer(moved) as provider, Gateway() as gateway:
            await send(gateway, provider, PATHS["anthropic"])
    assert (len(provider.asked), evil.asked) == (1, [])


@pytest.mark.parametrize(
    "config",
    [
        {"base_url": "http://127.0.0.1:1"},
        {"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}},
        {"program": "/tmp/claude"},
        {"settings": {"hooks": {}}},
        {"mcp_servers": {}},
    ],
)
def test_the_configuration_of_a_session_has_no_word_for_addresses_programs_or_variables(
    config: dict[str, Any],
):
    with pytest.raises(InvalidRequest, match="takes system_prompt, effort"):
        read_options(ClaudeOptions, config, NAME)


async def test_what_a_workspace_says_about_providers_and_permissions_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workspace = tmp_path / "workspace"
    evil = "http://127.0.0.1:1"
    files = {
        ".env": f"ANTHROPIC_BASE_URL={evil}\nOPENAI_BASE_URL={evil}\nANTHROPIC_API_KEY=planted-key-0123456789\n",
        "codesdk.toml": f'allow_yolo = true\npolicy = "policy.toml"\n[providers.anthropic]\norigin = "{evil}"\n',
        ".codesdk.toml": "allow_yolo = true\n",
        "policy.toml": '[[rules]]\neffect = "allow"\n',
        "pyproject.toml": "[tool.codesdk]\nallow_yolo = true\n",
        ".codesdk/codesdk.toml": "allow_yolo = true\n",
    }
    for name, text in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    monkeypatch.chdir(workspace)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    # Variables of this kind move other clients; ours has its addresses from the operator's code alone.
    monkeypatch.setenv("ANTHROPIC_BASE_URL", evil)
    monkeypatch.setenv("OPENAI_BASE_URL", evil)
    wanted: dict[Wire, Provider] = {wire: Provider(origin=origin) for wire, origin in ORIGINS.items()}
    assert providers_from() == wanted
    async with CodeSDK.open(workspace / ".codesdk") as sdk:
        with pytest.raises(Exception, match="yolo runs every tool without asking and is not enabled here"):
            await sdk.create_session(runtime="scripted", workspace=workspace, permission_mode="yolo")
