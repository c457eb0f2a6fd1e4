"""Names of runtimes: what is there, what is not, and what is said then."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import InvalidRequest
from codesdk.runtimes import registry
from codesdk.runtimes.registry import create_runtime, entries, resolve, runtime_names
from codesdk.runtimes.scripted.adapter import ScriptedRuntime


def test_only_what_exists_is_listed_and_all_of_it_can_be_created():
    assert {"claude-agent-sdk", "codex-sdk", "scripted"} <= set(runtime_names())
    assert [create_runtime(name).name for name in runtime_names()] == runtime_names()


def test_a_runtime_is_created_by_its_name():
    assert isinstance(create_runtime("scripted"), ScriptedRuntime)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("codex", {"max_retries": 3}, "The runtime codex-sdk cannot be created with .* It takes: program."),
        ("acp:qwen", {"agent": "kimi"}, "The runtime acp:qwen cannot be created with .* It takes: program."),
        ("acp:qwen", {"program": 3}, "program: expected `str | null`, got `int`"),
        ("minicode", {"provider": "nobody"}, "provider: .* expected anthropic, google, openai"),
        ("scripted", {"script": "demo.yaml"}, "script: expected"),
    ],
)
def test_options_that_a_runtime_does_not_take_are_refused(name: str, options: dict[str, Any], words: str):
    with pytest.raises(InvalidRequest, match=words):
        create_runtime(name, **options)


def test_an_alias_stands_for_the_full_name():
    assert resolve("codex") == resolve("codex-sdk") == "codex-sdk"
    assert create_runtime("codex").name == "codex-sdk"


def test_no_name_or_alias_stands_for_two_runtimes():
    known = [name for entry in entries().values() for name in (entry.name, entry.alias) if name]
    assert sum(len(registry._entries_in(package)) for package in registry.RUNTIMES) == len(entries())
    assert sorted(known) == sorted(set(known))


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.name)
def test_an_entry_and_its_adapter_say_the_same(entry: RuntimeEntry):
    capabilities = create_runtime(entry.name).capabilities()
    assert capabilities.instruction_files == list(entry.instructions.captured)
    # Of an agent that is given as a command, only its session says which format it speaks.
    assert (capabilities.input_capture == "exact") == (entry.wire is not None or entry.name == "acp")
    assert capabilities.login_traffic == list(entry.logins)
    assert entry.docs is None or (Path(__file__).parents[2] / "docs" / entry.docs).is_file()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scriptd", 'There is no runtime "scriptd". Did you mean "scripted"? Available: '),
        ("zzz", 'There is no runtime "zzz". Available: '),
        ("", 'There is no runtime "". Available: '),
        ("claud", 'There is no runtime "claud". Did you mean "claude"? Available: '),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_what_is(name, message):
    with pytest.raises(InvalidRequest) as caught:
        create_runtime(name)
    assert caught.value.message == f"{message}{', '.join(runtime_names())}."


def test_the_registry_loads_no_entry_before_a_name_is_looked_up():
    code = (
        "import sys; from codesdk.runtimes import create_runtime, resolve;"
        " print(*sorted(name for name in sys.modules if name.startswith(('codesdk.runtimes.', 'codesdk.minicode'))))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert ran.stdout.split() == ["codesdk.runtimes.registry"]


def test_looking_at_the_entries_loads_no_adapter():
    code = (
        "import sys; from codesdk.runtimes import entries; entries();"
        " print(*sorted(name for name in sys.modules if name.startswith(('codesdk.runtimes.', 'codesdk.minicode.'))))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    agents = ("claude", "codex", "gemini", "opencode", "qwen", "vibe")
    data = ["acp.known", *(f"acp.known.{name}" for name in agents), "acp.own", "acp.row"]
    data += ["codex.features", "program", "program.agent_files", "program.environment", "program.pinned"]
    assert ran.stdout.split() == sorted(
        [
            *registry.RUNTIMES,
            "codesdk.minicode.types",
            "codesdk.runtimes.registry",
            *(f"codesdk.runtimes.{name}" for name in data),
        ]
    )
