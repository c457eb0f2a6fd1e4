"""Experiments after the session: the agent started again, and a look at what all others left."""

import asyncio
import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from codesdk.contract.errors import TaskFailure
from codesdk.runtimes import RequestFailed
from codesdk.testing.probe import deduce
from codesdk.testing.probe.experiments import LISTED_S, TOLD
from codesdk.testing.probe.state import Probe
from codesdk.testing.probe.talk import Talk, started
from codesdk.testing.probe.world import Answer, World


async def again(world: World, probe: Probe) -> None:
    """Start the agent again, with what it keeps: load the session, then begin one whose tools come over stdio."""
    async with started(world, probe.row, probe.command, probe.places) as talk:
        await talk.introduce()
        await talk.greet()
        if probe.has_names:
            await loading(world, probe, talk)
        await stdio(world, probe, talk)


async def loading(world: World, probe: Probe, talk: Talk) -> None:
    """Load the session of the process before, and see whether the model is told of it."""
    problem = "it does not say that it can"
    if talk.about.capabilities.get("loadSession") is True:
        try:
            await talk.load(probe.session_id)
            world.turn("What did I ask before?", lambda asked: Answer(text="A story."), wanted=(TOLD,))
            await talk.prompt()
            if any(asked.held for asked in world.seen.asked):
                probe.note("resume", "a session is loaded in another process, and its model knows it")
                return
            problem = "it loads it, but its model is not told of it"
        except RequestFailed as error:
            problem = f"it refuses: {error.message[:200]}"
    means = "A session that is opened again continues from CodeSDK's own transcript."
    probe.miss("resume", f"A session cannot be loaded in another process: {problem}.", means)


async def stdio(world: World, probe: Probe, talk: Talk) -> None:
    """See whether our tools also come over stdio. For the row only if they do not over HTTP."""
    world.listed.clear()
    talk.setup = msgspec.structs.replace(
        talk.setup, row=msgspec.structs.replace(probe.row, transports=("stdio",))
    )
    with contextlib.suppress(RequestFailed, TaskFailure):
        await talk.begin()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTED_S):
                await world.listed.wait()
        if not world.listed.is_set():
            world.turn("Say hello.", lambda asked: Answer(text="Hello."))
            await talk.prompt()
    http = probe.lists or probe.has_names
    if world.listed.is_set():
        both = ("http", "stdio") if http else ("stdio",)
        probe.learn("transports", f"our MCP server works over {' and '.join(both)}", transports=both)
    elif http:
        probe.note("transports", "our MCP server works over http, not over stdio")
    else:
        means = "Sessions would have no tools, so they are refused."
        probe.miss("transports", "Our MCP server works neither over http nor over stdio.", means)


async def leftovers(world: World, probe: Probe) -> None:
    """Look for files that hold the session's addresses."""
    tokens = [token.encode() for token in world.tokens]
    found = await asyncio.to_thread(_holding, probe.places.root, tokens)
    own = {re.sub(r"[0-9a-f]{8,}|\d+", "*", name) for name in found if name not in probe.row.launch.files}
    if own:
        launch = msgspec.structs.replace(
            probe.row.launch, forgotten=tuple(sorted({*probe.row.launch.forgotten, *own}))
        )
        probe.learn(
            "leaves", f"files with the session's addresses, removed at its end: {len(own)}", launch=launch
        )


async def side_requests(world: World, probe: Probe) -> None:
    """Note the requests beside the conversation that any experiment saw."""
    marks = list(probe.row.side)
    for seen in world.past:
        marks += [mark for mark in deduce.side_marks(seen) if mark not in marks]
    if marks:
        shown = "; ".join(mark.tool or mark.model or repr(mark.text) for mark in marks)
        probe.learn("side requests", f"{len(marks)} kinds: {shown}", side=tuple(marks))
    else:
        probe.note("side requests", "none seen")


def _holding(root: Path, tokens: Sequence[bytes]) -> list[str]:
    found: list[str] = []
    for path in root.rglob("*"):
        with contextlib.suppress(OSError):
            if (
                path.is_file()
                and not path.is_symlink()
                and any(token in path.read_bytes() for token in tokens)
            ):
                found.append(str(path.relative_to(root)))
    return sorted(found)
