"""What people, applications and extensions put beside a transcript: checked, bounded, and one for each id of an author.

The transcript itself only grows, and is what models are given. A supplement is neither: its author may replace it, and
nothing that compiles an input looks at it.
"""

import re

import msgspec

from codesdk.contract.actions import SupplementTranscript
from codesdk.contract.errors import Conflict, InvalidRequest
from codesdk.contract.events import TranscriptSupplemented
from codesdk.contract.records import KeyRow, Supplement
from codesdk.contract.tools import Actor
from codesdk.engine.log.archive import supplement_of
from codesdk.engine.log.state import supplement_key
from codesdk.engine.sessions.session import LiveSession
from codesdk.engine.tasks.validation import check_settings

MAX_BYTES = 64 * 1024
"""How large one may be, as JSON."""
MAX_SUPPLEMENTS = 1_000
"""How many a session may have. The state names each of them."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


async def supplement(
    session: LiveSession, action: SupplementTranscript, by: Actor, key: KeyRow | None = None
) -> Supplement:
    """Put something beside a session's transcript, also while a task runs or once the session is closed."""
    redactor = session.scope.redactor
    if not _ID.fullmatch(action.supplement_id) or redactor.text(action.supplement_id) != action.supplement_id:
        raise InvalidRequest("The id of a supplement is 1 to 64 letters, digits or `. _ -`, and no secret.")
    if action.text is None and action.data is None:
        raise InvalidRequest("A supplement has a text or data. Give one of them.")
    if action.task_id is not None:
        await session.task_row(action.task_id)
    content = {"text": action.text, "data": action.data}
    plain = redactor.value(msgspec.json.decode(check_settings(content, "A supplement", MAX_BYTES)))
    known = session.state.supplements
    if supplement_key(by, action.supplement_id) not in known and len(known) >= MAX_SUPPLEMENTS:
        raise Conflict(
            f"Session {session.session_id} has {len(known):,} supplements, which is the limit. Replace one of them."
        )
    event = session.recorder.journal.write(
        TranscriptSupplemented(supplement_id=action.supplement_id, by=by, task_id=action.task_id, **plain),
        in_task=False,
    )
    found = supplement_of(event)
    assert found is not None, "it was just written"
    await session.recorder.commit(key, found)
    return found
