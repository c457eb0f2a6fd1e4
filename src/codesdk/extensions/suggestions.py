"""What handlers answered to a request for suggestions → what the log keeps of it: typed, and bounded. Pure."""

from collections.abc import Sequence

import msgspec

from codesdk.contract.events import HandlerOutcome
from codesdk.extensions.outcomes import AgentEventEmitResult, HandlerError

MAX_OUTCOME_BYTES = 64 * 1024
"""How large one result may be that is kept, as JSON."""
MAX_OUTCOMES_BYTES = 512 * 1024
"""How large all of them may be together."""


def outcomes_of(results: Sequence[AgentEventEmitResult]) -> list[HandlerOutcome]:
    """Return the results as they are kept. One that is too large, or finds no more room, is an error in its place."""
    kept: list[HandlerOutcome] = []
    left = MAX_OUTCOMES_BYTES
    for result in results:
        size = len(msgspec.json.encode(result))
        if size > min(MAX_OUTCOME_BYTES, left):
            words = f"It returned {size:,} bytes, of which there is no room for more than {min(MAX_OUTCOME_BYTES, left):,}."
            result = HandlerError(module_name=result.module_name, event_type=result.event_type, message=words)
        else:
            left -= size
        kept.append(msgspec.convert(msgspec.to_builtins(result), HandlerOutcome))
    return kept
