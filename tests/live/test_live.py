"""The runtimes with their real providers: only with RUN_LIVE_TESTS=1 and a key. What it does is tried with a script."""

import os
import re
from pathlib import Path

import pytest
from tests.live.trial import NUMBER, read_a_note
from tests.runtimes.alone import alone, tried_outside

from codesdk.contract.entry import RuntimeEntry
from codesdk.gateway.providers import KEY_NAMES, ORIGINS, Provider
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.runtimes.registry import entries
from codesdk.script import parse_object

MODELS = {entry.name: entry for entry in entries().values() if entry.wire is not None}
SCRIPT = {
    "turns": [
        {
            "steps": [{"call": {"tool": "workspace.read", "input": {"path": "note.txt"}}}],
            "usage": {"input": 100, "output": 10},
        },
        {
            "expect": {"tool_result_contains": NUMBER},
            "steps": [{"text": NUMBER}],
            "usage": {"input": 120, "output": 5},
        },
    ]
}


def missing(entry: RuntimeEntry) -> str | None:
    """Return what a live test of a runtime lacks, or None."""
    if os.environ.get("RUN_LIVE_TESTS") != "1":
        return (
            "it asks a real provider, which costs money: RUN_LIVE_TESTS=1 and a key in the environment run it"
        )
    names = key_names(entry)
    if any(os.environ.get(name) for name in names):
        return None
    return f"{names[0]} is not set" if len(names) == 1 else f"none of {', '.join(names)} is set"


def key_names(entry: RuntimeEntry) -> list[str]:
    """Return the keys of which a runtime needs one: it asks the first of its providers for which there is a key."""
    return list(dict.fromkeys(KEY_NAMES[wire] for wire in entry.wires))


def model_variable(entry: RuntimeEntry) -> str:
    """Return the variable that names a runtime's model, as a shell can set it."""
    return f"LIVE_MODEL_{re.sub('[^A-Z0-9]', '_', (entry.alias or entry.name).upper())}"


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
async def test_a_runtime_reads_a_note_with_its_real_provider(name: str, tmp_path: Path):
    lacking = missing(MODELS[name])
    if lacking is not None:
        pytest.skip(lacking)
    await read_a_note(name, tmp_path, os.environ.get(model_variable(MODELS[name])))


@pytest.mark.parametrize("name", MODELS)
async def test_what_a_live_test_does_is_right(name: str, tmp_path: Path):
    with alone():
        async with Gateway() as provider:
            url = provider.admit(ScriptedModel(parse_object(SCRIPT, "script")))
            await read_a_note(name, tmp_path, providers={wire: Provider(origin=url) for wire in ORIGINS})
        assert tried_outside() == 0


@pytest.mark.parametrize("name", MODELS)
def test_a_live_test_says_what_it_lacks(name: str, monkeypatch: pytest.MonkeyPatch):
    entry = MODELS[name]
    for variable in ("RUN_LIVE_TESTS", *KEY_NAMES.values()):
        monkeypatch.delenv(variable, raising=False)
    assert "RUN_LIVE_TESTS=1" in (missing(entry) or "")
    monkeypatch.setenv("RUN_LIVE_TESTS", "1")
    lacking = missing(entry)
    assert lacking is not None
    assert [variable for variable in key_names(entry) if variable not in lacking] == []


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("key", sorted(set(KEY_NAMES.values())))
def test_a_live_test_runs_with_the_key_of_any_provider_that_the_runtime_can_ask(
    name: str, key: str, monkeypatch: pytest.MonkeyPatch
):
    for variable in KEY_NAMES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("RUN_LIVE_TESTS", "1")
    monkeypatch.setenv(key, "sk-of-nobody")
    usable = any(KEY_NAMES[wire] == key for wire in MODELS[name].wires)
    assert (missing(MODELS[name]) is None) is usable


def test_the_page_names_every_key_and_every_variable_for_a_model():
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    variables = {*KEY_NAMES.values(), *map(model_variable, MODELS.values())}
    assert [name for name in sorted(variables) if f"{name}`" not in page and f"{name}=" not in page] == []
