"""Google as gemini meets it: tokens renewed without a new refresh token, accounts, and models in an envelope of their own."""

import json
from typing import Any

import msgspec

from codesdk.contract.models import Tokens
from codesdk.gateway.wires.exchange import Call, Finish, Part, TextChunk
from codesdk.gateway.wires.formats import find_route

HOSTS = ("oauth2.googleapis.com", "www.googleapis.com", "cloudcode-pa.googleapis.com")
TOKENINFO = "POST oauth2.googleapis.com/tokeninfo"
MODEL = "POST cloudcode-pa.googleapis.com/v1internal:streamGenerateContent"
EMAIL = "canary-person@example.org"
Answer = tuple[int, str, bytes]


def answer_model(body: bytes, parts: list[Part], number: int) -> Answer:
    """Return the answer of a model, streamed in the envelope of Code Assist."""
    asked = json.loads(body)
    found = find_route("POST", f"/v1beta/models/{asked['model']}:streamGenerateContent", "alt=sse")
    assert found is not None
    codec, route = found
    encoder = codec.encoder(codec.parse(route, asked["request"]), f"answer_{number}")
    stop = "tool_use" if any(isinstance(part, Call) for part in parts) else "end_turn"
    end = Finish(stop_reason=stop, tokens=Tokens(input=11, output=7))
    plain = encoder.start() + b"".join(encoder.feed(part) for part in [*parts, end])
    events = [event.removeprefix(b"data: ") for event in plain.split(b"\r\n\r\n") if event]
    wrapped = [{"response": msgspec.Raw(event), "traceId": "trace-1"} for event in events]
    return (
        200,
        "text/event-stream",
        b"".join(b"data: " + msgspec.json.encode(one) + b"\r\n\r\n" for one in wrapped),
    )


def answer_other(route: str) -> dict[str, Any] | None:
    """Return what Google says of an account whose token is good; None for what it is not asked."""
    match route:
        case "POST oauth2.googleapis.com/tokeninfo":
            return {"expires_in": 3000, "scope": "https://www.googleapis.com/auth/cloud-platform", "aud": "a"}
        case "GET www.googleapis.com/oauth2/v2/userinfo":
            return {"email": EMAIL}
        case "POST cloudcode-pa.googleapis.com/v1internal:loadCodeAssist":
            tier = {"id": "free-tier", "name": "Free"}
            return {"currentTier": tier, "cloudaicompanionProject": "project-1"}
        case "POST cloudcode-pa.googleapis.com/v1internal:retrieveUserQuota":
            return {"buckets": []}
        case "POST cloudcode-pa.googleapis.com/v1internal:listExperiments":
            return {"experimentIds": [], "flags": []}
        case "POST cloudcode-pa.googleapis.com/v1internal:recordCodeAssistMetrics":
            return {}
        case _:
            return None


HELLO: list[Part] = [TextChunk(text="Hello from the account.")]
