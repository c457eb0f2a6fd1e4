"""`probe_agent`: a command → what could be learned of its agent, in the order in which one thing needs another."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.gateway import Gateway
from codesdk.runtimes import AgentRow, Places, RequestFailed, full_path, make_places
from codesdk.testing.probe.experiments import in_one_session
from codesdk.testing.probe.restarts import again, leftovers, side_requests
from codesdk.testing.probe.state import Probe, Tell, with_variables
from codesdk.testing.probe.way import introduction, way_to_the_model
from codesdk.testing.probe.world import World
from codesdk.tools import McpHost

TIMEOUT_S = 300.0
"""For everything."""


async def probe_agent(
    command: tuple[str, ...],
    tell: Tell,
    *,
    row: AgentRow | None = None,
    variables: Mapping[str, str] = {},
    timeout_s: float = TIMEOUT_S,
) -> Probe:
    """Find out what there is to know of an agent. `tell` hears of each finding as it is made.

    Raise `TaskFailure` if the command is no agent. Nothing of it is left: no process, no file.
    """
    async with _places() as places, _world() as world:
        start = with_variables(row or AgentRow(wire="chat", model=""), variables)
        probe = Probe(
            command=command,
            row=start,
            given=b"${model_url}" in msgspec.json.encode(start),
            places=places,
            tell=tell,
        )
        try:
            async with asyncio.timeout(timeout_s):
                await _learn(world, probe)
        except TimeoutError:
            means = "What comes after the last finding is not known."
            probe.miss("time", f"The agent took more than {timeout_s:g} s.", means)
        return probe


async def _learn(world: World, probe: Probe) -> None:
    await introduction(world, probe)
    await way_to_the_model(world, probe)
    if not probe.has_way:
        return
    for experiment in (in_one_session, again, leftovers, side_requests):
        try:
            await experiment(world, probe)
        except (TaskFailure, RequestFailed) as error:
            means = "What this was to show is not known."
            probe.miss(experiment.__name__.replace("_", " "), error.message, means)


@asynccontextmanager
async def _world() -> AsyncGenerator[World]:
    async with Gateway() as gateway, McpHost() as host:
        yield World(gateway, host)


@asynccontextmanager
async def _places() -> AsyncGenerator[Places]:
    env = RuntimeEnv(
        cwd="/",
        env={},
        credential_namespace="probe",
        isolation=Isolation(level="ephemeral", mode="subprocess"),
    )
    places = await asyncio.to_thread(make_places, env, "probe", "probe")
    try:
        yield places
    finally:
        await asyncio.to_thread(places.remove)


def absolute(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command whose program is named by its whole path. Raise `InvalidRequest` if there is none."""
    found = shutil.which(command[0])
    if found is None:
        raise InvalidRequest(f"There is no program {command[0]!r} that could be run.")
    # Not resolved: what a link points to may need its own name.
    return (str(Path(found).absolute()), *map(full_path, command[1:]))
