"""What a person types → the session, call or artifact that is meant, wherever it is stored."""

from collections.abc import AsyncGenerator, Iterable

from codesdk.cli.app import Setup
from codesdk.cli.target.place import open_reader
from codesdk.contract.errors import InvalidRequest, NotFound
from codesdk.contract.records import ApprovalRow, ArtifactRow, SessionRow
from codesdk.contract.service import SessionReader
from codesdk.engine import changed_calls, unknown_session

LAST = "last"
MIN_CHARS = 4
_PAGE = 1000


async def find(setup: Setup, given: str) -> SessionRow:
    """Return the session that is meant, of those that the options name."""
    async with open_reader(setup) as archive:
        return await find_session(archive, given)


async def find_session(archive: SessionReader, given: str) -> SessionRow:
    """Return the session with this id, or the only one whose id begins or ends with it."""
    if given == LAST:
        newest = await archive.sessions(limit=1)
        if not newest:
            raise NotFound("There is no session yet. `codesdk run` makes one.")
        return newest[0]
    try:
        return await archive.session(given)
    except NotFound:
        ids = [row.session_id async for row in all_sessions(archive)]
    found = _only(given, ids, "session")
    if found is None:
        raise unknown_session(given)
    return await archive.session(found)


async def find_call(archive: SessionReader, session_id: str, given: str) -> str:
    """Return the id of a waiting call, or of a question about a budget.

    One that is not waiting is returned as given: whoever runs the session says what is wrong with it.
    """
    rows = await archive.approvals(session_id=session_id)
    ids = [row.tool_call_id or row.approval_id for row in rows]
    return _only(given, ids, "waiting call") or given


async def find_question(archive: SessionReader, session_id: str, given: str) -> str:
    """Return the id of the approval that is a waiting question, named by it or by the call that asks.

    One that is not waiting is returned as given: whoever runs the session says what is wrong with it.
    """
    rows = [row for row in await archive.approvals(session_id=session_id) if row.question is not None]
    named = {name: row.approval_id for row in rows for name in (row.approval_id, row.tool_call_id) if name}
    found = _only(given, named, "waiting question")
    return given if found is None else named[found]


async def find_changed_call(archive: SessionReader, session_id: str, given: str) -> str:
    """Return the id of a call that changed files. Any other is returned as given, for the undo to refuse."""
    ids = {call.tool_call_id for call in await changed_calls(archive, session_id)}
    return _only(given, ids, "call that changed files") or given


async def find_artifact(archive: SessionReader, session_id: str, given: str) -> ArtifactRow:
    """Return one of a session's artifacts."""
    rows = {row.ref.artifact_id: row async for row in all_artifacts(archive, session_id)}
    found = _only(given, rows, "artifact")
    if found is None:
        raise NotFound(
            f"Session {session_id} has no artifact {given}. `codesdk artifacts` lists those it has."
        )
    return rows[found]


async def all_sessions(archive: SessionReader) -> AsyncGenerator[SessionRow]:
    """Yield all sessions, newest first."""
    after: str | None = None
    while page := await archive.sessions(after=after, limit=_PAGE):
        for row in page:
            yield row
        after = page[-1].session_id


async def all_artifacts(archive: SessionReader, session_id: str) -> AsyncGenerator[ArtifactRow]:
    """Yield a session's artifacts in the order of their ids."""
    after: str | None = None
    while page := await archive.artifacts(session_id, after=after, limit=_PAGE):
        for row in page:
            yield row
        after = page[-1].ref.artifact_id


async def waiting(archive: SessionReader, session_id: str | None = None) -> list[ApprovalRow]:
    """Return what waits for an answer, in a session or in all."""
    rows = await archive.approvals(session_id=session_id)
    return [row for row in rows if row.state in ("waiting", "carried")]


def short(identifier: str) -> str:
    """Return the end of an id: short to type, and practically unique."""
    # Not the beginning: that is the time, which sessions made together share.
    return identifier[-8:]


def _only(given: str, ids: Iterable[str], what: str) -> str | None:
    """Return the id that is meant, or None. Raise if there are several."""
    ids = list(ids)
    if given in ids:
        return given
    if len(given) < MIN_CHARS:
        raise InvalidRequest(
            f'"{given}" is too short to name a {what}: give at least {MIN_CHARS} characters.'
        )
    found = [name for name in ids if name.startswith(given) or name.endswith(given)]
    if len(found) > 1:
        some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise InvalidRequest(f'"{given}" could be {len(found)} {what}s: {some}. Give more characters.')
    return found[0] if found else None
