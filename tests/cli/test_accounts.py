"""`codesdk keys` and `codesdk login`: keys go in and never come out, and logins are the operator's to switch on."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.shell import Shell

from codesdk.contract.access import LoginDialog, LoginOutcome, LoginPrompt
from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.local import KeyFile
from codesdk.runtimes import read_logins
from codesdk.runtimes.codex import ENTRY
from codesdk.runtimes.codex.adapter import CodexRuntime

KEY = "a-key-without-any-shape-0123456789"


def test_a_key_goes_in_by_stdin_and_never_comes_out(shell: Shell) -> None:
    added = shell.codesdk("keys", "add", "anthropic", stdin=f"{KEY}\n")
    assert (added.code, added.out) == (0, "The anthropic key of local is stored.\n")
    shell.codesdk("keys", "add", "openai", "--principal", "alice", stdin=f"{KEY}-2")
    rows = shell.codesdk("keys", "--json").lines
    assert [(row["provider"], row["principal"]) for row in rows] == [
        ("anthropic", "local"),
        ("openai", "alice"),
    ]
    hers = shell.codesdk("keys", "list", "--principal", "alice")
    assert hers.out.startswith("openai  alice  since ")
    assert KEY not in added.out + added.err + hers.out + json.dumps(rows)
    assert (shell.data / "keys.json").stat().st_mode & 0o777 == 0o600
    assert KeyFile(shell.data).of("alice")["openai"] == f"{KEY}-2"
    removed = shell.codesdk("keys", "remove", "openai", "--principal", "alice")
    assert (removed.code, removed.out) == (0, "The openai key of alice is removed.\n")
    again = shell.codesdk("keys", "remove", "openai", "--principal", "alice")
    assert (again.code, "There is no openai key of alice." in again.err) == (3, True)


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (["openai"], "", "There is no key on stdin"),
        (["openai"], "short", "This is not a key"),
        (["openai"], f"{KEY} and more", "This is not a key"),
        (["nobody"], KEY, "'nobody' is not one of"),
        (["openai", KEY], "", "unexpected extra argument"),
        (["openai", "--principal", "a/b"], KEY, "The name of a principal has 1 to 64 letters"),
    ],
)
def test_what_is_no_key_is_refused(shell: Shell, words: list[str], stdin: str, said: str) -> None:
    ran = shell.codesdk("keys", "add", *words, stdin=stdin)
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert not (shell.data / "keys.json").exists()


def test_keys_that_are_added_at_once_are_all_there(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(24)]

    def add(name: str) -> None:
        KeyFile(tmp_path).add(name, "openai", f"{KEY}-{name}")  # each with its own view of the file

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, names))
    assert sorted(info.principal for info in KeyFile(tmp_path).stored()) == sorted(names)


def test_a_file_of_keys_that_cannot_be_read_is_reported_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(f'[{{"principal": "a", "provider": "x", "key": "{KEY}"}}]')
    with pytest.raises(StorageFailure, match="cannot be read") as raised:
        KeyFile(tmp_path).of("a")
    assert KEY not in f"{raised.value!r} {raised.value.__cause__!r} {raised.value.details}"


def test_a_login_is_refused_until_it_is_switched_on(shell: Shell) -> None:
    ran = shell.codesdk("login", "codex")
    assert ran.code != 0
    assert "Logins of codex-sdk are switched off here." in ran.err
    assert "CODESDK_LOGINS=codex-sdk" in ran.err


def test_a_login_shows_the_address_and_takes_the_answer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RuntimeEnv] = []

    async def ensure_login(self: CodexRuntime, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        seen.append(env)
        await dialog.show(LoginPrompt(message="Open this.", url="https://login.example/d", code="AB-12"))
        answer = await dialog.ask(LoginPrompt(message="Paste the code."))
        return LoginOutcome(logged_in=answer == "pasted", account_label="plus", problem="The code was wrong.")

    monkeypatch.setattr(CodexRuntime, "ensure_login", ensure_login)
    monkeypatch.setattr("codesdk.cli.target.runtimes.logins_from", lambda: {ENTRY.name: "through"})
    done = shell.here("login", "codex", "--namespace", "work", stdin="pasted\n")
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            "Open this.",
            "  https://login.example/d",
            "  code: AB-12",
            "Paste the code.",
            "Logged in to codex-sdk as plus.",
        ],
    )
    assert (seen[0].credential_namespace, seen[0].login) == ("work", "through")
    assert Path(seen[0].state_dir) == shell.data.resolve() / "runtimes"
    wrong = shell.here("login", "codex", stdin="typo\n")
    assert (wrong.code, wrong.err) == (1, "Not logged in to codex-sdk: The code was wrong.\n")
    none = shell.here("login", "codex", stdin="")
    assert (none.code, "stdin has none" in none.err) == (2, True)


def test_a_switch_that_means_nothing_is_refused() -> None:
    assert read_logins("") == {}
    for given, said in (("hal", "There is no runtime"), ("scripted", "CodeSDK cannot log in to it")):
        with pytest.raises(InvalidRequest, match=said):
            read_logins(given)
