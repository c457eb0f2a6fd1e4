"""What an operator allows holds for every way to a session: made anew, forked from another, moved to another runtime, or given work."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.rig import Daemon, daemon

from codesdk.contract.api import TokenScope
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
        path += {"create": "", "fork": "/fork", "move": "/move", "start": "/tasks", "resume": "/resume"}[
            way.partition(":")[0]
        ]
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
    assert house.ask(running, "start: plain", {"message": "Go", "on_busy": "reject"}, RUN)[1] != "FORBIDDEN"
    assert house.ask(running, "fork: plain", {}, RUN) == (201, None)
    assert house.ask(running, "move: plain", {"runtime": "claude"}, RUN) == (200, None)


def _all(house: House, running: Daemon) -> Any:
    return running.http.get("/v1/sessions", headers=house.headers[ADMIN]).json()
