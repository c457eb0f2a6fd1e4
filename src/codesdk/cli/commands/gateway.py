"""`codesdk gateway`: a model endpoint on loopback that plays a script or a cassette, records, or passes through."""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import click

from codesdk.cli.exits import FAILED, OK
from codesdk.cli.interrupts import Interrupts
from codesdk.cli.loop import run_async
from codesdk.cli.out import write_json, write_text
from codesdk.cli.safe import printable
from codesdk.contract.errors import InvalidRequest
from codesdk.gateway.cassette import Tape, load_cassette, save_cassette
from codesdk.gateway.exchange import Wire
from codesdk.gateway.record import RecordingBackend
from codesdk.gateway.replay import ReplayBackend
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Backend, Gateway
from codesdk.gateway.upstream import ORIGINS, Provider, Upstream
from codesdk.script import load_script

_KEYS: dict[Wire, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "responses": "OPENAI_API_KEY",
    "chat": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}


class Origins(NamedTuple):
    """Where requests go in place of the real providers."""

    anthropic: str | None
    openai: str | None
    gemini: str | None

    def of(self, wire: Wire) -> str:
        """Return the origin for a format."""
        given = {"anthropic": self.anthropic, "gemini": self.gemini}.get(wire, self.openai)
        return given or ORIGINS[wire]


class Served(NamedTuple):
    """What answers, what to say of it at the start, and how to end it: with notes and problems."""

    backend: Backend
    about: str
    end: Callable[[], tuple[list[str], list[str]]]


@click.command()
@click.option("--script", metavar="FILE", help="Answer from a script.")
@click.option("--replay", metavar="FILE", help="Answer from a cassette; nothing is asked of a provider.")
@click.option("--record", metavar="FILE", help="Pass requests on, and write a redacted cassette at the end.")
@click.option("--anthropic-origin", metavar="URL", help="Pass on to this address, not to Anthropic.")
@click.option("--openai-origin", metavar="URL", help="Pass on to this address, not to OpenAI.")
@click.option("--gemini-origin", metavar="URL", help="Pass on to this address, not to Google.")
@click.option("--pace", is_flag=True, help="With --replay, keep the recorded pauses.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port. [default: a free one]")
def gateway(  # noqa: PLR0913 - one for each option
    script: str | None,
    replay: str | None,
    record: str | None,
    anthropic_origin: str | None,
    openai_origin: str | None,
    gemini_origin: str | None,
    pace: bool,
    port: int,
) -> int:
    """Be a model for any agent: from a script or a cassette, or pass requests on to the real one.

    The first line on stdout is JSON with the address to point a client at. It has a token in it and is on this
    machine only. Without --script, --replay or --record requests are passed on. The keys for that are taken from
    ANTHROPIC_API_KEY, OPENAI_API_KEY and GEMINI_API_KEY; where there is none, the client's own login passes.

    Ctrl-C or SIGTERM ends it. Exits 1 if a script or a cassette did not fit the requests.
    """
    origins = Origins(*(_origin(given) for given in (anthropic_origin, openai_origin, gemini_origin)))
    if sum(choice is not None for choice in (script, replay, record)) > 1:
        raise click.UsageError("Choose one of --script, --replay and --record.")
    if any(origins) and (script or replay):
        raise click.UsageError("An origin makes sense only where requests are passed on.")
    if pace and replay is None:
        raise click.UsageError("--pace goes with --replay.")
    token = secrets.token_urlsafe(24)
    if script is not None:
        return run_async(_serve(_scripted(script), port, token))
    if replay is not None:
        return run_async(_serve(_replaying(replay, token, pace=pace), port, token))
    return run_async(_serve(_passing(record, origins, token), port, token))


async def _serve(mode: "_Mode", port: int, token: str) -> int:
    stop = asyncio.Event()
    with Interrupts() as interrupts:
        interrupts.on_stop = stop.set
        async with mode as served:
            async with _listening(port) as server:
                base_url = server.admit(served.backend, token)
                write_json({"url": server.url, "base_url": base_url})
                write_text(sys.stderr, _hint(served.about, base_url))
                await stop.wait()
            notes, problems = served.end()
    if server.refused:
        notes.append(f"{server.refused} requests came without the token and were refused.")
    for note in notes:
        write_text(sys.stderr, f"{printable(note)}\n")
    for problem in problems:
        write_text(sys.stderr, f"problem: {printable(problem)}\n")
    return FAILED if problems else OK


@asynccontextmanager
async def _listening(port: int) -> AsyncGenerator[Gateway]:
    server = Gateway(port=port)
    try:
        await server.__aenter__()
    except OSError as error:
        raise InvalidRequest(f"Port {port} cannot be used: {error.strerror}.") from None
    try:
        yield server
    finally:
        await server.__aexit__()


_Mode = AsyncGenerator[Served]
