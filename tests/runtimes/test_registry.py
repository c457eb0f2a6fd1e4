"""Names of runtimes: what is there, what is not, and what is said then."""

import subprocess
import sys

import pytest

from codesdk.contract.errors import InvalidRequest
from codesdk.runtimes import registry
from codesdk.runtimes.registry import create_runtime, resolve, runtime_names
from codesdk.runtimes.scripted.adapter import ScriptedRuntime


def test_only_what_exists_is_listed_and_all_of_it_can_be_created():
    assert {"claude-agent-sdk", "codex-sdk", "scripted"} <= set(runtime_names())
    assert [create_runtime(name).name for name in runtime_names()] == runtime_names()


def test_a_runtime_is_created_by_its_name():
    assert isinstance(create_runtime("scripted"), ScriptedRuntime)


def test_an_alias_stands_for_the_full_name_of_a_runtime_that_exists(monkeypatch):
    monkeypatch.setitem(registry.ALIASES, "play", "scripted")
    assert resolve("play") == "scripted"
    assert create_runtime("play").name == "scripted"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scriptd", 'There is no runtime "scriptd". Did you mean "scripted"? Available: '),
        ("zzz", 'There is no runtime "zzz". Available: '),
        ("", 'There is no runtime "". Available: '),
        ("gemini", "The runtime gemini-cli-core is not part of this version. Available: "),
        ("opencode-server", "The runtime opencode-server is not part of this version. Available: "),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_what_is(name, message):
    with pytest.raises(InvalidRequest) as caught:
        create_runtime(name)
    assert caught.value.message == f"{message}{', '.join(runtime_names())}."


def test_looking_at_the_names_loads_no_runtime():
    code = (
        "import sys; from codesdk.runtimes.registry import runtime_names; runtime_names();"
        " sys.exit(any(name.startswith('codesdk.runtimes.') for name in sys.modules if 'registry' not in name))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
