"""The arguments of a call, while they stream, carry the id that the call then has."""

from tests.engine.rig import Rig, rig

from codesdk.contract import events as ev
from codesdk.contract.runtime import Draft
from codesdk.testing.fakes import call, done


def piece(delta: str, runtime_id: str | None = "toolu_1", index: int = 0) -> Draft:
    return Draft(
        ev.OutputDelta(
            kind="json_delta", block_id=f"m1.{index}", message_id="m1", delta=delta, tool_call_id=runtime_id
        )
    )


def ids(r: Rig, session: object) -> list[str | None]:
    return [payload.tool_call_id for payload in r.all(session, ev.OutputDelta)]  # type: ignore[arg-type]


def test_each_piece_names_the_call_that_it_becomes():
    with rig() as r:
        session = r.open("yolo")
        r.start(session)
        r.emit(piece('{"a"'), piece(": 1}"), piece("{}", "toolu_2", 1))
        r.emit(call("fake.write", {"a": 1}, "toolu_1"), call("fake.read", {}, "toolu_2"), done())
        first, second = r.all(session, ev.ToolCallRequested)
        assert first.tool_call_id != second.tool_call_id
        assert ids(r, session) == [first.tool_call_id, first.tool_call_id, second.tool_call_id]
        assert (first.runtime_tool_call_id, second.runtime_tool_call_id) == ("toolu_1", "toolu_2")


def test_a_piece_that_comes_after_the_call_was_made_names_it_too():
    with rig() as r:
        session = r.open("yolo")
        r.start(session)
        r.emit(call("fake.write", {"a": 1}, "toolu_1"), piece("{}"), done())
        assert ids(r, session) == [r.one(session, ev.ToolCallRequested).tool_call_id]


def test_a_call_that_is_announced_with_another_input_later_has_an_id_of_its_own():
    with rig() as r:
        session = r.open("yolo")
        r.start(session)
        r.emit(
            piece("{}"), call("fake.write", {"a": 1}, "toolu_1"), call("fake.write", {}, "toolu_1"), done()
        )
        found = [payload.tool_call_id for payload in r.all(session, ev.ToolCallRequested)]
        assert len(found) == len(set(found))
        assert ids(r, session) == found[:1]


def test_a_piece_without_a_call_names_none_and_a_secret_in_the_runtimes_id_is_not_shown():
    secret = "hunter2-and-then-some"
    with rig(secrets=[secret]) as r:
        session = r.open()
        r.start(session)
        r.emit(piece("{}", None), piece("{}", secret, 1), done())
        first, second = ids(r, session)
        assert first is None
        assert second is not None
        assert second.startswith("call_")
