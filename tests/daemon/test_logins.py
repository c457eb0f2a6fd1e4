"""A login to an agent's own account over HTTP and with `codesdk login`: a daemon keeps the dialog, a person answers it.

The agent is an executable whose login shows an address and asks for the code of the page.
"""

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cli.shell import MODULE, Shell, environment
from tests.daemon.rig import Daemon, daemon, problem

from codesdk.local import TokenFile
from codesdk.testing.processes import command_line

NAME = "external:asker"
BEGIN = f"/v1/runtimes/{NAME}/login"
CODE = "the-code-of-the-page-5150"
PASTE = {"message": "Paste the code.", "url": "https://login.example/authorize"}
ADAPTER = """
import sys
from pathlib import Path
from codesdk.adapter import serve
from codesdk.contract.access import AuthStatus, LoginOutcome, LoginPrompt
from codesdk.contract.capabilities import Capabilities
from codesdk.testing.fakes import FakeRuntime

NOTES = Path(sys.argv[1])

class Asker(FakeRuntime):
    async def auth_status(self, env):
        there = (NOTES / "account").exists()
        return AuthStatus(ok=there, logged_in=there, auth_model="oauth_local")

    async def ensure_login(self, env, dialog):
        with (NOTES / "begun").open("a") as notes:
            notes.write(env.credential_namespace + "\\n")
        prompt = LoginPrompt(message="Paste the code.", url="https://login.example/authorize")
        while (code := await dialog.ask(prompt)) == "again":
            prompt = LoginPrompt(message="Once more.")
        if code != "the-code-of-the-page-5150":
            return LoginOutcome(logged_in=False, problem="The provider does not know this code.")
        (NOTES / "account").write_text(code)
        return LoginOutcome(logged_in=True, account_label="ann@example")

serve(Asker([], name="asker", capabilities=Capabilities(login_traffic=["beside"])))
"""


class Asking:
    """A daemon with the agent, and what the agent noted."""

    def __init__(self, running: Daemon, notes: Path, tokens: dict[str, str], log: Path) -> None:
        self.running = running
        self.notes = notes
        self.log = log
        self.tokens = tokens

    @property
    def begun(self) -> list[str]:
        """The namespaces of the logins that were begun."""
        return (self.notes / "begun").read_text().split()

    @property
    def at_work(self) -> int:
        """How many processes of the agent run."""
        lines = [command_line(entry.name) for entry in Path("/proc").glob("[0-9]*")]
        return sum(bytes(self.notes) in line.split(b"\0") for line in lines)

    def gone(self) -> bool:
        """Wait until no process of the agent is left."""
        until = time.monotonic() + 30
        while self.at_work and time.monotonic() < until:
            time.sleep(0.05)
        return not self.at_work

    def send(
        self, method: str, path: str, body: Any = None, *, who: str = "ann", **headers: str
    ) -> httpx2.Response:
        head = {"authorization": f"Bearer {self.tokens[who]}"} | headers
        return self.running.http.request(method, path, headers=head, json=body)

    def begin(self, **headers: str) -> dict[str, Any]:
        """Begin a login, and return it when it asks."""
        answer = self.send("POST", BEGIN, {}, **headers)
        assert answer.status_code == 200, answer.text
        return self.read(answer.json())

    def read(self, state: dict[str, Any]) -> dict[str, Any]:
        """Wait until a login asks or is over."""
        while not state.get("asks") and not state.get("outcome"):
            state = self.send("GET", f"/v1/logins/{state['login_id']}?wait_s=20").json()
        return state


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    adapter, notes = tmp_path / "asker.py", tmp_path / "notes"
    adapter.write_text(ADAPTER)
    notes.mkdir()
    tokens = TokenFile(tmp_path / "data")
    made = {name: tokens.add(name, ["read", "run"])[0] for name in ("ann", "bob")}
    command = f"{sys.executable} {adapter} {notes}"
    # Its command names its notes, so its processes can be told from others.
    options = ("--external", f"asker={command}", "--logins", f"{NAME}=beside", "--log-level", "debug")
    with (tmp_path / "log").open("wb") as log, daemon(tmp_path / "data", *options, stderr=log) as running:
        yield Asking(running, notes, made, tmp_path / "log")


def test_a_login_is_begun_read_answered_and_then_there(asking: Asking):
    assert asking.send("GET", f"/v1/runtimes/{NAME}/auth").json()["auth"]["logged_in"] is False
    state = asking.begin()
    path = f"/v1/logins/{state['login_id']}"
    assert state == {"login_id": state["login_id"], "prompt": PASTE, "asks": True}
    assert asking.send("GET", path).json() == state  # asked again, at once
    for method, rest in (("GET", ""), ("POST", "/answer"), ("DELETE", "")):
        body = {"text": CODE} if method == "POST" else None
        assert problem(asking.send(method, path + rest, body, who="bob")) == (404, "NOT_FOUND")

    again = asking.send("POST", f"{path}/answer", {"text": "again"}).json()
    assert asking.read(again)["prompt"]["message"] == "Once more."
    ended = asking.read(asking.send("POST", f"{path}/answer", {"text": CODE}).json())
    assert ended["outcome"]["logged_in"] is True
    assert ended["outcome"]["account_label"] == "ann@example"
    assert asking.send("GET", f"/v1/runtimes/{NAME}/auth").json()["auth"]["logged_in"] is True
    assert problem(asking.send("POST", f"{path}/answer", {"text": CODE})) == (409, "CONFLICT")
    assert asking.begun == ["ann"]
    stored = [file for file in asking.running.data_dir.rglob("*") if file.is_file()]
    assert [file for file in (*stored, asking.log) if CODE.encode() in file.read_bytes()] == []


def test_a_login_that_the_provider_refuses_says_why(asking: Asking):
    state = asking.begin()
    ended = asking.read(asking.send("POST", f"/v1/logins/{state['login_id']}/answer", {"text": "x"}).json())
    assert ended["outcome"]["logged_in"] is False
    assert ended["outcome"]["problem"] == "The provider does not know this code."


def test_the_same_request_under_its_key_is_the_same_login_and_the_same_answer(asking: Asking):
    keyed = {"idempotency-key": "begin-1"}
    state = asking.begin(**keyed)
    assert asking.begin(**keyed)["login_id"] == state["login_id"]
    assert asking.begun == ["ann"]
    other = asking.send("POST", BEGIN, {"credential_namespace": "other"}, **keyed)
    assert problem(other) == (409, "CONFLICT")
    assert asking.begin(**{"idempotency-key": "begin-2"})["login_id"] != state["login_id"]

    path, keyed = f"/v1/logins/{state['login_id']}/answer", {"idempotency-key": "answer-1"}
    first = asking.send("POST", path, {"text": "again"}, **keyed).json()
    assert asking.read(first)["prompt"]["message"] == "Once more."
    # Its answer was lost on the way: the second question is not answered with the words for the first.
    assert asking.send("POST", path, {"text": "again"}, **keyed).json() == first
    assert asking.read(state | {"asks": False})["prompt"]["message"] == "Once more."
    last = asking.send("POST", path, {"text": CODE}, **{"idempotency-key": "answer-2"})
    assert asking.read(last.json())["outcome"]["logged_in"] is True


def test_a_login_that_is_given_up_ends_what_it_started(asking: Asking):
    state = asking.begin()
    path = f"/v1/logins/{state['login_id']}"
    assert asking.at_work
    assert asking.send("DELETE", path).status_code == 204
    assert problem(asking.send("GET", path)) == (404, "NOT_FOUND")
    assert problem(asking.send("DELETE", path)) == (404, "NOT_FOUND")
    assert asking.gone()
    assert not (asking.notes / "account").exists()


def test_the_command_logs_in_where_the_daemon_runs(asking: Asking, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    there = Shell(tmp_path / "elsewhere")
    at = ("--url", asking.running.url, "--token", asking.tokens["ann"])
    refused = there.codesdk(*at, "login", NAME, stdin="wrong\n")
    assert (refused.code, refused.err) == (
        1,
        f"Not logged in to {NAME}: The provider does not know this code.\n",
    )
    done = there.codesdk("login", NAME, *at, stdin=f"again\n{CODE}\n")
    assert (done.code, done.err) == (0, "")
    assert done.out.split("\n") == [
        "Paste the code.",
        "  https://login.example/authorize",
        "Once more.",
        f"Logged in to {NAME} as ann@example.",
        "",
    ]
    assert (asking.notes / "account").read_text() == CODE


def test_what_a_person_types_is_not_shown(asking: Asking, tmp_path: Path):
    at = ("--url", asking.running.url, "--token", asking.tokens["ann"])
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*MODULE, *at, "login", NAME],
        cwd=tmp_path,
        env=environment({}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as command:
        shown = b""
        while b"answer: " not in shown or termios.tcgetattr(ours)[3] & termios.ECHO:
            shown += os.read(ours, 4096) if b"answer: " not in shown else b""
        os.write(ours, CODE.encode() + b"\n")
        while b"Logged in" not in shown:
            shown += os.read(ours, 4096)
        assert command.wait(timeout=60) == 0
    echoes = termios.tcgetattr(ours)[3] & termios.ECHO
    os.close(ours)
    os.close(theirs)
    assert echoes
    assert CODE.encode() not in shown


@pytest.mark.parametrize("how", ["nothing on stdin", "interrupted"])
def test_the_command_gives_up_a_login_that_nobody_answers(asking: Asking, tmp_path: Path, how: str):
    argv = [*MODULE, "--url", asking.running.url, "--token", asking.tokens["ann"], "login", NAME]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, cwd=tmp_path, env=environment({}), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        assert command.stdout.readline() == "Paste the code.\n"
        if how == "interrupted":
            command.stdout.readline()  # now it reads what a person types
            command.send_signal(signal.SIGINT)
            command.wait(timeout=20)  # stdin stays open: nobody has to press Enter
        _, said = command.communicate(timeout=60)
    assert command.returncode == (130 if how == "interrupted" else 2), said
    assert ("stdin has none" in said) is (how != "interrupted")
    assert (asking.begun, asking.gone()) == (["ann"], True)
