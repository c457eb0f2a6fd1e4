"""minicode alone, with only variables set: a scripted endpoint in each format, and a home of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.minicode import Minicode, create_minicode
from codesdk.minicode.models import PROVIDERS
from codesdk.minicode.types import ProviderId
from codesdk.script import parse_object

FAMILIES: tuple[ProviderId, ...] = get_args(ProviderId)
VARIABLES: dict[ProviderId, tuple[str, str]] = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "google": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    "openai-compatible": ("OPENAI_COMPATIBLE_API_KEY", "OPENAI_COMPATIBLE_BASE_URL"),
}
CANARY = "sk-canary-of-nobody-0123456789"


def scripted(*turns: list[dict[str, Any]]) -> ScriptedModel:
    return ScriptedModel(parse_object({"turns": [{"steps": steps} for steps in turns]}, "test"))


@asynccontextmanager
async def endpoint(*turns: list[dict[str, Any]]) -> AsyncIterator[str]:
    """Serve a script on loopback in all formats. Yield its address."""
    async with Gateway() as gateway:
        yield gateway.admit(scripted(*turns))


def variables(home: Path, url: str, *families: ProviderId) -> dict[str, str]:
    """Return an environment in which these families have a key and an address, and nothing else is set."""
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "MINICODE_CONFIG_DIR": str(home / "config")}
    env |= {
        "MINICODE_SESSIONS_DIR": str(home / "sessions"),
        "MINICODE_ARTIFACTS_DIR": str(home / "artifacts"),
    }
    for family in families:
        key, address = VARIABLES[family]
        env |= {key: CANARY, address: url + PROVIDERS[family].path}
    if families == ("openai-compatible",):
        env["MINICODE_MODEL"] = "small-local"
    return env


@asynccontextmanager
async def alone(
    work: Path, home: Path, turns: list[list[dict[str, Any]]], *families: ProviderId
) -> AsyncIterator[Minicode]:
    """Yield minicode for a directory, with an endpoint that plays these turns."""
    async with (
        endpoint(*turns) as url,
        await create_minicode(cwd=work, env=variables(home, url, *families)) as sdk,
    ):
        yield sdk
