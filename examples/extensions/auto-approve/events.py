"""Approves changes of files that a session's own setting allows, and no more of them than it says.

    await session.set(values={"auto_approve": {"paths": ["docs/*"], "budget": 10}})

The rule that asks must say `answer_by = ["extension:auto-approve"]`. What was approved is kept in the file that
CODESDK_AUTO_APPROVE_STATE names, so that a restart does not fill the budget up again.
"""

import fnmatch
import json
import os
from pathlib import Path, PurePosixPath

DEFAULT = "~/.local/state/codesdk/auto-approve.json"


async def asked(event, tools):
    session = event.payload["session"]["id"]
    wanted = await tools.get_session_setting(session, "auto_approve")
    if not isinstance(wanted, dict) or not fits(event.payload["data"].get("input"), wanted.get("paths", [])):
        return {"approved": False}
    if not spend(session, event.correlation_id, wanted.get("budget", 0)):
        tools.logger.warning("the budget of %s is used up", session)
        return {"approved": False, "budget": "used up"}
    payload = {"decision": "approve", "reason": "The session's auto_approve allows this path."}
    return {"kind": "action_request", "action_type": "approval.decide", "payload": payload}


def fits(given, patterns):
    """Return whether a call names one path, inside the workspace, that a pattern allows."""
    path = given.get("path") if isinstance(given, dict) else None
    if not isinstance(path, str) or not isinstance(patterns, list):
        return False
    plain = PurePosixPath(path)
    if plain.is_absolute() or ".." in plain.parts:
        return False
    return any(isinstance(one, str) and fnmatch.fnmatchcase(str(plain), one) for one in patterns)


def spend(session, event, budget):
    """Return whether the budget allows one more. The same event again costs nothing."""
    place = Path(os.environ.get("CODESDK_AUTO_APPROVE_STATE", DEFAULT)).expanduser()
    spent = json.loads(place.read_text()) if place.exists() else {}
    events = spent.setdefault(session, [])
    if event in events:
        return True
    if not isinstance(budget, int) or len(events) >= budget:
        return False
    events.append(event)
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_suffix(".new")
    fresh.write_text(json.dumps(spent))
    fresh.replace(place)
    return True


def register(registry):
    registry.on("file_change.approval_requested", asked)
