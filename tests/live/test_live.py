"""The runtimes with their real providers: only with RUN_LIVE_TESTS=1 and a key. What it does is tried with a script."""

import os
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
    assert entry.wire is not None, "it asks a model"
    if os.environ.get("RUN_LIVE_TESTS") != "1":
        return (
            "it asks a real provider, which costs money: RUN_LIVE_TESTS=1 and a key in the environment run it"
        )
    name = KEY_NAMES[entry.wire]
    return None if os.environ.get(name) else f"{name} is not set"


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
async def test_a_runtime_reads_a_note_with_its_real_provider(name: str, tmp_path: Path):
    lacking = missing(MODELS[name])
    if lacking is not None:
        pytest.skip(lacking)
    await read_a_note(name, tmp_path, os.environ.get(f"LIVE_MODEL_{(MODELS[name].alias or name).upper()}"))


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
    assert entry.wire is not None
    monkeypatch.delenv("RUN_LIVE_TESTS", raising=False)
    assert "RUN_LIVE_TESTS=1" in (missing(entry) or "")
    monkeypatch.setenv("RUN_LIVE_TESTS", "1")
    monkeypatch.delenv(KEY_NAMES[entry.wire], raising=False)
    assert missing(entry) == f"{KEY_NAMES[entry.wire]} is not set"
    monkeypatch.setenv(KEY_NAMES[entry.wire], "sk-of-nobody")
    assert missing(entry) is None
