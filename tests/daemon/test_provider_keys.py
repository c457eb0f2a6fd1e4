"""Provider keys and logins over HTTP: a principal's own, written and never read back."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.daemon.rig import Daemon, daemon

from codesdk.local import KeyFile, TokenFile

SECRET = "plain-key-of-alice-with-no-shape-77"
BOBS = "plain-key-of-bob-with-no-shape-88"


class People:
    """A daemon with a log, and the headers of those who use it."""

    def __init__(self, running: Daemon, tokens: dict[str, str], log: Path) -> None:
        self.running = running
        self.log = log
        self.headers = {name: {"authorization": f"Bearer {token}"} for name, token in tokens.items()}

    def send(self, who: str, method: str, path: str, body: object = None) -> httpx2.Response:
        return self.running.http.request(method, path, headers=self.headers[who], json=body)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    folder = tmp_path_factory.mktemp("daemon")
    tokens = TokenFile(folder / "data")
    made = {
        "alice": tokens.add("alice", ["read", "run"])[0],
        "bob": tokens.add("bob", ["read", "run"])[0],
        "root": tokens.add("root", ["admin"])[0],
        "reader": tokens.add("reader", ["read"])[0],
    }
    with (
        (folder / "log").open("wb") as log,
        daemon(folder / "data", "--log-level", "debug", stderr=log) as running,
    ):
        yield People(running, made, folder / "log")


def test_a_key_is_stored_by_its_principal_and_shown_to_nobody(people: People) -> None:
    stored = people.send("alice", "POST", "/v1/keys", {"provider": "anthropic", "key": SECRET})
    assert (stored.status_code, set(stored.json())) == (201, {"principal", "provider", "created_at"})
    listed = people.send("alice", "GET", "/v1/keys").json()["keys"]
    assert [(key["principal"], key["provider"]) for key in listed] == [("alice", "anthropic")]
    assert people.send("bob", "GET", "/v1/keys").json() == {"keys": []}
    file = people.running.data_dir / "keys.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert KeyFile(people.running.data_dir).of("alice") == {"anthropic": SECRET}
    assert KeyFile(people.running.data_dir).of("bob") == {}


def test_the_keys_of_others_are_the_operators_business(people: People) -> None:
    others = {"provider": "openai", "key": BOBS, "principal": "bob"}
    for method, path, body in (
        ("POST", "/v1/keys", others),
        ("GET", "/v1/keys?principal=bob", None),
        ("DELETE", "/v1/keys/openai?principal=bob", None),
    ):
        assert people.send("alice", method, path, body).status_code == 403
    assert people.send("reader", "POST", "/v1/keys", others | {"principal": "reader"}).status_code == 403
    assert people.send("root", "POST", "/v1/keys", others).status_code == 201
    ready = people.send("bob", "GET", "/v1/runtimes/codex/auth").json()
    assert (ready["ready"], ready["auth"]["account_label"]) == (True, "the openai key of bob")
    assert people.send("root", "DELETE", "/v1/keys/openai?principal=bob").status_code == 204
    gone = people.send("bob", "GET", "/v1/runtimes/codex/auth").json()
    assert gone["ready"] is False
    assert "codesdk keys add openai --principal bob" in gone["auth"]["to_do"]
    assert people.send("root", "DELETE", "/v1/keys/openai?principal=bob").status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"provider": "nobody", "key": SECRET}, 400),
        ({"provider": "openai", "key": "short"}, 400),
        ({"provider": "openai", "key": f"{SECRET} with words"}, 400),
        ({"provider": "openai", "key": SECRET, "principal": "no such/name"}, 400),
        ({"provider": "openai", "key": 3}, 400),
        ({"provider": "openai"}, 400),
        ({"provider": "openai", "key": SECRET, "other": SECRET}, 400),
    ],
)
def test_what_is_no_key_is_refused_without_repeating_it(people: People, body: object, status: int) -> None:
    answer = people.send("root", "POST", "/v1/keys", body)
    assert answer.status_code == status
    assert SECRET not in answer.text


def test_a_key_that_a_session_says_is_redacted_everywhere(people: People) -> None:
    people.send("alice", "POST", "/v1/keys", {"provider": "gemini", "key": SECRET + "-two"})
    running = people.running
    script = {"turns": [{"steps": [{"text": f"The key is {SECRET}-two, she said."}]}]}
    running.http.headers.update(people.headers["alice"])
    with contextlib.ExitStack() as stack:
        stack.callback(running.http.headers.pop, "authorization")
        session = running.session(script, title=f"about {SECRET}-two")
        running.run(session, f"My key is {SECRET}-two.")
        bundle = running.http.get(f"/v1/sessions/{session}/support-bundle")
        assert bundle.is_success
        events = running.http.get(f"/v1/sessions/{session}/events?limit=1000").text
    assert "[redacted]" in events
    for path in running.data_dir.rglob("*"):
        if path.is_file() and path.name != "keys.json":
            assert SECRET.encode() not in path.read_bytes(), path
    assert SECRET.encode() not in bundle.content
    assert SECRET not in people.log.read_text()


def test_logins_are_off_until_the_operator_switches_them_on(people: People) -> None:
    answer = people.send("alice", "POST", "/v1/runtimes/codex/login", {})
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert "CODESDK_LOGINS=codex-sdk" in answer.text
    for method, path in (("GET", ""), ("POST", "/answer"), ("DELETE", "")):
        body = {"text": "x"} if path else None
        assert people.send("alice", method, f"/v1/logins/login_0{path}", body).status_code == 404


def test_a_level_or_a_namespace_that_is_not_enabled_is_refused_by_name(people: People) -> None:
    base = {"runtime": "scripted", "workspace": str(people.running.data_dir.parent)}
    for more, named in (
        ({"isolation": "shared"}, "--allow-isolation shared"),
        ({"isolation": "ephemeral"}, "--allow-isolation ephemeral"),
        ({"credential_namespace": "alice"}, "--allow-namespace alice"),
    ):
        answer = people.send("bob", "POST", "/v1/sessions", base | more)
        assert (answer.status_code, named in answer.text) == (403, True)
    own = people.send("bob", "POST", "/v1/sessions", base | {"credential_namespace": "bob"})
    assert own.status_code == 201


def test_levels_and_namespaces_that_the_operator_enables_are_had_and_no_others(tmp_path: Path) -> None:
    alice = TokenFile(tmp_path / "data").add("alice", ["read", "run"])[0]
    options = ("--allow-isolation", "ephemeral", "--allow-namespace", "team", "--allow-namespace", "lab")
    with daemon(tmp_path / "data", *options) as running:
        running.http.headers["authorization"] = f"Bearer {alice}"

        def create(**more: str) -> httpx2.Response:
            base = {"runtime": "scripted", "workspace": str(tmp_path)}
            return running.http.post("/v1/sessions", json=base | more)

        for more, level, namespace in (
            ({}, "namespaced", "alice"),
            ({"isolation": "ephemeral"}, "ephemeral", "alice"),
            ({"credential_namespace": "team"}, "namespaced", "team"),
            ({"isolation": "ephemeral", "credential_namespace": "lab"}, "ephemeral", "lab"),
        ):
            answer = create(**more)
            assert answer.status_code == 201, answer.text
            [created] = running.get(f"/v1/sessions/{answer.json()['session_id']}/events")["events"]
            lives = created["payload"]["isolation"]["level"], created["payload"]["credential_namespace"]
            assert lives == (level, namespace)
        for refused in ({"isolation": "shared"}, {"credential_namespace": "bob"}):
            assert create(**refused).status_code == 403
