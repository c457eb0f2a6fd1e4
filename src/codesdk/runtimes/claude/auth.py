"""Whether claude is logged in, asked of claude itself: no model call, no secret."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from codesdk.contract.capabilities import AuthStatus
from codesdk.runtimes.program.process import start_child

ASK_S = 30.0
_KEY = "A key that the model gateway has takes the place of a login."


async def ask_auth(program: str, cwd: str, env: Mapping[str, str]) -> AuthStatus:
    """Return what `claude auth status` says. The provider may still refuse a login that is there."""
    told = await _run([program, "auth", "status"], cwd, env)
    logged_in = told.get("loggedIn") is True
    details = {"method": told.get("authMethod", "unknown"), "provider": told.get("apiProvider"), "note": _KEY}
    return AuthStatus(
        ok=logged_in,
        logged_in=logged_in,
        auth_model="both",
        account_label=_label(told) if logged_in else None,
        details={name: value for name, value in details.items() if value is not None},
    )


def _label(told: Mapping[str, Any]) -> str:
    plan = told.get("subscriptionType")
    method = str(told.get("authMethod", "unknown"))
    return f"{method} ({plan})" if plan else method


async def _run(argv: list[str], cwd: str, env: Mapping[str, str]) -> dict[str, Any]:
    child = await start_child(argv, cwd=cwd, env=env)
    try:
        child.stdin.close()
        with contextlib.suppress(TimeoutError, ValueError, RecursionError):
            async with asyncio.timeout(ASK_S):
                return msgspec.json.decode(await child.stdout.read(), type=dict[str, Any])
        return {}
    finally:
        await child.stop(0.0)
