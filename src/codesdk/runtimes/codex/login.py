"""Codex's login to a ChatGPT account: one file for all sessions of a namespace, and how it is made.

Codex writes the file in place, so each session has a link to it in its own folder and nothing else of it. It is
renewed through the gateway, which keeps sessions that do so at once from using up each other's token.
"""

import base64
import re
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.access import LoginDialog, LoginOutcome, LoginPrompt
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.models import LoginKind
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.codex import ENTRY, NAME
from codesdk.runtimes.program.logins import (
    REFUSED,
    Login,
    folder_of,
    is_refused,
    prompt_in,
    read_json,
    run_login,
    tidy,
)

KIND: LoginKind = "chatgpt"
FILE = "auth.json"
_CLAIMS = "https://api.openai.com/auth"
_CODE = re.compile(r"\b([A-Z0-9]{4,8}-[A-Z0-9]{4,8})\b")
_MESSAGE = (
    "Open this address, log in there, and type in the code. Only continue if you asked for this yourself."
)


def find_login(env: RuntimeEnv) -> Login | None:
    """Return the namespace's login, unless the provider has refused it. Blocking, but short."""
    folder = folder_of(ENTRY, env)
    if folder is None or is_refused(folder / FILE):
        return None
    tokens: Any = read_json(folder / FILE).get("tokens")
    if not isinstance(tokens, dict):
        return None
    found = msgspec.convert(tokens, dict[str, Any])
    secrets = [found.get(name) for name in ("access_token", "refresh_token", "id_token")]
    if not all(isinstance(secret, str) and secret for secret in secrets):
        return None
    plan = _claims(str(found["id_token"])).get("chatgpt_plan_type")
    label = f"ChatGPT ({plan})" if isinstance(plan, str) and plan else "ChatGPT"
    return Login(file=folder / FILE, label=label, secrets=tuple(map(str, secrets)))


def link_login(home: Path, login: Path | None) -> None:
    """Give a session's program the login of a folder, or take it away. Blocking, but short."""
    link = home / FILE
    if link.is_symlink() or link.exists():
        link.unlink()
    if login is not None:
        link.symlink_to(login / FILE)


async def log_in(program: str, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
    """Run `codex login --device-auth` in the namespace's folder, unless there is a login."""
    known = find_login(env)
    if known is not None:
        return LoginOutcome(logged_in=True, account_label=known.label)
    folder = folder_of(ENTRY, env)
    if folder is None:
        raise InvalidRequest("A login needs a data directory to be kept in.", runtime=NAME)
    argv = [program, "login", "--device-auth", "-c", 'cli_auth_credentials_store="file"']
    try:
        problem = await run_login(
            argv, folder, lambda _: {"CODEX_HOME": str(folder)}, dialog, _prompt, answers=False
        )
    finally:
        tidy(folder, (FILE, REFUSED))
    made = find_login(env)
    if made is None:
        return LoginOutcome(logged_in=False, problem=problem or "Codex made no login.")
    return LoginOutcome(logged_in=True, account_label=made.label)


def _prompt(text: str) -> LoginPrompt | None:
    return prompt_in(text, _MESSAGE, _CODE)


def _claims(token: str) -> dict[str, Any]:
    """Return what an identity token says of the account. It is not checked: only the label is taken from it."""
    try:
        middle = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        return msgspec.convert(claims[_CLAIMS], dict[str, Any])
    except (ValueError, IndexError, KeyError, TypeError, RecursionError):
        return {}
