"""A runtime that talks without end, in whatever it says: its task ends with an error that names the limit."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.engine.rig import Rig, rig
from tests.engine.steps import steps_of
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import (
    OutputCompleted,
    OutputDelta,
    RuntimeNotice,
    TaskCompleted,
    TaskFailed,
    ToolCallDenied,
    ToolCallRequested,
    UsageReported,
)
from codesdk.contract.messages import Text
from codesdk.contract.runtime import Draft, Failed, Finished, Identified, ToolDropped, ToolEnded
from codesdk.contract.settings import Limits
from codesdk.engine.tasks import drafts
from codesdk.engine.tasks.validation import is_deep
from codesdk.testing.fakes import call, delta

CHARS = 100_000
LIMITS = Limits(max_output_chars=CHARS)


def padded(number: int) -> Draft:
    payload = OutputDelta(kind="text_delta", block_id="b", message_id="m", delta="x")
    return Draft(payload, {"number": number, "padding": "p" * 100_000})


def barely_padded(number: int) -> Draft:
    return Draft(padded(number).payload, {"number": number, "padding": "p" * 3_000})


def noticed(number: int) -> Draft:
    return Draft(RuntimeNotice(kind="warning", message=f"{number} {'w' * 1_000}", details={}))


def completed(number: int) -> Draft:
    return Draft(
        OutputCompleted(message_id=f"m{number}", content=[Text(text="t" * 5_000)], stop_reason="end_turn")
    )


def used(number: int) -> Draft:
    counts = UsageReported(
        model="m",
        input=1,
        output=1,
        cache_read=0,
        cache_write=0,
        reasoning=0,
        cost_usd=None,
        source="runtime",
    )
    return Draft(counts, {"number": number, "padding": "p" * 2_000})


def unreadable(number: int) -> Any:
    return ToolDropped(runtime_tool_call_id=f"never{number}", reason="r" * 1_000)


def empty(number: int) -> Draft:
    return Draft(OutputDelta(kind="text_delta", block_id=f"b{number}", message_id="m", delta=""))


def identified(number: int) -> Any:
    return Identified(model=f"{number}{'m' * 900}", runtime_session_id="s" * 900)


def nameless(number: int) -> Any:
    return Identified(model=f"{number}{'m' * 100_000}")


def calls(number: int) -> Any:
    return call("fake.read", {"path": "p" * 5_000}, call_id=f"c{number}")


def failure(r: Rig, session: Any) -> ErrorInfo:
    r.play.emit(Finished(stop_reason="end_turn"))  # of a runtime that ends when it is told to
    r.settle()
    return r.one(session, TaskFailed).error


@pytest.mark.parametrize(
    "say",
    [padded, barely_padded, noticed, completed, used, unreadable, empty, identified, nameless],
)
def test_whatever_a_runtime_says_without_end_counts(say: Callable[[int], Any]):
    with rig(limits=LIMITS) as r:
        session = r.open()
        r.start(session)
        r.emit(*(say(number) for number in range(5_000)))
        error = failure(r, session)
        assert (error.code, error.retryable) == ("RUNTIME_PROTOCOL", False)
        assert f"said more than {CHARS} characters (limits.max_output_chars)" in error.message
        assert stored_bytes(r, session) < 4 * 16 * CHARS


def stored_bytes(r: Rig, session: Any) -> int:
    """Return what a session takes: its frames, and the artifacts that they name."""
    total = 0
    for event in r.events(session.id):
        ref = event.runtime.raw_ref if event.runtime is not None else None
        total += len(repr(event.payload)) + (0 if ref is None else ref.size_bytes)
    return total


def test_blocks_that_are_never_finished_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(drafts, "MAX_OPEN_BLOCKS", 50)
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(*(delta("x", "m", f"b{number}") for number in range(100)))
        assert "50 unfinished blocks" in failure(r, session).message


def test_arguments_of_calls_that_are_never_made_are_counted():
    with rig(limits=Limits(max_calls=20)) as r:
        session = r.open()
        r.start(session)
        r.emit(
            *(
                Draft(
                    OutputDelta(
                        kind="json_delta", block_id="b", message_id="m", delta="{", tool_call_id=f"c{number}"
                    )
                )
                for number in range(100)
            )
        )
        assert "calls that it never made" in failure(r, session).message


@pytest.mark.parametrize("name", ["block_id", "message_id", "tool_call_id", "language"])
def test_an_id_that_is_longer_than_any_is_refused(name: str):
    given = {"block_id": "b", "message_id": "m"} | {name: "i" * 100_000}
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(Draft(OutputDelta(kind="text_delta", delta="x", **given)))
        r.emit(Finished(stop_reason="end_turn"))
        (notice,) = r.all(session, RuntimeNotice)
        assert "an id may have 1,000 characters" in notice.message
        assert r.all(session, OutputDelta) == []


def test_an_error_quotes_no_more_than_a_part_of_what_was_said():
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(Draft(OutputDelta(kind="k" * 100_000, block_id="b", message_id="m", delta="x")))  # pyright: ignore[reportArgumentType]
        (notice,) = r.all(session, RuntimeNotice)
        assert len(notice.message) < 1_000


def test_a_large_payload_is_refused_for_its_size_before_anybody_looks_how_deep_it_is(
    monkeypatch: pytest.MonkeyPatch,
):
    looked: list[int] = []

    def look(data: bytes, most: int = 10_000) -> bool:
        looked.append(len(data))
        assert len(data) <= most or most == drafts._INLINE_BYTES
        return False

    monkeypatch.setattr(drafts, "is_deep", look)
    with rig(limits=Limits(max_event_bytes=10_000)) as r:
        session = r.open()
        r.start(session)
        r.emit(
            Draft(RuntimeNotice(kind="k", message="m", details={"l": [[]] * 20_000}), {"l": [[]] * 20_000})
        )
        (notice,) = r.all(session, RuntimeNotice)
        assert "an event may have 10,000 bytes" in notice.message
    assert looked


def test_how_deep_a_document_is_takes_as_many_steps_for_a_large_one_as_for_a_small_one():
    small, large = (b'{"l":[' + b",".join([b"[[]]"] * count) + b"]}" for count in (500, 50_000))
    assert not is_deep(small)
    assert steps_of(lambda: is_deep(large)) <= steps_of(lambda: is_deep(small))


def test_how_deep_a_document_is_takes_as_many_steps_for_a_deep_one_as_for_a_flat_one():
    flat, deep = b"[" + b"[]," * 10_000 + b"[]]", (b"[" * 99 + b"]" * 99) * 100
    assert (is_deep(flat), is_deep(deep)) == (False, False)
    assert steps_of(lambda: is_deep(deep)) <= steps_of(lambda: is_deep(flat))


def test_how_deep_a_document_is_is_found_in_one_pass_also_if_a_string_in_it_has_no_end():
    with hang_guard():
        assert is_deep(b"[" * 101 + b'"' + b'\\"' * 500_000)


@pytest.mark.parametrize(
    ("document", "deep"),
    [
        (b"[" * 100 + b" " * 100 + b"]" * 100, False),
        (b"[" * 101 + b"]" * 101, True),
        (b'{"a":' * 100 + b"[]" + b"}" * 100, True),
        (b"[" + b'{"a":[]},' * 200 + b"1]", False),
        (b'["' + b"[" * 300 + b'"]', False),
        (b'["' + b'\\"[' * 300 + b'\\\\"]', False),
        (b'["\\\\"' + b"[" * 300 + b"]", True),
        (b"[" * 300 + b"]" * 300, True),
        (b"[]" * 150 + b"[", True),
        (b"][" * 150, True),
        (b"[]" * 150, False),
    ],
)
def test_brackets_count_as_deep_beyond_a_hundred_levels_or_if_they_do_not_match(document: bytes, deep: bool):
    assert is_deep(document) is deep


def test_calls_that_are_announced_and_never_made_are_counted():
    with rig(limits=Limits(max_calls=20)) as r:
        session = r.open()
        r.start(session)
        r.emit(*(calls(number) for number in range(100)))
        assert "limits.max_calls" in failure(r, session).message
        assert len(r.all(session, ToolCallRequested)) < 30


def test_a_document_that_is_too_large_for_an_event_is_not_looked_at():
    deep = b"[" * 500 + b"]" * 500
    assert (is_deep(deep), is_deep(deep, 1_000), is_deep(deep, 999)) == (True, True, False)


def dropped(number: int) -> list[Any]:
    return [call("fake.read", call_id=f"c{number}", origin="native"), refusal(number, ToolDropped)]


def refused(number: int) -> list[Any]:
    return [call("fake.read", call_id=f"c{number}", origin="native"), refusal(number, ToolEnded)]


def refusal(number: int, kind: type[Any], size: int = 3_000) -> Any:
    words = f"{number} {'r' * size}"
    if kind is ToolDropped:
        return ToolDropped(runtime_tool_call_id=f"c{number}", reason=words)
    return ToolEnded(runtime_tool_call_id=f"c{number}", result=words, refused=True)


def ran(number: int) -> list[Any]:
    ended = ToolEnded(runtime_tool_call_id=f"c{number}", result="r" * 5_000, watched=True)
    return [call("fake.read", call_id=f"c{number}", origin="native"), ended]


def test_results_of_calls_that_a_runtime_ran_itself_count():
    with rig(limits=LIMITS) as r:
        session = r.open()
        r.start(session)
        r.emit(*(item for number in range(1_000) for item in ran(number)))
        assert failure(r, session).code == "RUNTIME_PROTOCOL"


@pytest.mark.parametrize("say", [dropped, refused])
def test_why_calls_are_not_made_counts(say: Callable[[int], list[Any]]):
    with rig(limits=LIMITS) as r:
        session = r.open()
        r.start(session)
        r.emit(*(item for number in range(1_000) for item in say(number)))
        assert failure(r, session).code == "RUNTIME_PROTOCOL"
        kept = [payload for payload in r.all(session, ToolCallDenied) if "rrr" in payload.reason]
        assert 0 < len(kept) < 16 * CHARS / 3_000


@pytest.mark.parametrize("kind", [ToolDropped, ToolEnded])
def test_why_a_call_is_not_made_is_recorded_up_to_a_length_and_without_half_a_secret(kind: type[Any]):
    secret = "correct-horse-battery-staple"
    with rig() as r:
        session = r.open(secrets=(secret,))
        r.start(session)
        r.emit(call("fake.read", call_id="c1", origin="native"))
        words = msgspec.structs.replace(
            refusal(1, kind, 1_975),
            **{"reason" if kind is ToolDropped else "result": "r" * 1_985 + secret * 9},
        )
        r.emit(words, Finished(stop_reason="end_turn"))
        denied = r.one(session, ToolCallDenied)
        assert (len(denied.reason), denied.reason[-1]) == (2_000, "…")
        assert "correct" not in denied.reason


@pytest.mark.parametrize(
    "error",
    [
        ErrorInfo(code="MODEL_ERROR", message="e" * 20_000, retryable=True),
        ErrorInfo(code="MODEL_ERROR", message="e", retryable=True, details={"d": "d" * 20_000}),
        ErrorInfo(code="MODEL_ERROR", message="e", retryable=True, raw=[[]] * 20_000),
        ErrorInfo(
            code="MODEL_ERROR", message="e", retryable=True, raw=msgspec.json.decode(b"[" * 300 + b"]" * 300)
        ),
    ],
)
def test_an_error_that_no_event_can_hold_ends_its_task_all_the_same(error: ErrorInfo):
    with rig(limits=Limits(max_event_bytes=10_000)) as r:
        session = r.open()
        r.start(session)
        r.emit(Failed(error=error))
        said = r.one(session, TaskFailed).error
        assert (said.code, said.retryable, said.runtime) == ("MODEL_ERROR", True, "fake")
        assert "too large or nested too deep to be recorded" in said.message
        assert (said.details, said.raw) == (None, None)


def test_a_stop_reason_that_is_longer_than_any_is_left_out():
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(Finished(stop_reason="r" * 100_000))
        assert r.one(session, TaskCompleted).stop_reason == "a reason that is too long to be recorded"


@pytest.mark.parametrize("name", ["model", "runtime_session_id"])
def test_an_identity_that_is_longer_than_any_is_refused_and_on_no_event(name: str):
    with rig() as r:
        session = r.open()
        r.start(session)
        r.emit(Identified(**{name: "i" * 100_000}), delta("x"), Finished(stop_reason="end_turn"))
        (notice,) = r.all(session, RuntimeNotice)
        assert "an id may have 1,000 characters" in notice.message
        assert all(len(msgspec.json.encode(event.runtime)) < 1_000 for event in r.events(session.id)[4:])
