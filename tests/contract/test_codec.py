"""The codec: what is written comes back the same, and what a newer or older writer wrote can still be read."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.contract.examples import EVENTS
from tests.contract.page import GOLDEN, golden_lines
from tests.contract.strategies import JSON, events, required_fields, without

from codesdk.contract import codec
from codesdk.contract.codec import decode, encode, upcast
from codesdk.contract.events import EVENT_TYPES, SCHEMA_VERSION, ToolCallRequested, UnknownEvent

OLD_SHAPE = Path(__file__).parent / "fixtures" / "event_before_version_1.json"
TYPES = list(EVENT_TYPES)


def plain(name: str) -> dict[str, Any]:
    return json.loads(encode(EVENTS[name]))


def frame(value: Any) -> bytes:
    return msgspec.json.encode(value)


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_any_event_of_each_type_comes_back_as_it_was_written(name):
    @given(events(name))
    def check(event):
        stored = encode(event)
        assert decode(stored) == event
        assert encode(decode(stored)) == stored
        assert b"\n" not in stored

    check()


def test_the_wire_form_of_every_type_is_the_golden_one():
    assert golden_lines() == GOLDEN.read_text(), "if meant: .venv/bin/python -m tests.contract.page"


def test_the_golden_lines_still_say_what_they_said():
    assert [decode(line.encode()) for line in GOLDEN.read_text().splitlines()] == [EVENTS[n] for n in TYPES]


def test_a_type_that_nobody_knows_passes_through_unchanged():
    event = plain("task.completed") | {"type": "task.teleported", "payload": {"to": ["Mars", None, 1.5]}}
    stranger = decode(frame(event))
    assert (type(stranger), stranger.type) == (UnknownEvent, "task.teleported")
    assert stranger.payload == {"to": ["Mars", None, 1.5]}
    assert encode(decode(frame(event))) == frame(event)


@given(JSON)
def test_an_unknown_type_may_carry_any_json(payload):
    event = plain("task.completed") | {"type": "task.teleported", "payload": payload}
    assert encode(decode(frame(event))) == frame(event)


@pytest.mark.parametrize("name", TYPES)
def test_an_event_of_a_newer_schema_version_passes_through_unchanged(name):
    event = plain(name) | {"schema_version": SCHEMA_VERSION + 1, "payload": {"unlike": "anything known"}}
    newer = decode(frame(event))
    assert (type(newer), newer.type, newer.payload) == (UnknownEvent, name, {"unlike": "anything known"})
    assert encode(decode(frame(event))) == frame(event)


@pytest.mark.parametrize("name", TYPES)
def test_fields_that_nobody_knows_are_passed_over_at_every_level(name):
    event = plain(name)
    for part in (event, event["trace"], event["runtime"], event["payload"]):
        part["added_later"] = {"any": "thing"}
    assert decode(frame(event)) == EVENTS[name]


@pytest.mark.parametrize("name", TYPES)
def test_an_event_without_a_required_field_is_refused(name):
    event = plain(name)
    paths = [(field,) for field in event] + [("trace", "session_id"), ("runtime", "name")]
    paths += [("payload", field) for field in required_fields(EVENT_TYPES[name])]
    for path in paths:
        with pytest.raises(ValueError, match="missing required field"):
            decode(frame(without(event, *path)))


@pytest.mark.parametrize(
    "garbage",
    [b"", b" ", b"{", b"[]", b"null", b"1", b'"event"', b"\xff\xfe", b"{}", b"{'seq': 1}", b"\x00" * 64],
)
def test_garbage_is_a_value_error(garbage):
    with pytest.raises(ValueError, match=r"."):
        decode(garbage)


@given(st.sampled_from(TYPES), st.data())
def test_a_torn_frame_is_a_value_error(name, data):
    stored = encode(EVENTS[name])
    length = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(ValueError, match=r"."):
        decode(stored[:length])


@given(st.sampled_from(TYPES), st.data())
def test_a_frame_with_a_wrong_byte_is_an_event_or_a_value_error(name, data):
    stored = bytearray(encode(EVENTS[name]))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(stored))
    except ValueError:
        pass


def test_two_frames_in_one_line_are_refused():
    stored = encode(EVENTS["task.started"])
    with pytest.raises(ValueError, match="trailing"):
        decode(stored + stored)


@pytest.mark.parametrize("version", [SCHEMA_VERSION, SCHEMA_VERSION - 1])
@pytest.mark.parametrize("name", TYPES)
def test_a_payload_that_does_not_fit_its_type_is_damage(name, version, monkeypatch):
    monkeypatch.setitem(codec.UPCASTERS, SCHEMA_VERSION - 1, dict)
    for payload in ({"unlike": "anything known"}, [], "text", 1, None):
        with pytest.raises(ValueError, match="payload"):
            decode(frame(plain(name) | {"schema_version": version, "payload": payload}))


def test_an_unknown_tag_inside_a_payload_is_damage_and_not_an_unknown_event():
    event = plain("model.output.completed")
    event["payload"]["content"][0]["type"] = "hologram"
    with pytest.raises(ValueError, match=r"Invalid value 'hologram' - at `\$\.payload\.content"):
        decode(frame(event))


@pytest.mark.parametrize("name", ["task.completed", "task.teleported"])
def test_an_event_that_is_nested_too_deeply_is_a_value_error(name):
    event = frame(plain("task.completed") | {"type": name, "payload": "DEEP"})
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(event.replace(b'"DEEP"', b'{"added":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))


def test_the_order_of_keys_does_not_matter_to_a_reader():
    for event in EVENTS.values():
        turned = dict(reversed(json.loads(encode(event)).items()))
        assert decode(frame(turned)) == event


def test_an_absent_input_and_a_null_input_are_told_apart():
    absent = ToolCallRequested(tool_call_id="c", attempt=1, input_hash="h", name="n", tool_class="write")
    null = msgspec.structs.replace(absent, input=None)
    assert b"input" not in msgspec.json.encode(absent).replace(b"input_hash", b"")
    assert b'"input":null' in msgspec.json.encode(null)
    for payload in (absent, null):
        event = msgspec.structs.replace(EVENTS["tool.call.requested"], payload=payload)
        assert decode(encode(event)) == event


def name_the_tool_flat(event: dict[str, Any]) -> dict[str, Any]:
    """Bring the rehearsed old shape to version 1."""
    payload = dict(event["payload"])
    tool = payload.pop("tool")
    payload |= {"name": tool["name"], "class": tool["class"], "input_hash": payload.pop("hash")}
    return event | {"payload": payload}


def test_an_event_of_an_older_version_is_read_as_the_latest_one(monkeypatch):
    monkeypatch.setitem(codec.UPCASTERS, 0, name_the_tool_flat)
    event = decode(OLD_SHAPE.read_bytes())
    assert event.schema_version == SCHEMA_VERSION
    assert event.payload == ToolCallRequested(
        tool_call_id="call_01kf0fv6b03wz4tm72eqtkf319",
        attempt=1,
        input_hash="sha256:" + "0" * 64,
        name="workspace.read",
        tool_class="read_only",
        input={"path": "hello.txt"},
    )


def test_an_older_version_without_an_upcaster_is_a_value_error_that_says_so():
    with pytest.raises(ValueError, match="no upcaster from schema version 0 to 1"):
        decode(OLD_SHAPE.read_bytes())


def test_upcasters_run_one_version_at_a_time_and_in_order():
    steps: list[int] = []

    def step(event: dict[str, Any]) -> dict[str, Any]:
        steps.append(event["schema_version"])
        return event | {"payload": [*event["payload"], event["schema_version"]]}

    made = upcast({"schema_version": 1, "payload": []}, {1: step, 2: step, 3: step}, to=4)
    assert steps == [1, 2, 3]
    assert made == {"schema_version": 4, "payload": [1, 2, 3]}


def test_a_gap_between_upcasters_is_named():
    with pytest.raises(ValueError, match="from schema version 2 to 3"):
        upcast({"schema_version": 1}, {1: dict, 3: dict}, to=4)


def test_an_event_of_the_latest_version_needs_no_upcaster():
    event = {"schema_version": 4}
    assert upcast(event, {}, to=4) is event


def test_every_older_version_has_an_upcaster():
    assert sorted(codec.UPCASTERS) == list(range(1, SCHEMA_VERSION))
