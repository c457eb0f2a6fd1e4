"""Tokens → dollars, from a table that needs no network. The price of an unknown model is None, never a guess.

The table is a large import (a second of CPU), so it is loaded on first use, in a thread.
"""

import asyncio
from importlib import import_module
from typing import Any

from codesdk.contract.models import Tokens
from codesdk.gateway.wires.exchange import Wire

_TABLE = "genai_prices"
_loaded = False
_PROVIDERS: dict[Wire, str] = {
    "anthropic": "anthropic",
    "responses": "openai",
    "chat": "openai",
    "gemini": "google",
}


async def ready() -> None:
    """Wait until the table is loaded."""
    global _loaded
    if not _loaded:
        await asyncio.to_thread(import_module, _TABLE)
        _loaded = True


def price_of(wire: Wire, model: str, tokens: Tokens) -> float | None:
    """Return the list price of a request, or None if the model's price is not known. Call `ready` first."""
    prices: Any = import_module(_TABLE)
    usage = prices.Usage(  # the table's input includes what was read from or written to a cache
        input_tokens=tokens.input + tokens.cache_read + tokens.cache_write,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
        output_tokens=tokens.output + tokens.reasoning,  # reasoning is billed as output
    )
    try:
        found = prices.calc_price(usage, model_ref=model, provider_id=_PROVIDERS[wire])
    except LookupError:
        return None
    return float(found.total_price)
