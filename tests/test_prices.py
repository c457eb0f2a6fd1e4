"""What a request costs: by a table, every token once, and null where the table does not know."""

import pytest

from codesdk.gateway.wires.exchange import Tokens, Wire
from codesdk.prices import price_of, ready

MILLION = 1_000_000


async def _cost(wire: Wire, model: str, tokens: Tokens) -> float | None:
    await ready()
    return price_of(wire, model, tokens)


@pytest.mark.slow
async def test_a_token_is_paid_for_once_whatever_it_is() -> None:
    plain = await _cost("anthropic", "claude-sonnet-4-5", Tokens(input=1000))
    output = await _cost("anthropic", "claude-sonnet-4-5", Tokens(output=1000))
    thought = await _cost("anthropic", "claude-sonnet-4-5", Tokens(reasoning=1000))
    cached = await _cost("anthropic", "claude-sonnet-4-5", Tokens(cache_read=1000))
    kept = await _cost("anthropic", "claude-sonnet-4-5", Tokens(cache_write=1000))
    together = await _cost(
        "anthropic",
        "claude-sonnet-4-5",
        Tokens(input=1000, output=1000, reasoning=1000, cache_read=1000, cache_write=1000),
    )
    assert plain is not None
    assert output is not None
    assert thought == output
    assert cached is not None
    assert kept is not None
    assert cached < plain < kept < output
    assert together == pytest.approx(plain + output + output + cached + kept)


@pytest.mark.parametrize(
    ("wire", "model"),
    [
        ("anthropic", "claude-sonnet-4-5"),
        ("responses", "gpt-5"),
        ("chat", "gpt-5"),
        ("gemini", "gemini-2.5-pro"),
    ],
)
async def test_every_format_has_its_provider_in_the_table(wire: Wire, model: str) -> None:
    assert await _cost(wire, model, Tokens(input=MILLION)) not in (None, 0.0)


async def test_an_unknown_model_costs_null_and_not_zero() -> None:
    assert await _cost("anthropic", "no-such-model", Tokens(input=10)) is None
