"""Tokens to dollars, from a table that needs no network. An unknown model costs null, never a guess.

The table is a large import (a second of CPU), so it is loaded on first use, in a thread.
"""

import asyncio
from functools import cache
from typing import Any

from codesdk.gateway.exchange import Tokens, Wire

_PROVIDERS: dict[Wire, str] = {
    "anthropic": "anthropic",
    "responses": "openai",
    "chat": "openai",
    "gemini": "google",
}


async def cost_usd(wire: Wire, model: str, tokens: Tokens) -> float | None:
    """Return what a request cost at list price, or None if the model's price is not known."""
    prices = await asyncio.to_thread(_table)
    return price(prices, wire, model, tokens)


def price(prices: Any, wire: Wire, model: str, tokens: Tokens) -> float | None:
    """Return the price of tokens by a table. The table's input counts what a cache gave or took, too."""
    usage = prices.Usage(
        input_tokens=tokens.input + tokens.cache_read + tokens.cache_write,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
        output_tokens=tokens.output + tokens.reasoning,
    )
    try:
        found = prices.calc_price(usage, model_ref=model, provider_id=_PROVIDERS[wire])
    except LookupError:
        return None
    return float(found.total_price)


@cache
def _table() -> Any:
    import genai_prices

    return genai_prices
