"""What the log says of answers. Shared by the tests of questions and of several editors."""

from typing import Any

from codesdk import CodeSDK
from codesdk.contract.events import ApprovalAnswered


async def answered(sdk: CodeSDK, session: str) -> list[Any]:
    """Return the answers in a session: which, the words, and whose."""
    found = [await sdk.service.event(session, seq + 1) for seq in range(await sdk.service.head(session))]
    payloads = [event.payload for event in found]
    return [
        (payload.decision, payload.answer, payload.by.id)
        for payload in payloads
        if isinstance(payload, ApprovalAnswered)
    ]
