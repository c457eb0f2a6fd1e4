"""A client of the daemon that may only work: whatever runs outside of the sandbox, or is somebody else's, is out of reach."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.rig import HELLO, Daemon, daemon

from codesdk.local.tokens import TokenFile

SERVERS = {"mcp_servers": {"evil": {"type": "stdio", "command": "/usr/bin/touch", "args": ["{mark}"]}}}
SECRET = "secret-of-ann-0123456789"


class House:
    """A daemon with sessions of ann's, and tokens of hers that may only work, and of eve's that may do anything."""

    def __init__(self, running: Daemon, root: Path, ann: str, worker: str, eve: str) -> None:
        self.running, self.mark = running, root / "mark"
        self.workspace = str(root)
        self.headers = {
            name: {"authorization": f"Bearer {token}"}
            for name, token in (("ann", ann), ("worker", worker), ("eve", eve))
        }
        body = {
            "runtime": "scripted",
            "workspace": self.workspace,
            "settings": {"runtime_config": {"script": HELLO}},
            "secrets": [SECRET],
        }
        self.session = running.post("/v1/sessions", body, **self.headers["ann"])["session_id"]

    def ask(self, who: str, path: str, body: dict[str, Any]) -> tuple[int, str]:
        answer = self.running.http.post(path, json=body, headers=self.headers[who])
        assert SECRET not in answer.text
        return answer.status_code, answer.json()["code"]

    def read(self, who: str, path: str) -> Any:
        return self.running.http.get(path, headers=self.headers[who]).json()

    def sealed(self) -> dict[str, bytes]:
        folder = self.running.data_dir / "equipment"
        return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    root = tmp_path_factory.mktemp("clients")
    tokens = TokenFile(root / "data")
    ann, _ = tokens.add("ann", ["admin"])
    worker, _ = tokens.add("ann", ["read", "run"])
    eve, _ = tokens.add("eve", ["admin"])
    with daemon(root / "data") as running:
        yield House(running, root, ann, worker, eve)


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        (SERVERS, (403, "FORBIDDEN")),
        ({"native_tools": ["Bash"]}, (403, "FORBIDDEN")),
        ({"permission_mode": "yolo"}, (403, "FORBIDDEN")),
        ({"env": {"PATH": "/tmp"}}, (400, "INVALID_REQUEST")),
        ({"program": "/tmp/claude"}, (400, "INVALID_REQUEST")),
        ({"sandbox": "host"}, (400, "INVALID_REQUEST")),
        ({"base_url": "http://127.0.0.1:1"}, (400, "INVALID_REQUEST")),
        ({"providers": {"anthropic": {"origin": "http://127.0.0.1:1"}}}, (400, "INVALID_REQUEST")),
        ({"principal": "eve"}, (400, "INVALID_REQUEST")),
        ({"sealed": ["secrets"]}, (400, "INVALID_REQUEST")),
        ({"settings": {"base_url": "http://127.0.0.1:1"}}, (400, "INVALID_REQUEST")),
        ({"settings": {"env": {"PATH": "/tmp"}}}, (400, "INVALID_REQUEST")),
        ({"settings": {"sandbox": "host"}}, (400, "INVALID_REQUEST")),
    ],
)
def test_a_new_session_gets_nothing_that_runs_outside(
    house: House, fields: dict[str, Any], refused: tuple[int, str]
):
    before = house.sealed()
    body = {"runtime": "scripted", "workspace": house.workspace} | fields
    assert house.ask("worker", "/v1/sessions", body) == refused
    assert (house.sealed(), house.mark.exists()) == (before, False)


@pytest.mark.parametrize(
    ("verb", "body", "refused"),
    [
        ("equipment", SERVERS, (403, "FORBIDDEN")),
        ("settings", {"permission_mode": "yolo"}, (403, "FORBIDDEN")),
        ("settings", {"sealed": []}, (400, "INVALID_REQUEST")),
        ("settings", {"native_tools": ["Bash"]}, (400, "INVALID_REQUEST")),
        ("settings", {"workspace": "/"}, (400, "INVALID_REQUEST")),
        ("tasks", {"message": "Go", "runtime_config": {}}, (400, "INVALID_REQUEST")),
        ("tasks", {"message": "Go", "env": {}}, (400, "INVALID_REQUEST")),
    ],
)
def test_a_session_that_exists_gets_nothing_of_the_kind_later(
    house: House, verb: str, body: dict[str, Any], refused: tuple[int, str]
):
    before = house.sealed()
    assert house.ask("worker", f"/v1/sessions/{house.session}/{verb}", body) == refused
    assert (house.sealed(), house.mark.exists()) == (before, False)


@pytest.mark.parametrize("who", ["worker", "ann"])
@pytest.mark.parametrize("runtime", ["acp", "scripted"])
@pytest.mark.parametrize("command", ["touch {mark}", ["touch", "{mark}"], None])
def test_nobody_names_the_command_of_an_agent(house: House, who: str, runtime: str, command: Any):
    """Not even an administrator: what runs as the daemon's user is the operator's to say, when it is started."""
    touch = json.loads(json.dumps(command).replace("{mark}", str(house.mark)))
    config = {"command": touch, "row": {"wire": "chat", "model": "m"}}
    new = {"runtime": runtime, "workspace": house.workspace, "settings": {"runtime_config": config}}
    assert house.ask(who, "/v1/sessions", new) == (403, "FORBIDDEN")
    place = f"/v1/sessions/{house.session}"
    before = house.read(who, place)
    move = {"runtime": runtime, "runtime_config": config}
    assert house.ask(who, f"{place}/move", move) == (403, "FORBIDDEN")
    for verb, body in (
        ("settings", {"settings": {"runtime_config": config}}),
        ("fork", {"runtime": runtime, "runtime_config": config}),
        ("fork", {"settings": {"runtime_config": config}}),
        ("tasks", {"message": "Go", "settings": {"runtime_config": config}}),
    ):
        assert house.ask(who, f"{place}/{verb}", body)[0] in (400, 403)
    assert house.read(who, place) == before
    assert not house.mark.exists()


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("equipment", {"secrets": ["planted-by-eve-0123"]}),
        ("equipment", SERVERS),
        ("fork", {}),
        ("tasks", {"message": "Go"}),
        ("resume", {}),
        ("close", {}),
    ],
)
def test_the_equipment_of_another_principal_is_neither_replaced_nor_taken_over(
    house: House, verb: str, body: dict[str, Any]
):
    before = house.sealed()
    assert house.ask("eve", f"/v1/sessions/{house.session}/{verb}", body) == (404, "NOT_FOUND")
    assert house.sealed() == before


def test_the_recording_of_another_principal_is_not_played(house: House):
    body = {"runtime": "scripted", "workspace": house.workspace, "recording": house.session}
    assert house.ask("eve", "/v1/sessions", body) == (404, "NOT_FOUND")


@pytest.mark.parametrize("path", ["", "/events", "/transcript", "/verify", "/replay"])
def test_nothing_that_can_be_read_of_a_session_shows_its_equipment(house: House, path: str):
    answer = house.running.http.get(f"/v1/sessions/{house.session}{path}", headers=house.headers["ann"])
    assert answer.status_code == 200
    assert SECRET.encode() not in answer.content
