"""What `runtime_config` says has effect on the exact request of a real program; what a runtime does not know is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes.alone import alone, tried_outside

from codesdk import CodeSDK, InvalidRequest, Session, SessionSettings, TaskFailure
from codesdk.contract.codec import decode
from codesdk.contract.options import option_table
from codesdk.gateway.capture.exact import hashes_of, join
from codesdk.runtimes import create_runtime, entries
from codesdk.script import parse_object

DOCS = Path(__file__).parents[2] / "docs"
HELLO = parse_object({"turns": [{"steps": [{"text": "Hello."}]}], "loop": True}, "a test")


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


async def requests(sdk: CodeSDK, session: Session) -> list[dict[str, Any]]:
    """Return the exact requests of a session, as its program sent them."""
    found: list[dict[str, Any]] = []
    async for frame in sdk.archive.frames(session.id):
        payload: Any = decode(frame.data).payload
        if getattr(payload, "capture", None) == "exact":
            document = json.loads(await sdk.read_artifact(payload.input_ref.artifact_id))
            found.append(join(document, {n: await sdk.archive.blobs.get(n) for n in hashes_of(document)}))
    return found


async def said(runtime: str, model: str, tmp_path: Path, **config: Any) -> dict[str, Any]:
    """Return the first request of a session with this `runtime_config`."""
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        session = await sdk.create_session(
            runtime=runtime,
            model=model,
            workspace=tmp_path,
            plays=HELLO,
            settings=SessionSettings(runtime_config=config),
        )
        await (await session.start("Hi")).result()
        return (await requests(sdk, session))[0]


@pytest.mark.parametrize(
    ("runtime", "model"), [("codex", "gpt-5.5"), ("claude", "claude-opus-4-6")], ids=["codex", "claude"]
)
async def test_effort_and_system_prompt_reach_the_model(runtime: str, model: str, tmp_path: Path):
    """Neither program would ask for low by itself: codex's default for this model is medium, claude's is high."""
    body = await said(runtime, model, tmp_path, effort="low", system_prompt="You are under test.")
    assert (body.get("reasoning") or body["output_config"])["effort"] == "low"
    told = body["system"][1:] if "system" in body else body["input"][0]["content"]
    assert [part["text"] for part in told] == ["You are under test."]


async def test_an_effort_that_the_model_does_not_have_is_refused_before_codex_begins(tmp_path: Path):
    with pytest.raises(TaskFailure) as refused:
        await said("codex", "gpt-5.5", tmp_path, effort="max")
    assert (refused.value.code, refused.value.message) == (
        "INVALID_REQUEST",
        "The model gpt-5.5 has no effort max. It has: low, medium, high, xhigh.",
    )


@pytest.mark.parametrize("name", entries())
async def test_what_a_runtime_does_not_know_is_refused_before_anything_is_stored(name: str, tmp_path: Path):
    known = ", ".join(entries()[name].options.__struct_fields__)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"no_such": 1}, "object contains unknown field `no_such`"),
        ({entries()[name].options.__struct_fields__[0]: 5}, "got `int`"),
    ]
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk:
        for config, words in wrong:
            with pytest.raises(InvalidRequest) as refused:
                await sdk.create_session(
                    runtime=name, workspace=tmp_path, settings=SessionSettings(runtime_config=config)
                )
            message = refused.value.message
            assert message.startswith(f"The runtime {name} cannot take this runtime_config: ")
            assert message.endswith(f"{words}. It takes {known}.")
        assert await sdk.sessions() == []


@pytest.mark.parametrize("name", entries())
def test_the_adapter_has_the_options_of_its_entry_and_its_page_lists_them(name: str):
    entry = entries()[name]
    assert create_runtime(name).options is entry.options
    assert entry.docs is not None
    assert option_table(entry.options) in (DOCS / entry.docs).read_text()
