"""Answers that hold for a whole session: listed, and taken back."""

from codesdk.contract.errors import NotFound
from codesdk.contract.records import KeyRow
from codesdk.contract.tools import Actor
from codesdk.engine.sessions.session import LiveSession
from codesdk.engine.tasks import lifecycle


async def revoke(session: LiveSession, tool: str, by: Actor, key: KeyRow | None = None) -> None:
    """Ask about a tool again from now on. Calls that were decided before stay as they are."""
    if not any(grant.tool == tool for grant in session.state.grants):
        raise NotFound(f"The tool {tool} is not approved for session {session.session_id}.")
    lifecycle.revoke(session.recorder.journal, tool, by)
    if key is not None:
        session.recorder.add_key(key)
    await session.recorder.settle()
