"""Claude's login to its account: one folder for all sessions of a namespace, how it is made, and how it is renewed.

Claude replaces the file when it renews it, so that a link in a session's folder would become a copy, and copies use
up each other's token. Instead all sessions name the one folder, in which claude takes a lock.
"""

import asyncio
import functools
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.access import LoginDialog, LoginOutcome, LoginPrompt
from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.contract.workspace import Workspace
from codesdk.processes import SEARCH_PATH, start_child
from codesdk.runtimes.claude import ENTRY, NAME
from codesdk.runtimes.claude.options import QUIET
from codesdk.runtimes.program.environment import network_variables
from codesdk.runtimes.program.logins import Login, folder_of, prompt_in, read_json, required, run_login, tidy

FILE = ".credentials.json"
RENEW_S = 20.0
"""How long claude may take to renew an expired login before a task. By itself it waits for minutes."""
_MESSAGE = "Open this address and log in there. Then type in here the code that the page shows."


def find_login(env: RuntimeEnv) -> Login | None:
    """Return the namespace's login. Claude empties one that the provider has refused. Blocking, but short."""
    folder = folder_of(ENTRY, env)
    kept: Any = None if folder is None else read_json(folder / FILE).get("claudeAiOauth")
    if folder is None or not isinstance(kept, dict):
        return None
    found = msgspec.convert(kept, dict[str, Any])
    secrets = [found.get(name) for name in ("accessToken", "refreshToken")]
    if not all(isinstance(secret, str) and secret for secret in secrets):
        return None
    plan, expires = found.get("subscriptionType"), found.get("expiresAt")
    return Login(
        file=folder / FILE,
        label=f"claude.ai ({plan})" if isinstance(plan, str) and plan else "claude.ai",
        secrets=tuple(map(str, secrets)),
        expired=isinstance(expires, int | float) and expires <= time.time() * 1000,
    )


def login_variables(folder: Path) -> dict[str, str]:
    """Return what makes claude use a login, and ask its provider for nothing but what the session needs."""
    return {
        "CLAUDE_SECURESTORAGE_CONFIG_DIR": str(folder),
        # Else it attaches the connectors of the account, whatever servers it was told to use.
        "ENABLE_CLAUDEAI_MCP_SERVERS": "0",
        **network_variables(),
    }


async def renewed(program: str, env: RuntimeEnv) -> Login:
    """Return the namespace's login, renewed by claude if it has expired. Raise `TaskFailure` if there is none.

    A session that finds out by itself would wait for minutes, and then only be told that its request was refused.
    """
    login = await asyncio.to_thread(find_login, env)
    if login is not None and login.expired:
        if not await _look(program, login.file.parent):
            raise TaskFailure(
                f"Claude's login has expired and was not renewed within {RENEW_S:g} s. Try again.",
                code="AUTH_FAILED",
                retryable=True,
                runtime=NAME,
            )
        login = await asyncio.to_thread(find_login, env)
        if login is None:
            raise required(ENTRY, "Claude's login has expired, and its provider did not renew it.")
        if login.expired:
            raise TaskFailure(
                "Claude's login has expired, and its provider could not be asked to renew it. Try again.",
                code="AUTH_FAILED",
                retryable=True,
                runtime=NAME,
            )
    if login is None:
        raise required(ENTRY, "Claude is not logged in, and there is no key for its provider.")
    return login


async def log_in(program: str, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
    """Run `claude auth login` in the namespace's folder, unless there is a login."""
    known = find_login(env)
    if known is not None:
        return LoginOutcome(logged_in=True, account_label=known.label)
    folder = folder_of(ENTRY, env)
    if folder is None:
        raise InvalidRequest("A login needs a data directory to be kept in.", runtime=NAME)

    try:
        argv = [program, "auth", "login", "--claudeai"]
        own = functools.partial(_variables, folder)
        problem = await run_login(argv, folder, own, dialog, _prompt, answers=True)
    finally:
        tidy(folder, (FILE,))
    made = find_login(env)
    if made is None:
        return LoginOutcome(logged_in=False, problem=problem or "Claude made no login.")
    return LoginOutcome(logged_in=True, account_label=made.label)


def _prompt(text: str) -> LoginPrompt | None:
    return prompt_in(text, _MESSAGE)


def _variables(folder: Path, home: Path) -> dict[str, str]:
    return {**QUIET, "CLAUDE_CONFIG_DIR": str(home / "claude"), **login_variables(folder)}


async def _look(program: str, folder: Path) -> bool:
    """Have claude look at its login, which renews one that has expired. Return whether it did so in time."""
    with tempfile.TemporaryDirectory(prefix="codesdk-") as scratch:
        plain = {"PATH": SEARCH_PATH, "HOME": scratch, "TMPDIR": scratch}
        env = plain | _variables(folder, Path(scratch))
        child = await start_child([program, "auth", "status"], cwd=Workspace(scratch), env=env)
        try:
            child.stdin.close()
            async with asyncio.timeout(RENEW_S):
                await child.stdout.read()  # account and address of a person: not for us
                await child.wait()
                return True
        except TimeoutError:
            return False
        finally:
            await child.stop(0.0)
