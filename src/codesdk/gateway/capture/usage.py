"""What was seen of an answer → what it used: as the provider counted, or estimated where it did not get to say.

Providers count at the end of an answer. One that is cut off, or whose client did not ask for counts, is paid for all
the same, so the text that passed is counted, at four characters a token.
"""

import msgspec

from codesdk.contract.models import Tokens
from codesdk.gateway.wires.exchange import Seen

_CHARACTERS = 4  # in a token, about


def count_usage(seen: Seen, estimated_input: int, unread: int = 0) -> tuple[Tokens | None, bool]:
    """Return the tokens of an answer, and whether they are estimated. `unread` are bytes that could not be decoded."""
    if seen.tokens is not None and seen.stop_reason is not None:
        return seen.tokens, False
    written = _length(seen) + unread
    if seen.error is not None and seen.tokens is None and not written:
        return None, False  # refused instead of answered
    told = seen.tokens or Tokens(input=estimated_input)
    output = max(told.output, -(-written // _CHARACTERS) - told.reasoning)
    return msgspec.structs.replace(told, output=output), True


def _length(seen: Seen) -> int:
    calls = sum(len(call.name) + len(msgspec.json.encode(call.input)) for call in seen.calls)
    return len(seen.text) + len(seen.reasoning) + len(seen.refusal or "") + calls + seen.unfinished
