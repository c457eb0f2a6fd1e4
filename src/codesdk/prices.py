"""What models cost and take in, from a table that needs no network. What is not known is None, never a guess.

The table is a large import (a second of CPU), so it is loaded on first use, in a thread.
"""

import asyncio
from importlib import import_module
from typing import Any

from codesdk.contract.models import Tokens, Wire

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
    """Return the list price of a request to a format's own provider, or None if it is not known. Call `ready` first."""
    return _price(model, tokens, provider_id=_PROVIDERS[wire])


def price_at(wire: Wire, url: str | None, model: str, tokens: Tokens) -> float | None:
    """Return the list price of a request to an address, or to the format's own provider without one.

    None if it is not known: whoever answers at an address of its own may call its models as it likes.
    """
    return price_of(wire, model, tokens) if url is None else _price(model, tokens, provider_api_url=url)


def window_of(wire: Wire, model: str) -> int | None:
    """Return how many tokens a model of a format's own provider takes in, or None if that is not known."""
    snapshot: Any = import_module(f"{_TABLE}.data_snapshot")
    try:
        found = snapshot.get_snapshot().find_provider_model(model, None, _PROVIDERS[wire], None)[1]
    except LookupError:
        return None
    return found.context_window


def _price(model: str, tokens: Tokens, **who: str) -> float | None:
    prices: Any = import_module(_TABLE)
    usage = prices.Usage(  # the table's input includes what was read from or written to a cache
        input_tokens=tokens.input + tokens.cache_read + tokens.cache_write,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
        output_tokens=tokens.output + tokens.reasoning,  # reasoning is billed as output
    )
    try:
        found = prices.calc_price(usage, model_ref=model, **who)
    except LookupError:
        return None
    return float(found.total_price)
