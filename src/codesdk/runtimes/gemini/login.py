"""Gemini's login to a Google account: one file for all sessions of a namespace, how it is made, checked and renewed.

Gemini writes the file in place, so each session has a link to it and nothing else of it. Google renews a login without
a new refresh token, so sessions that do so at once do not harm each other.

A gemini that finds no valid login when it starts as an agent takes the lines of its client for authorization codes,
and sends them to the token endpoint. So it is started only after another gemini, which reads nothing, has found the
login valid, and so that its own login could not begin even if that has changed meanwhile.
"""

import asyncio
import functools
import hashlib
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.access import LoginDialog, LoginOutcome, LoginPrompt
from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.contract.workspace import Workspace
from codesdk.processes import SEARCH_PATH, start_child
from codesdk.runtimes.acp.launch import Account
from codesdk.runtimes.acp.row import AgentRow
from codesdk.runtimes.gemini import ENTRY, NAME
from codesdk.runtimes.program.environment import make_folder, network_variables
from codesdk.runtimes.program.finding import Program
from codesdk.runtimes.program.logins import (
    REFUSED,
    Login,
    command_of,
    folder_of,
    is_refused,
    mark_refused,
    prompt_in,
    read_json,
    required,
    run_login,
    tidy,
)

FILE = "oauth_creds.json"
ACCOUNTS = "google_accounts.json"
"""Beside it: the account's address, so that it is not asked for at each start."""
RENEW_S = 20.0
"""How long gemini may take to check its login, and to renew one that has expired. By itself it waits for ever."""
_HOME = "home/.gemini"
_CHECK = ("--list-extensions", "-e", "none")
"""What ends by itself once the login was looked at. No model is asked."""
_SELECTED = {"auth": {"selectedType": "oauth-personal"}, "folderTrust": {"enabled": False}}
_UNPLUGGED = {"MIR_SOCKET": "none", "OAUTH_CALLBACK_PORT": "0"}
"""Lets gemini think that it can open a browser, and fail before it does so, because the browser could never answer."""
_USED = {
    "input": "_meta.quota.token_count.input_tokens",
    "output": "_meta.quota.token_count.output_tokens",
}
_FAILED = re.compile(r"^Error authenticating: (.*)$", re.MULTILINE)
_WHY = re.compile(
    r"^(?:Cached credentials are not valid|Failed to load credentials from \S+): (.*)$", re.MULTILINE
)
_FOR_GOOD = re.compile(r"invalid_grant|invalid_token|No refresh token")
_MESSAGE = "Open this address and log in there. Then type in here the code that the page shows."


def find_login(env: RuntimeEnv) -> Login | None:
    """Return the namespace's login, unless it can be of no use any more. Blocking, but short."""
    folder = folder_of(ENTRY, env)
    if folder is None or is_refused(folder / FILE):
        return None
    kept = read_json(folder / FILE)
    access, refresh, identity = (_text(kept, name) for name in ("access_token", "refresh_token", "id_token"))
    expires = kept.get("expiry_date")
    expired = isinstance(expires, int | float) and expires <= time.time() * 1000
    if not access or (expired and not refresh):
        return None
    secrets = tuple(filter(None, (refresh, access, identity)))
    return Login(file=folder / FILE, label="Google", secrets=secrets, expired=expired)


def require_login(env: RuntimeEnv) -> Login:
    """Return the namespace's login. Raise `TaskFailure` if there is none."""
    login = find_login(env)
    if login is None:
        raise required(ENTRY, "Gemini is not logged in, and there is no key for its provider.")
    return login


def account_of(login: Login) -> Account:
    """Return what a session's gemini is given of a login: links to its files."""
    return Account(
        label=login.label,
        mark=hashlib.sha256(login.secrets[0].encode()).hexdigest(),  # the one that stays, if there is one
        command=command_of(ENTRY),
        links={f"{_HOME}/{name}": login.file.with_name(name) for name in (FILE, ACCOUNTS)},
    )


def login_row(row: AgentRow) -> AgentRow:
    """Return the row of a gemini that asks its provider by itself: no key, no address of ours, and it says what it used."""
    launch, settings = row.launch, f"{_HOME}/settings.json"
    ours = ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")
    kept = {name: value for name, value in launch.environment.items() if name not in ours}
    files: Mapping[str, Any] = {**launch.files, settings: {**launch.files[settings], "security": _SELECTED}}
    variables = {**kept, **_UNPLUGGED, **network_variables()}
    return msgspec.structs.replace(
        row,
        launch=msgspec.structs.replace(launch, environment=variables, files=files),
        reading=msgspec.structs.replace(row.reading, used=_USED),
    )


class Checks:
    """The checks of logins before gemini is started with them. Sessions that ask for one at the same time share it."""

    def __init__(self) -> None:
        self._running: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._passed_s: dict[str, float] = {}

    async def renewed(self, program: Program, env: RuntimeEnv) -> Login:
        """Return the namespace's login, found valid by gemini, and renewed if it has expired. Raise `TaskFailure` if not."""
        _require_tested(program)
        namespace, asked_s = env.credential_namespace, time.monotonic()
        try:
            async with asyncio.timeout(RENEW_S), self._running[namespace]:
                if self._passed_s.get(namespace, 0.0) < asked_s:
                    await _check(program, await asyncio.to_thread(require_login, env))
                    self._passed_s[namespace] = time.monotonic()
        except TimeoutError:
            raise _failed(f"was not checked within {RENEW_S:g} s") from None
        return await asyncio.to_thread(require_login, env)


async def log_in(argv: Sequence[str], env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
    """Have gemini log in, in the namespace's folder, unless there is a login.

    Only as an agent does it ask for the code without a terminal; with `--list-extensions` it ends before it is one.
    """
    known = find_login(env)
    if known is not None:
        return LoginOutcome(logged_in=True, account_label=known.label)
    folder = folder_of(ENTRY, env)
    if folder is None:
        raise InvalidRequest("A login needs a data directory to be kept in.", runtime=NAME)
    (folder / FILE).unlink(missing_ok=True)  # gemini might take a refused login for one that is still good
    try:
        own = functools.partial(_variables, folder)
        problem = await run_login([*argv, "--acp", *_CHECK], folder, own, dialog, _prompt, answers=True)
    finally:
        tidy(folder, (FILE, ACCOUNTS, REFUSED))
    made = find_login(env)
    if made is None:
        words = "Gemini made no login. Was the code the one that the page showed?"
        return LoginOutcome(logged_in=False, problem=problem or words)
    return LoginOutcome(logged_in=True, account_label=made.label)


def _text(kept: Mapping[str, Any], name: str) -> str:
    value = kept.get(name)
    return value if isinstance(value, str) else ""


def _prompt(text: str) -> LoginPrompt | None:
    return prompt_in(text, _MESSAGE)


def _variables(folder: Path, home: Path) -> dict[str, str]:
    """Make gemini's home in a scratch folder, with links to the login, and return its variables. Blocking, but short."""
    own = make_folder(home / ".gemini")
    for name in (FILE, ACCOUNTS):
        (own / name).symlink_to(folder / name)
    quiet = {"telemetry": {"enabled": False}, "privacy": {"usageStatisticsEnabled": False}}
    settings = {"security": _SELECTED, "general": {"enableAutoUpdate": False}, **quiet}
    (own / "settings.json").write_bytes(msgspec.json.encode(settings))
    names = {"GEMINI_CLI_HOME": str(home), "GEMINI_CLI_NO_RELAUNCH": "true", "NO_BROWSER": "true"}
    return {**names, **network_variables()}


def _require_tested(program: Program) -> None:
    """Raise `TaskFailure` for another version: nobody has seen what that does when it finds its login invalid."""
    if program.state != "tested":
        raise TaskFailure(
            f"gemini {program.version} is not used with a login: only the tested version is known to keep what it is"
            f" told from the token endpoint. Install that one ({ENTRY.install}), or use a key.",
            code="RUNTIME_UNAVAILABLE",
            runtime=NAME,
        )


async def _check(program: Program, login: Login) -> None:
    """Raise `TaskFailure` unless gemini finds a login valid. It renews one that has expired."""
    words = await _look(program.argv, login)
    failed = _FAILED.search(words)
    if failed is None:
        return
    why = _WHY.search(words)
    if why is not None and _FOR_GOOD.search(why[1]):
        await asyncio.to_thread(mark_refused, login)
        raise required(ENTRY, "Gemini's login is not valid any more, by what its provider says.")
    raise _failed(f"could not be used ({(why or failed)[1].rstrip('.')})")


async def _look(argv: Sequence[str], login: Login) -> str:
    """Have gemini look at its login, without a terminal, so that it asks nobody. Return what it says of it."""
    with tempfile.TemporaryDirectory(prefix="codesdk-") as scratch:
        plain = {"PATH": SEARCH_PATH, "HOME": scratch, "TMPDIR": scratch}
        env = plain | _variables(login.file.parent, Path(scratch))
        command = [*argv, "--debug", *_CHECK]
        child = await start_child(command, cwd=Workspace(scratch), env=env, secrets=login.secrets)
        try:
            child.stdin.close()
            await child.stdout.read()
            code = await child.wait()
        finally:
            await child.stop(0.0)
        if code != 0:
            raise _failed(f"could not be checked (gemini ended with code {code})")
        return child.stderr_tail()


def _failed(what: str) -> TaskFailure:
    return TaskFailure(f"Gemini's login {what}. Try again.", code="AUTH_FAILED", retryable=True, runtime=NAME)
