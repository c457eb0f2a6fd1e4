"""What is said of a runtime before a task is what then happens to the task: over runtimes, keys, scripts and recordings.

The provider is a scripted one on loopback that notes which keys it was paid with. The programs are the real ones.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.alone import alone, tried_outside

from codesdk import CodeSDK, Session
from codesdk.cli.app import run
from codesdk.contract.access import (
    COMPATIBLE_KEY,
    COMPATIBLE_URL,
    KEY_VARIABLES,
    PROVIDER_OF,
    ProviderName,
)
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.settings import SessionSettings
from codesdk.engine import Permits
from codesdk.gateway import Gateway, ScriptedModel
from codesdk.gateway.providers import ORIGINS
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.wires.exchange import Ask, Codec
from codesdk.local import KeyFile
from codesdk.runtimes import entries, runtime_names
from codesdk.script import parse_object

OPERATORS, ALICES = "key-of-the-operator-0123456789", "key-of-alice-0123456789-abc"
SAYS = {"turns": [{"steps": [{"text": "Hello."}]}], "loop": True}
_LOGINS = ("x-api-key", "x-goog-api-key", "authorization")
NAMED = [name for name in runtime_names() if name != "acp"]
"""All but the one that is nothing without a command."""
ASKING = [name for name, entry in entries().items() if entry.wires]
"""Those that ask a model, and so need a key or a login."""


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in (*KEY_VARIABLES.values(), COMPATIBLE_URL, COMPATIBLE_KEY):
        monkeypatch.delenv(variable, raising=False)
    with alone():
        yield
        assert tried_outside() == 0


class PaidModel:
    """A provider that answers whoever has a key, and notes the key."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self._model = ScriptedModel(parse_object(SAYS, "provider"))

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        headers = {name.lower(): value for name, value in request.headers}
        self.paid.append(
            next(value.removeprefix("Bearer ") for name in _LOGINS if (value := headers.get(name)))
        )
        return await self._model.answer(codec, ask, request)

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply | None:
        return await self._model.list_models(codec, request)


@asynccontextmanager
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PaidModel]:
    """Stand in for every real provider: a request without a key is refused as it would be there."""
    async with Gateway() as gateway:
        model = PaidModel()
        url = gateway.admit(model)
        for wire in list(ORIGINS):
            monkeypatch.setitem(ORIGINS, wire, url)
        yield model


def providers_of(entry: RuntimeEntry) -> list[ProviderName]:
    """Return whose keys serve a runtime, in the order in which they are named."""
    return list(dict.fromkeys(PROVIDER_OF[wire] for wire in entry.wires))


def provider_name(entry: RuntimeEntry) -> ProviderName:
    return providers_of(entry)[0]


def named(entry: RuntimeEntry) -> str:
    """Return what a person is told to store a key for."""
    names = providers_of(entry)
    return names[0] if len(names) == 1 else "PROVIDER"


async def outcome(session: Session) -> tuple[bool, str]:
    """Return whether a task succeeds, and what it says. It may fail for want of a key only."""
    try:
        return True, (await (await session.start("Hello")).result()).text
    except CodeSDKError as failure:
        return failure.code != "AUTH_REQUIRED", failure.message


async def words_before(sdk: CodeSDK, name: str, principal: str) -> bool:
    """Return what everybody who can be asked says of a runtime: they must agree."""
    found = await sdk.as_principal(principal).runtime_auth(name)
    assert found.available.ok
    assert found.ready == found.auth.ok == (found.auth.problem is None)
    return found.ready


@pytest.mark.parametrize("name", NAMED)
async def test_a_task_ends_as_was_said_before_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = entries()[name]
    needs_key = bool(entry.wires)
    (tmp_path / "ws").mkdir()
    script = SAYS if needs_key else None
    own: dict[str, Any] = {} if needs_key else {"runtime_config": {"script": SAYS}}

    async def session(sdk: CodeSDK, principal: str, gateway: Any = "passthrough", **more: Any) -> Session:
        settings = SessionSettings(gateway=gateway, **own)
        return await sdk.as_principal(principal).create_session(
            runtime=name, workspace=tmp_path / "ws", settings=settings, **more
        )

    async with provider(monkeypatch) as model:
        if needs_key:
            monkeypatch.setenv(KEY_VARIABLES[provider_name(entry)], OPERATORS)
        async with CodeSDK.open(tmp_path / "data", permits=Permits()) as sdk:
            # The operator's key is the operator's: it serves nobody else unless it is shared.
            assert await words_before(sdk, name, "local")
            assert await outcome(await session(sdk, "local")) == (True, "Hello.")
            assert await words_before(sdk, name, "alice") is not needs_key
            began, text = await outcome(await session(sdk, "alice"))
            assert began is not needs_key
            if not needs_key:
                return
            provider_ = provider_name(entry)
            assert KEY_VARIABLES[provider_] in text
            assert f"codesdk keys add {named(entry)} --principal alice" in text
            # A stored key is used from the next task on, and by its principal only.
            sdk.keys.add("alice", provider_, ALICES)
            assert await words_before(sdk, name, "alice")
            recorded = await session(sdk, "alice", "record")
            assert await outcome(recorded) == (True, "Hello.")
            assert set(model.paid) == {OPERATORS, ALICES}
            paid = len(model.paid)
            # Without it again, what plays a script or a recording needs none, and nothing is asked of the provider.
            sdk.keys.remove("alice", provider_)
            assert not await words_before(sdk, name, "alice")
            plays = parse_object(SAYS, "script") if script else None
            assert await outcome(await session(sdk, "alice", plays=plays)) == (True, "Hello.")
            assert await outcome(await session(sdk, "alice", recording=recorded.id)) == (True, "Hello.")
            assert not (await outcome(await session(sdk, "alice")))[0]
            assert len(model.paid) == paid
        for path in (tmp_path / "data").rglob("*"):
            if path.is_file():
                assert ALICES.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("source", ["none", "environment", "stored"])
def test_the_list_and_the_doctor_say_the_same(
    name: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    entry, data = entries()[name], tmp_path / "data"
    wanted = not entry.wires or source != "none"
    if entry.wires and source == "environment":
        monkeypatch.setenv(KEY_VARIABLES[provider_name(entry)], OPERATORS)
    if entry.wires and source == "stored":
        KeyFile(data).add("local", provider_name(entry), ALICES)

    def told(*words: str) -> Any:
        code = run(["--data-dir", str(data), "runtimes", *words, name, "--json"])
        said = capfd.readouterr()
        assert (code, said.err) == (0 if wanted else 1, "")
        return json.loads(said.out)

    listed, looked = told("list"), told("doctor")
    assert (listed["ready"], listed["auth"]["ok"], looked["ok"]) == (wanted, wanted, wanted)
    if not wanted:
        finding = next(one for one in looked["findings"] if one["check"] == "login")
        assert (finding["found"], finding["to_do"]) == (listed["auth"]["problem"], listed["auth"]["to_do"])
        assert KEY_VARIABLES[provider_name(entry)] in finding["to_do"]
        assert f"codesdk keys add {named(entry)}" in finding["to_do"]


@pytest.mark.parametrize("name", ASKING)
async def test_a_task_without_a_key_fails_before_its_program_or_its_model_is_looked_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    async def find(*_: Any, **__: Any) -> Any:
        started.append(name)
        raise AssertionError("it was looked for")

    entry = entries()[name]
    adapter = entry.adapter.partition(":")[0]
    if name == "gemini-cli-core":  # it is driven by the adapter of its protocol
        adapter = "codesdk.runtimes.acp.adapter"
    # One without a program asks its model from this process.
    finds = "open_model" if entry.program is None else "find_program"
    monkeypatch.setattr(f"{adapter}.{finds}", find)
    async with CodeSDK.open(tmp_path / "data") as sdk:
        session = await sdk.create_session(runtime=name, workspace=tmp_path)
        ok, text = await outcome(session)
        kinds = [event.type async for event in _stored(sdk, session)]
    assert (ok, started) == (False, [])
    names = providers_of(entry)
    login = "" if len(names) > 1 else f", and {name} is not logged in"  # who takes several keys has no login
    assert text == (
        f"There is no key for {' or '.join(names)}{login}. Set"
        f" {' or '.join(KEY_VARIABLES[each] for each in names)} where CodeSDK runs; or store a key: codesdk keys add"
        f" {named(entry)}."
    )
    assert kinds == ["session.created", "task.started", "task.failed"]


async def _stored(sdk: CodeSDK, session: Session) -> AsyncIterator[Any]:
    for seq in range(1, await sdk.archive.head(session.id) + 1):
        yield await session.event(seq)
