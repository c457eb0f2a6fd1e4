"""What a runtime says it used: its own word whatever it claims, within bounds, and counted by budgets if it is more."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.agent import claude_like
from tests.gateway.capture.test_tap import check, events_of, opened, payloads, session_of, turns

from codesdk import TaskFailure
from codesdk.contract.events import MAX_REPORTED_TOKENS, UsageReported
from codesdk.contract.runtime import Draft
from codesdk.contract.settings import Budget, Budgets, Limits

PROVIDER_TOKENS = 128
"""What the gateway sees of one turn."""


def reporting(**figures: Any) -> Any:
    """Return an agent that asks its model and then reports usage of its own."""
    counts: dict[str, Any] = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "reasoning": 0}
    usage = UsageReported(**{"model": "x", "cost_usd": None, "source": "gateway"} | counts | figures)

    async def play(task: Any) -> AsyncIterator[Any]:
        items = [item async for item in claude_like(task)]
        yield Draft(usage)
        for item in items:
            yield item

    return play


async def test_what_a_runtime_reports_as_the_gateways_is_its_own_word(tmp_path: Path) -> None:
    async with opened(tmp_path, reporting(input=7)) as sdk:
        session = await session_of(sdk, tmp_path, turns("Hi."))
        result = await (await session.start("Hello")).result()
        reported = payloads(await events_of(sdk, session), "usage.reported")
        assert sorted((p.source, p.input) for p in reported) == [("gateway", 100), ("runtime", 7)]
        assert result.usage.input == 100
        await check(sdk, session)


@pytest.mark.parametrize(
    "figures",
    [
        {"input": -1_000_000},
        {"cache_read": -1},
        {"output": MAX_REPORTED_TOKENS + 1},
        {"reasoning": 2**63 - 1},
        {"cost_usd": -5.0},
        {"cost_usd": 1e300},
    ],
)
@pytest.mark.slow
async def test_a_figure_that_cannot_be_is_a_violation_and_the_budget_still_fires(
    tmp_path: Path, figures: dict[str, Any]
) -> None:
    budgets = Budgets(session=Budget(tokens=PROVIDER_TOKENS))
    async with opened(tmp_path, reporting(**figures)) as sdk:
        session = await session_of(sdk, tmp_path, turns("One.", "Two."), budgets=budgets)
        await (await session.start("Hello")).result()
        with pytest.raises(TaskFailure) as caught:
            await (await session.start("Hello")).result()
        assert caught.value.code == "BUDGET_EXCEEDED"
        events = await events_of(sdk, session)
        assert [p.source for p in payloads(events, "usage.reported")] == ["gateway"]
        notices = [p for p in payloads(events, "runtime.notice") if p.kind == "violation"]
        assert [p.details for p in notices] == [{"type": "usage.reported"}]  # the second task did not begin
        assert "cannot be" in notices[0].message
        await check(sdk, session)


@pytest.mark.parametrize("level", ["task", "session", "principal"])
@pytest.mark.parametrize(("said", "refused"), [(2000, True), (5, False)])
@pytest.mark.slow
async def test_budgets_count_the_larger_of_what_gateway_and_runtime_say(
    tmp_path: Path, level: str, said: int, refused: bool
) -> None:
    budget = Budget(tokens=1000)
    options: dict[str, Any] = {}
    if level != "principal":
        options["budgets"] = Budgets(**{level: budget})

    async def play(task: Any) -> AsyncIterator[Any]:
        async for item in reporting(input=said)(task):
            if not hasattr(item, "stop_reason"):
                yield item
        async for item in claude_like(task):
            yield item

    limits = Limits(principal_budget=budget if level == "principal" else None)
    async with opened(tmp_path, play, limits=limits) as sdk:
        session = await session_of(sdk, tmp_path, turns("One.", "Two."), **options)
        ended = (await session.start("Hello")).result()
        if refused:
            with pytest.raises(TaskFailure, match=f"{level} budget of 1,000 tokens is used up"):
                await ended
        else:
            await ended
        [row] = [row for row in await sdk.sessions() if row.session_id == session.id]
        assert row.spent is not None
        assert row.spent.tokens == (said if refused else 2 * PROVIDER_TOKENS)
        await check(sdk, session)
