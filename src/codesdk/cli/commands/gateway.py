"""`codesdk gateway`: a model endpoint on loopback that plays a script or a cassette, records, or passes through."""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import click

from codesdk.cli.exits import FAILED, OK
from codesdk.cli.interrupts import Interrupts
from codesdk.cli.loop import run_async
from codesdk.cli.view.out import write_json, write_text
from codesdk.cli.view.safe import printable
from codesdk.contract.errors import InvalidRequest
from codesdk.gateway import (
    KEY_NAMES,
    ORIGINS,
    Backend,
    Gateway,
    Provider,
    RecordingBackend,
    ReplayBackend,
    ScriptedModel,
    Tape,
    Upstream,
    Wire,
    load_cassette,
    providers_from,
    save_cassette,
)
from codesdk.script import load_script


class Served(NamedTuple):
    """What answers, what to say at the start, and what to do at the end, which returns notes and problems."""

    backend: Backend
    about: str
    end: Callable[[], tuple[list[str], list[str]]]
    upstream: Upstream | None = None


def _origin(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Return an origin without its final slash. Do not repeat an invalid one: it may hold a login."""
    if given is None:
        return None
    try:
        parts = urlsplit(given)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
        parts = urlsplit("")
    if not is_good or parts.query or parts.fragment or parts.username or parts.password:
        raise click.BadParameter("An origin is http:// or https:// and a host, without a login or a query.")
    return given.rstrip("/")


@click.command()
@click.option("--script", metavar="FILE", help="Answer from a script.")
@click.option("--replay", metavar="FILE", help="Answer from a cassette; no provider is asked.")
@click.option("--record", metavar="FILE", help="Pass requests on, and write a redacted cassette at the end.")
@click.option(
    "--anthropic-origin",
    callback=_origin,
    metavar="URL",
    help="Pass requests on to this address, not to Anthropic.",
)
@click.option(
    "--openai-origin",
    callback=_origin,
    metavar="URL",
    help="Pass requests on to this address, not to OpenAI.",
)
@click.option(
    "--gemini-origin",
    callback=_origin,
    metavar="URL",
    help="Pass requests on to this address, not to Google.",
)
@click.option("--pace", is_flag=True, help="With --replay, keep the recorded pauses.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port. [default: a free one]")
def gateway(
    script: str | None,
    replay: str | None,
    record: str | None,
    pace: bool,
    port: int,
    **origins: str | None,
) -> int:
    """Serve a model to any agent: from a script or a cassette, or by passing requests on to the real one.

    The first line on stdout is JSON with the address to point a client at. It contains a token, and works
    only on this machine. Without --script, --replay or --record, requests are passed on, with the keys in
    ANTHROPIC_API_KEY, OPENAI_API_KEY and GEMINI_API_KEY; without a key, the client's own login is passed on.

    Ctrl-C or SIGTERM ends it. Exits 1 if a script or a cassette did not fit the requests.
    """
    if sum(choice is not None for choice in (script, replay, record)) > 1:
        raise click.UsageError("Choose one of --script, --replay and --record.")
    if any(origins.values()) and (script or replay):
        raise click.UsageError("An origin is for requests that are passed on, not for --script or --replay.")
    if pace and replay is None:
        raise click.UsageError("--pace needs --replay.")
    # Chosen before the server starts, because a recording must never contain it.
    token = secrets.token_urlsafe(24)
    if script is not None:
        served = _scripted(script)
    elif replay is not None:
        served = _replaying(replay, token, pace=pace)
    else:
        served = _passing(record, origins, token)
    return run_async(_serve(served, port, token))


async def _serve(served: Served, port: int, token: str) -> int:
    stop = asyncio.Event()
    server = Gateway(port=port)
    with Interrupts() as interrupts:
        interrupts.on_stop = stop.set
        try:
            async with _listening(server, port):
                base_url = server.admit(served.backend, token)
                write_json({"url": server.url, "base_url": base_url})
                write_text(sys.stderr, _hint(served.about, base_url))
                await stop.wait()
        finally:
            if served.upstream is not None:
                await served.upstream.close()
        notes, problems = served.end()
    if server.refused:
        notes.append(f"Requests refused because they lacked the token: {server.refused}.")
    said = [*notes, *(f"problem: {problem}" for problem in problems)]
    write_text(sys.stderr, "".join(f"{printable(line)}\n" for line in said))
    return FAILED if problems else OK


@asynccontextmanager
async def _listening(server: Gateway, port: int) -> AsyncGenerator[None]:
    try:
        await server.__aenter__()
    except OSError as error:
        raise InvalidRequest(f"Port {port} cannot be used: {error.strerror}. Choose another one.") from None
    try:
        yield
    finally:
        await server.__aexit__()


def _scripted(file: str) -> Served:
    script = load_script(file)
    model = ScriptedModel(script)

    def end() -> tuple[list[str], list[str]]:
        return [f"{model.played} of {len(script.turns)} turns in the script were played."], model.problems

    return Served(model, "A scripted model. Any key works.", end)


def _replaying(file: str, token: str, *, pace: bool) -> Served:
    backend = ReplayBackend(load_cassette(file), secrets=[token], pace=pace)

    def end() -> tuple[list[str], list[str]]:
        return [f"{backend.played} answers played, {backend.unplayed} not asked for."], backend.problems

    return Served(backend, "A recorded model. Any key works.", end)


def _passing(file: str | None, origins: Mapping[str, str | None], token: str) -> Served:
    keys: dict[Wire, str | None] = {wire: given.key for wire, given in providers_from().items()}
    # OpenAI speaks two formats, so whatever has no origin by its own name goes to OpenAI's.
    given = {wire: origins.get(f"{wire}_origin", origins["openai_origin"]) for wire in keys}
    upstream = Upstream(
        {wire: Provider(origin=given[wire] or ORIGINS[wire], key=key) for wire, key in keys.items()}
    )
    named = sorted({KEY_NAMES[wire] for wire, key in keys.items() if key})
    about = f"Keys added: {', '.join(named) or 'none, a client needs its own login'}."
    if file is None:
        return Served(upstream, f"The real model. {about}", lambda: (list[str](), list[str]()), upstream)
    _check_place(file)
    tape = Tape()
    backend = RecordingBackend(upstream, tape.add, secrets=[token, *filter(None, keys.values())])

    def end() -> tuple[list[str], list[str]]:
        save_cassette(file, tape.dump())
        notes = [f"{len(tape)} exchanges written to {file}."]
        if backend.others:
            notes.append(f"Passed on and not recorded: {', '.join(sorted(set(backend.others)))}.")
        return notes, [*backend.problems, *tape.problems]

    return Served(backend, f"The real model, recorded. {about}", end, upstream)


def _check_place(file: str) -> None:
    """Refuse at once what could not be written at the end."""
    path = Path(file)
    if path.is_dir():
        raise InvalidRequest(f"{file} is a directory. Name a file to write.")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidRequest(f"{file} cannot be written: its directory is missing or not writable.")


def _hint(about: str, base_url: str) -> str:
    return (
        f"{about} Point a client at it:\n"
        f"  export ANTHROPIC_BASE_URL={base_url}\n"
        f"  export OPENAI_BASE_URL={base_url}/v1\n"
        f"  export GOOGLE_GEMINI_BASE_URL={base_url}\n"
        "Ctrl-C ends it.\n"
    )
