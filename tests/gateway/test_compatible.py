"""The operator's own service for chat completions: where its requests go, and which keys do not go there."""

from pathlib import Path
from typing import Any

import pytest
from tests.gateway.peers import peer, say

from codesdk import CodeSDK, SessionSettings
from codesdk.contract.access import ProviderName
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.models import Payer
from codesdk.gateway.providers import Accounts, Provider, access_with, providers_from

OPERATOR = Payer(principal="local", operator=True)
SOMEBODY = Payer(principal="ada")
URL = "http://127.0.0.1:11434/v1"
KEY = "compatible-key-0123456789"
OPENAI = "sk-openai-key-0123456789"


class Keys:
    def of(self, principal: str) -> dict[ProviderName, str]:
        return {"openai": "sk-of-ada-0123456789"} if principal == "ada" else {}

    def secrets(self) -> list[str]:
        return []


def test_without_an_address_chat_goes_to_openai():
    found = providers_from({"OPENAI_API_KEY": OPENAI})
    assert (found["chat"].origin, found["chat"].key) == ("https://api.openai.com", OPENAI)


def test_an_address_takes_the_place_of_openai_for_chat_and_openais_key_stays_away_from_it():
    found = providers_from({"OPENAI_API_KEY": OPENAI, "OPENAI_COMPATIBLE_BASE_URL": f"{URL}/"})
    assert found["chat"] == Provider(
        origin=URL, replaces="/v1", stranger=True, key_label="the key in OPENAI_COMPATIBLE_API_KEY"
    )
    assert found["responses"].key == OPENAI
    assert access_with(found)["chat"].label == f"{URL}, without a key"


@pytest.mark.parametrize(
    ("base", "address"),
    [
        (URL, "http://127.0.0.1:11434/v1/chat/completions"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://models.example/openai", "https://models.example/openai/chat/completions"),
    ],
)
def test_requests_go_below_the_address_as_it_is_written(base: str, address: str):
    provider = providers_from({"OPENAI_COMPATIBLE_BASE_URL": base})["chat"]
    assert provider.address("/v1/chat/completions") == address


@pytest.mark.parametrize(
    "url", ["ollama", "ftp://host/v1", "http://", "http://host/v1?key=1", "http://host/v1#x"]
)
def test_what_is_no_address_is_refused_by_the_name_of_its_variable(url: str):
    with pytest.raises(InvalidRequest, match="OPENAI_COMPATIBLE_BASE_URL"):
        providers_from({"OPENAI_COMPATIBLE_BASE_URL": url})


def test_a_principals_own_key_for_openai_does_not_go_to_another_service():
    environment = {"OPENAI_COMPATIBLE_BASE_URL": URL, "OPENAI_COMPATIBLE_API_KEY": KEY}
    accounts = Accounts(providers_from(environment), Keys())
    assert accounts.provider(OPERATOR, "chat").key == KEY
    assert accounts.provider(SOMEBODY, "chat").key is None
    assert accounts.provider(SOMEBODY, "responses").key == "sk-of-ada-0123456789"
    assert "chat" not in accounts.access(SOMEBODY)
    open_to_all = Accounts(providers_from({"OPENAI_COMPATIBLE_BASE_URL": URL}), Keys())
    assert open_to_all.provider(SOMEBODY, "chat").key is None
    assert "chat" in open_to_all.access(SOMEBODY)


ANSWER = b"".join(
    b"data: " + chunk + b"\n\n"
    for chunk in (
        b'{"id":"1","object":"chat.completion.chunk","created":1,"model":"gpt-5.5","choices":[{"index":0,"delta":'
        b'{"role":"assistant","content":"Hello."},"finish_reason":null}]}',
        b'{"id":"1","object":"chat.completion.chunk","created":1,"model":"gpt-5.5","choices":[{"index":0,"delta":{},'
        b'"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}',
        b"[DONE]",
    )
)


@pytest.mark.slow
async def test_minicode_asks_the_operators_service_and_its_price_is_not_guessed(tmp_path: Path):
    async with peer(say(ANSWER, 200, "content-type: text/event-stream", "connection: close")) as service:
        environment = {
            "OPENAI_COMPATIBLE_BASE_URL": f"{service.url}/api/v1",
            "OPENAI_COMPATIBLE_API_KEY": KEY,
            "OPENAI_API_KEY": OPENAI,
        }
        async with CodeSDK.open(tmp_path / "data", providers=providers_from(environment)) as sdk:
            settings = SessionSettings(runtime_config={"provider": "openai-compatible"})
            session = await sdk.create_session(
                runtime="minicode", workspace=tmp_path, model="gpt-5.5", settings=settings
            )
            result: Any = await (await session.start("Say hello.")).result()
    assert (result.text, result.usage.input, result.usage.cost_usd) == ("Hello.", 10, None)
    [asked] = service.asked
    assert asked.startswith(b"POST /api/v1/chat/completions HTTP/1.1\r\n")
    assert f"authorization: bearer {KEY}".encode() in asked.lower()
    assert OPENAI.encode() not in asked
