"""Token counts summed per source, so that a request seen by gateway and runtime is not counted twice."""

import msgspec

from codesdk.contract.events import UsageReported, UsageTotals


class Tally(msgspec.Struct, kw_only=True):
    """What one source reported in a task. The cost is unknown as soon as one part of it is."""

    totals: UsageTotals = UsageTotals()
    cost_known: bool = True


def add_usage(tallies: dict[str, Tally], reported: UsageReported) -> UsageTotals:
    """Add a report to its source's tally. Return the totals that count: the gateway's if it has any."""
    tally = tallies.setdefault(reported.source, Tally())
    total = tally.totals
    tally.cost_known = tally.cost_known and reported.cost_usd is not None
    cost = (total.cost_usd or 0.0) + (reported.cost_usd or 0.0)
    tally.totals = UsageTotals(
        input=total.input + reported.input,
        output=total.output + reported.output,
        cache_read=total.cache_read + reported.cache_read,
        cache_write=total.cache_write + reported.cache_write,
        reasoning=total.reasoning + reported.reasoning,
        cost_usd=cost if tally.cost_known else None,
    )
    return tallies.get("gateway", tally).totals
