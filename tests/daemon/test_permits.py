"""What an operator allows holds for every way to a session: newly made, forked from another, moved to another runtime, or given work."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.rig import TERMINAL, Daemon, asks, daemon

from codesdk.contract.api import TokenScope
from codesdk.contract.errors import Forbidden
from codesdk.engine import Permits
from codesdk.local.tokens import TokenFile

ADMIN, RUN, BEN = "ann, admin", "ann, run only", "ben, admin"


class House:
    """A daemon with fewer permissions than when its sessions were made, which are all ann's."""

    def __init__(self, root: Path) -> None:
        self.data_dir, self.inside, self.outside = root / "data", root / "inside", root / "outside"
        for folder in (self.inside, self.outside):
            folder.mkdir()
        tokens = TokenFile(self.data_dir)
        who: dict[str, tuple[str, list[TokenScope]]] = {
            ADMIN: ("ann", ["admin"]),
            RUN: ("ann", ["read", "run"]),
            BEN: ("ben", ["admin"]),
        }
        self.headers = {
            name: {"authorization": f"Bearer {tokens.add(principal, scopes)[0]}"}
            for name, (principal, scopes) in who.items()
        }
        with daemon(self.data_dir) as before:
            self.sessions = {
                "plain": self._make(before, runtime="scripted", workspace=str(self.inside)),
                "of a runtime": self._make(before, runtime="codex", workspace=str(self.inside)),
                "of a workspace": self._make(before, runtime="scripted", workspace=str(self.outside)),
                "of native tools": self._make(
                    before, runtime="claude", workspace=str(self.inside), native_tools=["Read"]
                ),
            }

    def _make(self, running: Daemon, **body: Any) -> str:
        return running.post("/v1/sessions", body, **self.headers[ADMIN])["session_id"]

    def ask(self, running: Daemon, way: str, body: Any, who: str) -> tuple[int, str | None]:
        """Ask for a session in some way; return the status and the code of the problem."""
        path = "/v1/sessions" if way == "create" else f"/v1/sessions/{self.sessions[way.split(': ')[1]]}"
        ways = {
            "create": "",
            "fork": "/fork",
            "move": "/move",
            "start": "/tasks",
            "resume": "/resume",
            "undo": "/undo",
        }
        path += ways[way.partition(":")[0]]
        answer = running.http.post(path, json=body, headers=self.headers[who])
        return answer.status_code, answer.json().get("code")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("permits"))


@pytest.fixture(scope="module")
def running(house: House) -> Iterator[Daemon]:
    options = ("--runtimes", "scripted,claude", "--workspace-root", str(house.inside))
    with daemon(house.data_dir, *options) as running:
        yield running


REFUSED = {
    "create": {"runtime": "codex"},
    "move: plain": {"runtime": "codex"},
    "fork: of a runtime": {},
    "move: of a workspace": {"runtime": "claude"},
    "fork: of a workspace": {},
    "start: of a runtime": {"message": "Go"},
    "start: of a workspace": {"message": "Go"},
    "resume: of a runtime": {},
    "resume: of a workspace": {},
    "undo: of a workspace": {},
}


@pytest.mark.parametrize("way", REFUSED)
def test_what_is_not_allowed_here_is_refused_in_every_way(house: House, running: Daemon, way: str):
    body = REFUSED[way] | ({"workspace": str(house.inside)} if way == "create" else {})
    before = _all(house, running)
    assert house.ask(running, way, body, ADMIN) == (403, "FORBIDDEN")
    assert _all(house, running) == before


@pytest.mark.parametrize("way", ["fork: of native tools", "move: of native tools"])
def test_native_tools_need_the_scope_in_every_way(house: House, running: Daemon, way: str):
    body = {"runtime": "scripted"} if way.startswith("move") else {}
    before = _all(house, running)
    assert house.ask(running, way, body, RUN) == (403, "FORBIDDEN")
    assert _all(house, running) == before
    assert house.ask(running, way, body, ADMIN)[1] != "FORBIDDEN"


@pytest.mark.parametrize("name", ["plain", "of a runtime", "of a workspace", "of native tools"])
def test_another_principal_is_not_told_what_is_allowed(house: House, running: Daemon, name: str):
    asked = [
        house.ask(running, f"{way}: {name}", body, BEN)
        for way, body in (("fork", {}), ("move", {"runtime": "codex"}), ("start", {"message": "Go"}))
    ]
    assert asked == [(404, "NOT_FOUND")] * 3


def test_what_is_allowed_is_worked_with_forked_and_moved(house: House, running: Daemon):
    assert house.ask(running, "fork: plain", {}, RUN) == (201, None)
    assert house.ask(running, "move: plain", {"runtime": "claude"}, RUN) == (200, None)
    assert house.ask(running, "move: plain", {"runtime": "scripted"}, RUN) == (200, None)
    assert house.ask(running, "start: plain", {"message": "Go", "on_busy": "reject"}, RUN)[1] is None


def _all(house: House, running: Daemon) -> Any:
    return running.http.get("/v1/sessions", headers=house.headers[ADMIN]).json()


def test_a_directory_that_becomes_a_link_does_not_lead_out_of_the_root(tmp_path: Path):
    """One session's command can replace the workspace of another that lies in its own."""
    workspace, outside = tmp_path / "root" / "a" / "b", tmp_path / "outside"
    for folder in (workspace, outside):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text(folder.name)
    calls = [
        {"tool": "workspace.read", "input": {"path": "a.txt"}},
        {"tool": "workspace.write", "input": {"path": "a.txt", "content": "b"}},
    ]
    turns = [
        {"steps": [{"await_steer": True}, *({"call": call} for call in calls)]},
        {"steps": [{"text": "Done."}]},
    ]
    options = ("--allow-yolo", "--workspace-root", str(tmp_path / "root"))
    with daemon(tmp_path / "data", *options) as running:
        session = running.session({"turns": turns}, workspace=str(workspace), permission_mode="yolo")
        running.post(f"/v1/sessions/{session}/tasks", {"message": "Go"})
        results: list[str] = []
        for event in running.stream(session):
            if event["type"] == "model.input":
                workspace.rename(tmp_path / "before")
                workspace.symlink_to(outside)
                running.post(f"/v1/sessions/{session}/steer", {"message": "Now."})
            elif event["type"] == "tool.call.completed":
                results.append(event["payload"]["result_preview"])
            elif event["type"] in TERMINAL:
                break
        words = "the workspace cannot be opened: b is a symbolic link; symbolic links are not followed."
        assert results == [f'Cannot use the path "a.txt": {words}'] * len(calls)
        for path, body in (("tasks", {"message": "Again"}), ("undo", {})):
            answer = running.http.post(f"/v1/sessions/{session}/{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (409, "CONFLICT")
        fork = running.post(f"/v1/sessions/{session}/fork")["session_id"]
        answer = running.http.post(f"/v1/sessions/{fork}/tasks", json={"message": "Go"})
        assert (answer.status_code, answer.json()["code"]) == (409, "CONFLICT")
    assert [path.read_text() for path in outside.iterdir()] == ["outside"]


def test_an_undo_does_not_write_where_sessions_may_no_longer_work(tmp_path: Path):
    with daemon(tmp_path / "data", "--policy", "edits") as running:
        session = running.session(asks("made.txt"))
        running.run(session)
    (tmp_path / "inside").mkdir()
    with daemon(tmp_path / "data", "--workspace-root", str(tmp_path / "inside")) as running:
        answer = running.http.post(f"/v1/sessions/{session}/undo", json={})
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert (tmp_path / "made.txt").read_text() == "x"
    with daemon(tmp_path / "data") as running:
        running.post(f"/v1/sessions/{session}/undo", {})
    assert not (tmp_path / "made.txt").exists()


def test_a_root_inside_another_stays_where_it_was_when_the_operator_named_it(tmp_path: Path):
    (tmp_path / "outside").mkdir()
    inner = tmp_path / "root" / "inner"
    inner.mkdir(parents=True)
    permits = Permits(workspace_roots=(str(tmp_path / "root"), str(inner)))
    inner.rmdir()
    inner.symlink_to(tmp_path / "outside")
    with pytest.raises(Forbidden):
        permits.resolve_workspace(str(inner))


def test_a_script_is_read_from_a_file_only_if_the_operator_says_so(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"turns": [{"steps": [{"text": "Hi."}]}]}')
    body = {
        "runtime": "scripted",
        "workspace": str(tmp_path),
        "settings": {"runtime_config": {"script": "a.json"}},
    }
    with daemon(tmp_path / "data", "--allow-script-files") as running:
        session = running.post("/v1/sessions", body)["session_id"]
    with daemon(tmp_path / "data") as running:
        for path, asked in (("", body), (f"/{session}/tasks", {"message": "Go"}), (f"/{session}/fork", {})):
            answer = running.http.post(f"/v1/sessions{path}", json=asked)
            assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    with daemon(tmp_path / "data", "--allow-script-files") as running:
        task = running.run(session)
        assert running.get(f"/v1/tasks/{task}")["state"] == "completed"


def test_the_operator_names_a_preset(tmp_path: Path):
    with daemon(tmp_path / "data", "--policy", "edits") as running:
        session = running.session(asks("made.txt"))
        running.run(session)  # in the mode ask, and nobody was asked
    assert (tmp_path / "made.txt").read_text() == "x"
