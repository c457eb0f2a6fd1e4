"""Posts events to CODESDK_WEBHOOK_URL, signed with CODESDK_WEBHOOK_SECRET, at least once each.

CODESDK_WEBHOOK_EVENTS names which, with commas between them; without it, all that the manifest declares. Each event
becomes a job, and the job is tried until the receiver answers with 2xx: after a second, then after twice as long each
time, ten times in all. A receiver checks

    x-codesdk-signature: t=SECONDS,v1=HEX    HEX is HMAC-SHA256(secret, "SECONDS.BODY")

refuses what is older than some minutes, and takes the same x-codesdk-delivery twice for one.
"""

import asyncio
import hashlib
import hmac
import json
import os
import time
import urllib.error
import urllib.request

EVENTS = ("session.created", "task.started", "approval.requested", "turn.completed", "session.closed")
LIMIT_S = 10
MOST_DATA = 16_000
"""How much of an event's own data is sent; of a larger one, the receiver reads the rest by session and seq."""


async def happened(event, tools):
    if not os.environ.get("CODESDK_WEBHOOK_URL") or not os.environ.get("CODESDK_WEBHOOK_SECRET"):
        return {"queued": False, "reason": "CODESDK_WEBHOOK_URL or CODESDK_WEBHOOK_SECRET is not set"}
    told = {"type": event.type, "emitted_at": event.emitted_at, **event.payload}
    if len(json.dumps(told["data"])) > MOST_DATA:
        told["data"] = None
    # The same event again, after a crash, has the same identity: it is queued once.
    identity = f"{event.correlation_id}:{event.type}"
    return await tools.enqueue_job({"type": "webhook.send", "payload": told, "identity": identity})


async def send(event, tools):
    body = json.dumps(event.payload["data"], separators=(",", ":")).encode()
    # Signed when it is sent, not when it is queued: a receiver refuses what is old.
    moment = str(int(time.time()))
    headers = {
        "content-type": "application/json",
        "x-codesdk-delivery": event.correlation_id,
        "x-codesdk-signature": f"t={moment},v1={signature(moment, body)}",
    }
    url = os.environ["CODESDK_WEBHOOK_URL"]
    status = await asyncio.to_thread(post, urllib.request.Request(url, body, headers, method="POST"))
    return {"status": status}


def signature(moment, body):
    secret = os.environ["CODESDK_WEBHOOK_SECRET"].encode()
    return hmac.new(secret, f"{moment}.".encode() + body, hashlib.sha256).hexdigest()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """What was signed for one address is not sent to another."""

    def redirect_request(self, *args):
        return None


def post(request):
    """Return the status of an answer. Anything but 2xx raises, and so the job is tried again."""
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=LIMIT_S) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        refused.close()
        raise ConnectionError(f"the receiver answered with {refused.code}") from None


def register(registry):
    chosen = os.environ.get("CODESDK_WEBHOOK_EVENTS", ",".join(EVENTS))
    for name in filter(None, (name.strip() for name in chosen.split(","))):
        registry.on(name, happened)
    backoff_ms = int(os.environ.get("CODESDK_WEBHOOK_BACKOFF_MS", "1000"))
    registry.job("webhook.send", send, timeout_ms=(LIMIT_S + 5) * 1000, attempts=10, backoff_ms=backoff_ms)
