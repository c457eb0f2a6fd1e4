"""Claude's login to its account: one folder for all sessions of a namespace, how it is made, and how it is renewed.

Claude replaces the file when it renews it, so that a link in a session's folder would become a copy, and copies use
up each other's token. Instead all sessions name the one folder, in which claude takes a lock.
"""

import asyncio
import functools
import tempfile
import time
from collections import defaultdict
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
"""How long a task waits for an expired login to be renewed. By itself claude waits for minutes."""
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


class Renewals:
    """The renewals of logins before tasks. Sessions that find the same login expired share one."""

    def __init__(self) -> None:
        self._running: defaultdict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def renewed(self, program: str, env: RuntimeEnv) -> Login:
        """Return the namespace's login, renewed by claude if it has expired. Raise `TaskFailure` if there is none.

        A session that finds out by itself would wait for minutes, and then only be told that its request was refused.
        """
        login = await asyncio.to_thread(find_login, env)
        if login is None:
            raise required(ENTRY, "Claude is not logged in, and there is no key for its provider.")
        if not login.expired:
            return login
        try:
            async with asyncio.timeout(RENEW_S), self._running[login.file.parent]:
                login = await _renew(program, login.file.parent, env)
        except TimeoutError:
            raise _failed(f"was not renewed within {RENEW_S:g} s") from None
        if login is None:
            raise required(ENTRY, "Claude's login has expired, and its provider did not renew it.")
        if login.expired:
            raise _failed("its provider could not be asked to renew it")
        return login


async def _renew(program: str, folder: Path, env: RuntimeEnv) -> Login | None:
    """Have claude renew an expired login, unless that was done while we waited. Return the login then."""
    login = await asyncio.to_thread(find_login, env)
    # Twice: while another process renews it, claude waits only so long for the lock in the folder, and gives up.
    for _ in range(2):
        if login is None or not login.expired:
            break
        await _look(program, folder)
        login = await asyncio.to_thread(find_login, env)
    return login


def _failed(what: str) -> TaskFailure:
    words = f"Claude's login has expired, and {what}. Try again."
    return TaskFailure(words, code="AUTH_FAILED", retryable=True, runtime=NAME)


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


async def _look(program: str, folder: Path) -> None:
    """Have claude look at its login, which renews one that has expired. It ends with the caller's patience."""
    with tempfile.TemporaryDirectory(prefix="codesdk-") as scratch:
        plain = {"PATH": SEARCH_PATH, "HOME": scratch, "TMPDIR": scratch}
        env = plain | _variables(folder, Path(scratch))
        child = await start_child([program, "auth", "status"], cwd=Workspace(scratch), env=env)
        try:
            child.stdin.close()
            await child.stdout.read()  # account and address of a person: not for us
            await child.wait()
        finally:
            await child.stop(0.0)
