"""A session is taken over while the agent of the one before is still there: both have the same folders."""

from pathlib import Path

import msgspec
from tests.runtimes.acp.rig import pretending
from tests.runtimes.acp.test_rows import placed, setup_of

from codesdk.contract.capabilities import Isolation
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.acp.agent import Agent
from codesdk.runtimes.acp.row import AgentRow, Launch


async def test_the_end_of_one_agent_leaves_the_next_one_what_it_was_started_with(tmp_path: Path):
    row = AgentRow(
        wire="chat", model="m", launch=Launch(files={"home/settings.json": {"url": "${model_url}"}})
    )
    setup = msgspec.structs.replace(setup_of(row), command=tuple(pretending("good")))
    places = placed(tmp_path)
    env = RuntimeEnv(
        cwd="/",
        env={},
        credential_namespace="local",
        isolation=Isolation(level="namespaced", mode="subprocess"),
        state_dir=str(tmp_path / "state"),
    )
    first = await Agent.start("acp", setup, places, env)
    second = await Agent.start("acp", setup, places, env)
    await first.stop(force=True)
    assert setup.model_url in (places.home / "settings.json").read_text()
    await second.stop()
    assert not (places.home / "settings.json").exists()
