"""The runtime's last message is kept with the end of its task, like any other message of its own."""

from typing import Any

import pytest
from tests.engine.rig import rig

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.runtime import Failed, Finished
from codesdk.contract.settings import Limits

FRAME = {"type": "result", "subtype": "success", "num_turns": 3}


def failed(raw: Any) -> Failed:
    return Failed(error=ErrorInfo(code="MODEL_ERROR", message="No.", retryable=False), raw=raw)


@pytest.mark.parametrize("ending", [Finished(stop_reason="end_turn", raw=FRAME), failed(FRAME)])
def test_the_terminal_event_has_the_last_frame(ending: Any):
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(ending)
        assert r.last(session).type in ("task.completed", "task.failed")
        assert r.last(session).runtime.raw == FRAME


def test_a_stopped_task_has_it_too():
    with rig() as r:
        session = r.open()
        r.start(session)
        r.get(session.stop())
        r.emit(Finished(stop_reason="stopped", raw=FRAME))
        assert (r.last(session).type, r.last(session).runtime.raw) == ("task.stopped", FRAME)


def test_a_large_one_is_an_artifact_and_none_is_kept_where_nothing_is():
    with rig() as r:
        large, off = r.open(raw_inline_bytes=10), r.open(raw_capture=False)
        for session in (large, off):
            r.start(session)
            r.emit(Finished(stop_reason="end_turn", raw=FRAME))
        runtime = r.last(large).runtime
        assert runtime.raw is None
        assert runtime.raw_ref is not None
        assert r.get(r.sdk.read_artifact(runtime.raw_ref.artifact_id)).startswith(b'{"type":"result"')
        assert (r.last(off).runtime.raw, r.last(off).runtime.raw_ref) == (None, None)


def test_one_that_cannot_be_kept_does_not_keep_the_task_open():
    with rig(limits=Limits(max_artifact_bytes=50_000)) as r:
        session = r.open(raw_inline_bytes=10)
        r.start(session)
        r.emit(Finished(stop_reason="end_turn", raw="x" * 60_000))
        assert r.last(session).type == "task.completed"
        assert r.last(session).runtime.raw == "A message of 60,002 bytes, more than an artifact may have."
