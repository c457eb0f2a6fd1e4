"""The operator's own agents: files in the operator's folder → runtimes `acp:NAME`."""

import stat
from pathlib import Path

import pytest

from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.models import Wire
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.acp.own import OwnAgent, own_folder, read_own, write_own
from codesdk.runtimes.acp.row import AgentRow
from codesdk.runtimes.registry import create_runtime, entries, entry_of, runtime_table


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def agent(wire: Wire = "responses") -> OwnAgent:
    return OwnAgent(command=("/bin/true", "--acp"), row=AgentRow(wire=wire, model="m-1"), version="1.2")


async def test_an_agents_file_is_a_runtime():
    path = write_own("mine", agent())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    entry = entry_of("acp:mine")
    assert (entry.name, entry.wire, entry.program) == ("acp:mine", "responses", None)
    runtime = create_runtime("acp:mine")
    assert runtime.name == "acp:mine"
    env = RuntimeEnv(
        cwd="/", env={}, credential_namespace="x", isolation=Isolation(level="ephemeral", mode="subprocess")
    )
    found = await runtime.check_available(env)
    assert (found.ok, found.program) == (True, "/bin/true")
    assert "acp:mine" not in runtime_table()


async def test_another_program_may_take_the_place_of_its_own():
    write_own("mine", agent())
    env = RuntimeEnv(
        cwd="/", env={}, credential_namespace="x", isolation=Isolation(level="ephemeral", mode="subprocess")
    )
    found = await create_runtime("acp:mine", program="/bin/false").check_available(env)
    assert (found.ok, found.program) == (True, "/bin/false")


def test_the_file_is_written_whole_and_over_an_older_one():
    write_own("mine", agent())
    write_own("mine", agent("chat"))
    assert [path.name for path in own_folder().iterdir()] == ["mine.json"]
    assert read_own("mine").row == AgentRow(name="mine", wire="chat", model="m-1")


@pytest.mark.parametrize("name", ["", "Mine", "../x", "a" * 41, "a.b"])
def test_a_name_that_is_none_is_refused(name: str):
    with pytest.raises(InvalidRequest, match="cannot be an agent's name"):
        write_own(name, agent())


def test_a_name_that_ships_cannot_be_taken():
    with pytest.raises(InvalidRequest, match="ships with CodeSDK"):
        write_own("qwen", agent())
    own_folder().mkdir(parents=True)
    (own_folder() / "qwen.json").write_text("{}")
    assert entry_of("acp:qwen").program is not None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"command": []}', '{"command": [], "row": {"wire": "chat", "model": "m"}}']
)
def test_a_file_that_is_none_hides_no_other_and_says_what_it_is(text: str):
    write_own("good", agent())
    (own_folder() / "bad.json").write_text(text)
    assert "acp:good" in entries()
    assert "acp:bad" not in entries()
    with pytest.raises(InvalidRequest, match=r"bad\.json is not an agent's file"):
        entry_of("acp:bad")
