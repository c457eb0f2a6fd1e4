"""Whether a task could use a login, without starting a program: what is there, what is switched on, and what goes first."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codesdk import CodeSDK, InvalidRequest
from codesdk.contract.access import LoginPrompt
from codesdk.contract.capabilities import Isolation
from codesdk.contract.models import ModelAccess
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes import create_runtime, entries, login_folder, read_logins
from codesdk.runtimes.claude import login as claude
from codesdk.runtimes.codex import login as codex
from codesdk.runtimes.gemini import login as gemini
from codesdk.runtimes.program.logins import Login, mark_refused, prompt_in

TOKEN = "canary-token-0123456789"
TRAFFIC: dict[str, Any] = {
    "codex-sdk": "through",
    "claude-agent-sdk": "beside",
    "gemini-cli-core": "beside",
}
KEYS = {"codex-sdk": "responses", "claude-agent-sdk": "anthropic", "gemini-cli-core": "gemini"}
LABELS = {"codex-sdk": "ChatGPT", "claude-agent-sdk": "claude.ai (max)", "gemini-cli-core": "Google"}
FILES: dict[str, tuple[str, Any]] = {
    "codex-sdk": (
        "auth.json",
        {"tokens": {"id_token": "e30.e30.x", "access_token": TOKEN, "refresh_token": TOKEN}},
    ),
    "claude-agent-sdk": (
        ".credentials.json",
        {"claudeAiOauth": {"accessToken": TOKEN, "refreshToken": TOKEN, "subscriptionType": "max"}},
    ),
    "gemini-cli-core": (
        "oauth_creds.json",
        {"access_token": TOKEN, "refresh_token": TOKEN, "expiry_date": 1000},
    ),
}
each_runtime = pytest.mark.parametrize("runtime", sorted(FILES))


def env_of(folder: Path, runtime: str, *, on: bool = True, key: bool = False) -> RuntimeEnv:
    access: Any = {KEYS[runtime]: ModelAccess(kind="key", label="a key")} if key else {}
    return RuntimeEnv(
        cwd=str(folder),
        env={},
        credential_namespace="local",
        isolation=Isolation(level="namespaced", mode="subprocess"),
        state_dir=str(folder),
        models=access,
        login=TRAFFIC[runtime] if on else None,
    )


def write(folder: Path, runtime: str, content: bytes | None = None) -> Path:
    """Write a login as the program would have, or something in its place."""
    name, login = FILES[runtime]
    path = login_folder(str(folder), "local", entries()[runtime]) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps(login).encode() if content is None else content)
    return path


@each_runtime
async def test_a_login_is_used_where_it_is_switched_on_and_there_is_no_key(tmp_path: Path, runtime: str):
    write(tmp_path, runtime)
    adapter = create_runtime(runtime)
    status = await adapter.auth_status(env_of(tmp_path, runtime))
    assert (status.ok, status.logged_in, status.traffic) == (True, True, TRAFFIC[runtime])
    assert status.account_label == LABELS[runtime]
    assert TOKEN not in repr(status)
    keyed = await adapter.auth_status(env_of(tmp_path, runtime, key=True))
    assert (keyed.ok, keyed.account_label, keyed.traffic) == (True, "a key", None)
    off = await adapter.auth_status(env_of(tmp_path, runtime, on=False))
    assert (off.ok, off.logged_in, off.traffic) == (False, True, None)
    assert "has a login, but logins are not switched on here" in str(off.problem)
    assert "codesdk login" not in str(off.to_do)


@each_runtime
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff",
        b"[" * 5000,
        b'{"tokens": 3}',
        b'{"claudeAiOauth": {"accessToken": ""}}',
        b'{"access_token": 3}',
    ],
)
async def test_a_file_that_is_no_login_counts_as_none(tmp_path: Path, runtime: str, content: bytes):
    write(tmp_path, runtime, content)
    status = await create_runtime(runtime).auth_status(env_of(tmp_path, runtime))
    assert (status.ok, status.logged_in) == (False, False)
    assert "codesdk login" in str(status.to_do)


async def test_without_a_data_directory_there_is_no_login_and_none_can_be_made(tmp_path: Path):
    env = RuntimeEnv(
        cwd=str(tmp_path),
        env={},
        credential_namespace="local",
        isolation=Isolation(level="ephemeral", mode="subprocess"),
        login="through",
    )
    assert not (await create_runtime("codex").auth_status(env)).ok
    for logging_in in (
        codex.log_in("/bin/true", env, _NOBODY),
        claude.log_in("/bin/true", env, _NOBODY),
        gemini.log_in(["/bin/true"], env, _NOBODY),
    ):
        with pytest.raises(InvalidRequest, match="needs a data directory"):
            await logging_in


@pytest.mark.parametrize(
    ("runtime", "find_login"), [("codex-sdk", codex.find_login), ("gemini-cli-core", gemini.find_login)]
)
def test_a_login_that_was_refused_counts_as_none_until_it_is_another(
    tmp_path: Path, runtime: str, find_login: Callable[[RuntimeEnv], Login | None]
):
    path, env = write(tmp_path, runtime), env_of(tmp_path, runtime)
    login = find_login(env)
    assert login is not None
    assert TOKEN not in repr(login)
    mark_refused(login)
    assert find_login(env) is None
    os.utime(path, ns=(1, 1))  # written again
    assert find_login(env) is not None
    path.write_text(path.read_text().replace(TOKEN, "another-token-0123456789"))
    mark_refused(login)
    assert find_login(env) is not None, "what was refused was renewed meanwhile"


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("codex", {"codex-sdk": "through"}),
        ("claude=beside, codex-sdk=through", {"claude-agent-sdk": "beside", "codex-sdk": "through"}),
        ("", {}),
    ],
)
def test_logins_are_switched_on_by_name_each_in_the_way_that_it_can_go(given: str, means: Any):
    assert read_logins(given) == means


@pytest.mark.parametrize(
    "given",
    ["claude=through", "gemini=through", "acp:gemini", "codex=beside", "scripted", "nobody", "codex=x"],
)
async def test_a_switch_that_cannot_be_is_refused(given: str):
    with pytest.raises(InvalidRequest):
        async with CodeSDK.open(logins=(given,)):
            pass


def test_a_prompt_is_shown_when_all_of_it_is_there():
    said = "Open \x1b[94mhttps://auth.example/device\x1b[0m\n\n2. Enter this code\n   \x1b[94mABCD-123"
    assert prompt_in(said, "m", codex._CODE) is None
    whole = prompt_in(f"{said}45\x1b[0m\n", "m", codex._CODE)
    assert whole == LoginPrompt(message="m", url="https://auth.example/device", code="ABCD-12345")
    assert prompt_in("Visit: https://a.example/x?y=1", "m") is None
    assert prompt_in("Visit: https://a.example/x?y=1\n", "m") == LoginPrompt(
        message="m", url="https://a.example/x?y=1"
    )


class _Nobody:
    async def show(self, prompt: LoginPrompt) -> None:
        raise AssertionError(prompt)

    async def ask(self, prompt: LoginPrompt) -> str:
        raise AssertionError(prompt)


_NOBODY = _Nobody()
