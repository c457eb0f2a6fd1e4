"""Many requests at once on a small budget, through the real server: the attack that spent twenty times its budget."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.engine.acting import live_session
from tests.gateway.agent import agent_runtime
from tests.gateway.capture.test_tap import check, events_of, payloads, session_of
from tests.gateway.peers import PATIENCE_S, WIRES, peer, say

from codesdk import CodeSDK, TaskFailure
from codesdk.contract.runtime import Finished
from codesdk.contract.settings import Budget, Budgets, Limits, SessionSettings
from codesdk.gateway.providers import Provider

AT_ONCE = 30
ANSWER = (
    b'{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],'
    b' "stop_reason": "end_turn", "usage": {"input_tokens": 20, "output_tokens": 1980}}'
)


async def flood(task: Any) -> AsyncIterator[Any]:
    """Ask thirty different things at once."""
    url = await task.host.model_endpoint() + "/v1/messages"
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        await asyncio.gather(
            *(
                client.post(
                    url,
                    json={
                        "model": "claude-sonnet-4-5",
                        "max_tokens": 4000,
                        "messages": [{"role": "user", "content": f"Question {number}"}],
                    },
                )
                for number in range(AT_ONCE)
            )
        )
    yield Finished(stop_reason="end_turn")


@pytest.mark.slow
@pytest.mark.parametrize("level", ["task", "session", "principal"])
@pytest.mark.parametrize(
    ("budget", "passed"),
    [(Budget(tokens=3000), 2), (Budget(cost_usd=0.045), 2), (Budget(requests=3), 3)],
    ids=["tokens", "dollars", "requests"],
)
async def test_thirty_requests_at_once_stay_within_a_budget_but_for_one(
    tmp_path: Path, level: str, budget: Budget, passed: int
) -> None:
    limits = Limits(principal_budget=budget if level == "principal" else None)
    budgets = None if level == "principal" else Budgets(**{level: budget})
    async with (
        peer(say(ANSWER, 200, "connection: close")) as provider,
        CodeSDK.open(
            tmp_path / "data",
            runtimes={"agent": agent_runtime(flood)},
            providers={wire: Provider(origin=provider.url, key="key-0123456789") for wire in WIRES},
            limits=limits,
        ) as sdk,
    ):
        session = await session_of(sdk, tmp_path, None, budgets=budgets)
        with pytest.raises(TaskFailure) as caught:
            await (await session.start("Go")).result()
        events = await events_of(sdk, session)
        await check(sdk, session)
    assert caught.value.code == "BUDGET_EXCEEDED"
    assert len(provider.asked) == passed
    assert len(payloads(events, "runtime.request.started")) == passed


async def test_a_stop_ends_the_requests_that_wait_for_room_and_nothing_stays_reserved(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def silent(writer: asyncio.StreamWriter) -> None:
        asked.set()

    async with (
        peer(silent) as provider,
        CodeSDK.open(
            tmp_path / "data",
            runtimes={"agent": agent_runtime(flood)},
            providers={wire: Provider(origin=provider.url, key="key-0123456789") for wire in WIRES},
        ) as sdk,
    ):
        budgets = Budgets(session=Budget(tokens=3000))
        settings = SessionSettings(stop_grace_s=0.1)  # the agent waits for its model and hears no stop
        session = await session_of(sdk, tmp_path, None, budgets=budgets, settings=settings)
        task = await session.start("Go")
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        await task.stop()
        assert (await task.result()).state == "stopped"
        live = await live_session(sdk.engine, session.id)
        assert live.resources.spending._held == {}
        await check(sdk, session)
    assert len(provider.asked) == 1
