"""Rows of agents: plain data, filled in when an agent starts."""

import stat
from pathlib import Path

import msgspec
import pytest

from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.contract.options import read_options
from codesdk.engine import Permits
from codesdk.runtimes.acp import ENTRIES, ROWS, CommandOptions
from codesdk.runtimes.acp.launch import (
    Account,
    Setup,
    command_line,
    forget_files,
    known_names,
    mcp_server,
    tidy_session,
    write_files,
)
from codesdk.runtimes.acp.row import AgentRow, Launch, SessionFile, fill
from codesdk.runtimes.program.environment import Places, make_folder
from codesdk.runtimes.registry import entries, entry_of

TOKEN = "t" * 32


def placed(tmp_path: Path) -> Places:
    for name in ("home", "tmp", "work"):
        make_folder(tmp_path / "root" / name)
    return Places(root=tmp_path / "root", lasting=True)


def setup_of(row: AgentRow) -> Setup:
    return Setup(
        command=("/bin/agent",),
        row=row,
        model="model-7",
        model_url=f"http://127.0.0.1:1/g/{TOKEN}",
        tool_url=f"http://127.0.0.1:2/m/{TOKEN}/mcp",
        instructions='Be "kind".\nAlways.',
    )


def test_all_seven_agents_and_any_other_are_runtimes():
    names = {"claude-agent-acp", "codex-acp", "gemini", "kilo", "opencode", "qwen", "vibe"}
    assert set(ROWS) == names
    assert {entry.name for entry in ENTRIES} == {"acp", *(f"acp:{name}" for name in names)}
    assert entry_of("gemini").name == "gemini-cli-core"
    assert {entry.name for entry in ENTRIES} < set(entries())


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_plain_data_that_json_can_hold(name: str):
    row = ROWS[name].row
    assert msgspec.json.decode(msgspec.json.encode(row), type=AgentRow) == row


@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_left_to_fill_in_when_an_agent_starts(name: str, tmp_path: Path):
    places, setup = placed(tmp_path), setup_of(ROWS[name].row)
    known = known_names(setup, places)
    launch = setup.row.launch
    filled = [fill(launch.arguments, known), fill(launch.environment, known), fill(launch.files, known)]
    told = msgspec.json.encode([*filled, fill(setup.row.meta, known)]).decode()
    assert "${" not in told
    # The model is told of, and how it is reached. Otherwise the agent would ask somebody else.
    assert TOKEN in told
    assert "model-7" in told


def test_the_files_of_a_login_are_links_that_go_with_the_agent_and_stay_themselves(tmp_path: Path):
    kept = tmp_path / "login" / "token"
    kept.parent.mkdir()
    kept.write_text("a secret")
    account = Account(label="Somebody", mark="m", command="c", links={"home/token": kept})
    setup = msgspec.structs.replace(setup_of(AgentRow(wire="chat", model="m")), account=account)
    places = placed(tmp_path)
    for _ in range(2):  # what a killed agent left is replaced
        write_files(setup, places)
    assert (places.home / "token").readlink() == kept
    forget_files(setup, places)
    assert list(places.home.iterdir()) == []
    assert kept.read_text() == "a secret"


@pytest.mark.parametrize("name", ROWS)
def test_the_files_of_an_agent_are_its_owners_alone_and_go_with_it(name: str, tmp_path: Path):
    places, setup = placed(tmp_path), setup_of(ROWS[name].row)
    write_files(setup, places)
    written = [path for path in places.root.rglob("*") if path.is_file()]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in written)
    forget_files(setup, places)
    left = [path for path in places.root.rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in path.read_bytes() for path in left)


@pytest.mark.parametrize("name", ROWS)
def test_no_token_is_on_the_command_line(name: str, tmp_path: Path):
    assert not any(TOKEN in word for word in command_line(setup_of(ROWS[name].row), placed(tmp_path)))


def test_texts_are_filled_in_as_they_are_or_as_json():
    known = {"a": 'x"y', "b": "z"}
    assert fill({"k ${b}": ["${a}", "${a:json}", "${unknown}", 7, None]}, known) == {
        "k z": ['x"y', '"x\\"y"', "${unknown}", 7, None]
    }
    # What is filled in is not filled in again.
    assert fill("${a}", {"a": "${b}", "b": "never"}) == "${b}"


def test_the_largest_file_of_a_session_is_kept_under_the_name_that_is_found(tmp_path: Path):
    places = placed(tmp_path)
    chats = make_folder(places.root / "chats")
    for name, size in (("a-12345678.x", 3), ("b-12345678.x", 30), ("c-12345678.x", 1), ("d-87654321.x", 99)):
        (chats / name).write_bytes(b"y" * size)
    row = AgentRow(
        wire="chat",
        model="m",
        session_file=SessionFile(pattern="chats/*-${start}.x", name="old-${start}.x"),
    )
    tidy_session(row, places, "12345678-9abc")
    assert {path.name: path.stat().st_size for path in chats.iterdir()} == {
        "old-12345678.x": 30,
        "d-87654321.x": 99,
    }
    for known in ("../../12345678", "*", "no-such"):
        tidy_session(row, places, known)
    assert len(list(chats.iterdir())) == 2


def test_an_agent_without_http_gets_a_program_of_ours_whose_environment_has_the_address_alone():
    row = AgentRow(wire="chat", model="m", transports=("stdio",), launch=Launch())
    server = mcp_server(setup_of(row))
    assert server["args"][-1] == "mcp"
    assert server["env"] == [{"name": "CODESDK_MCP_URL", "value": f"http://127.0.0.1:2/m/{TOKEN}/mcp"}]
    assert TOKEN not in " ".join([server["command"], *server["args"]])


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"command": ["/bin/x"]},
        {"row": {"wire": "chat", "model": "m"}},
        {"command": [], "row": {"wire": "chat", "model": "m"}},
        {"command": "/bin/x", "row": {"wire": "chat", "model": "m"}},
        {"command": ["/bin/x"], "row": {"wire": "smoke", "model": "m"}},
        {"command": ["/bin/x"], "row": {"wire": "chat", "model": "m", "no_such": 1}},
        {"command": ["/bin/x"], "row": {"wire": "chat", "model": "m"}, "more": 1},
    ],
)
def test_a_command_without_a_row_or_with_a_wrong_one_is_refused_in_words(config: dict[str, object]):
    with pytest.raises(InvalidRequest, match="cannot take this runtime_config"):
        read_options(CommandOptions, config, "acp")


def test_a_command_of_a_session_needs_the_operators_permission():
    config = {"command": ["/bin/x"]}
    with pytest.raises(Forbidden, match="--allow-agent-commands"):
        Permits().check("acp", "ask", config)
    Permits(agent_commands=True).check("acp", "ask", config)
