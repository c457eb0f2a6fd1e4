"""Events pass the choke point: any text in any of them is redacted, what names things is not, and one encode does."""

import types
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, strategies as st

from codesdk.contract.codec import decode, encode
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import (
    EVENT_OF,
    EVENT_TYPES,
    Event,
    OutputDelta,
    RuntimeInfo,
    ToolCallStarted,
    Trace,
)
from codesdk.contract.figures import Strain
from codesdk.contract.tools import SandboxSummary
from codesdk.engine.log import choke_point
from codesdk.engine.log.choke_point import ChokePoint
from codesdk.redaction import Redactor

CANARY = "canary-7f3a9c"
REFUSED = {"credential_namespace", "project_id", "task_id"}


def filled(kind: Any, name: str = "") -> Any:
    """Return a value of a type with the canary in every text."""
    origin = get_origin(kind)
    if name in REFUSED:
        return "task_plain"
    if kind in (Any, str):
        return f"x {CANARY} y" if kind is str else {CANARY: [CANARY, {"deep": f"<{CANARY}>"}]}
    if origin in (Union, types.UnionType):
        return filled(next(one for one in get_args(kind) if one is not type(None)))
    if origin is Literal:
        return get_args(kind)[0]
    if origin is list:
        return [filled(get_args(kind)[0])] * 2
    if origin is dict:
        return {CANARY: filled(Any)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{field.name: filled(field.type, field.name) for field in msgspec.structs.fields(kind)})
    return kind(1)


def event(payload: Any, seq: int = 1, runtime: RuntimeInfo | None = None) -> Any:
    return EVENT_OF[type(payload)](
        schema_version=1,
        seq=seq,
        time="2026-01-01T00:00:00.000Z",
        trace=Trace(session_id="ses_01m7gc6tgdb2qzghhhe86gdzdw"),
        runtime=runtime or RuntimeInfo(name="fake"),
        payload=payload,
    )


def delta(text: str, **fields: Any) -> OutputDelta:
    return OutputDelta(kind="text_delta", block_id="b1", message_id="m1", delta=text, **fields)


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_a_secret_in_any_field_of_any_event_is_taken_out_and_counted(name: str):
    strain = Strain()
    dirty = event(filled(EVENT_TYPES[name]), runtime=filled(RuntimeInfo))
    clean, frame = ChokePoint(Redactor([CANARY]), strain).encode(dirty)
    assert CANARY.encode() not in frame
    assert decode(frame) == clean
    assert type(clean.payload) is EVENT_TYPES[name]
    assert strain.late_redactions == 1
    again = ChokePoint(Redactor([CANARY]), strain).encode(clean)
    assert again == (clean, frame)
    assert strain.late_redactions == 1


secrets = st.text(st.characters(codec="utf-8"), min_size=4, max_size=20)


@given(secrets, st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_secret_is_taken_out_of_text_in_whatever_spelling_it_comes(secret: str, before: str):
    try:
        redactor = Redactor([secret])
    except InvalidRequest:
        return
    word = secret.strip()
    escaped = "".join(f"\\u{ord(one):04x}" if ord(one) < 0x10000 else one for one in word)
    if '"' not in word and "\\" not in word:
        escaped += word.replace("/", "\\/")
    for text in (before + word, msgspec.json.encode(before + word).decode(), escaped):
        cleaned, frame = ChokePoint(redactor).encode(event(delta(text)))
        clean: Any = cleaned
        assert "[redacted]" in clean.payload.delta
        assert (
            not redactor.suspects(clean.payload.delta)
            or redactor.text(clean.payload.delta) == clean.payload.delta
        )
        assert encode(clean) == frame


def test_words_of_the_contract_numbers_ids_and_hashes_stay_whatever_the_secrets_are():
    call, digest = "call_01m7gc6tgfb4sxrtm72nb6vpwj", "sha256:" + "ab12" * 16
    payload = ToolCallStarted(
        tool_call_id=call,
        attempt=1,
        input_hash=digest,
        runtime_tool_call_id="mine-ab12",
        name="tool",
        execution_env="codesdk_host",
        sandbox=SandboxSummary(network=False),
    )
    redactor = Redactor(["ab12", "codesdk_host", "01m7gc6", "2026", "tool.call.started"])
    clean, frame = ChokePoint(redactor).encode(event(payload))
    assert clean == event(msgspec.structs.replace(payload, runtime_tool_call_id="mine-[redacted]"))
    assert decode(frame) == clean


def test_what_has_not_the_form_of_an_id_is_text_also_where_an_id_belongs():
    block = {"type": "artifact_ref", "artifact_id": CANARY, "content_hash": f"sha256:{CANARY}"}
    payload = msgspec.convert(
        {"message_id": "m", "content": [block]}, type=EVENT_TYPES["model.output.completed"]
    )
    clean, frame = ChokePoint(Redactor([CANARY])).encode(event(payload))
    assert CANARY.encode() not in frame
    shown: Any = clean.payload
    assert shown.content[0].artifact_id == "[redacted]"


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("session.created", "credential_namespace"),
        ("session.created", "project_id"),
        ("task.queued", "task_id"),
    ],
)
def test_a_name_that_others_go_by_is_refused_if_it_holds_a_secret(name: str, field: str):
    plain = filled(EVENT_TYPES[name])
    dirty = event(msgspec.structs.replace(plain, **{field: f"task_{CANARY}"}))
    with pytest.raises(InvalidRequest, match="contains a secret") as refused:
        ChokePoint(Redactor([CANARY])).encode(dirty)
    assert CANARY not in refused.value.message


def test_each_event_is_encoded_once_and_once_more_if_there_was_a_secret_in_it(
    monkeypatch: pytest.MonkeyPatch,
):
    encoded: list[Event] = []

    def counted(one: Event) -> bytes:
        encoded.append(one)
        return encode(one)

    monkeypatch.setattr(choke_point, "encode", counted)
    choke, info = ChokePoint(Redactor([CANARY])), RuntimeInfo(name="fake")
    for seq in range(1, 6):
        choke.encode(event(delta("plain, see https://example.org"), seq, info))
    assert len(encoded) == 5
    choke.encode(event(delta(CANARY), 6, info))
    assert len(encoded) == 7


def test_a_delta_like_the_one_before_is_looked_at_all_the_same():
    choke, info = ChokePoint(Redactor([CANARY])), RuntimeInfo(name="fake")
    choke.encode(event(delta("plain"), 1, info))
    odd = [
        event(delta(f"is {CANARY}"), 2, info),
        event(delta("plain", tool_call_id=CANARY), 3, info),
        event(delta("plain", language=CANARY), 4, info),
        event(msgspec.structs.replace(delta("plain"), block_id=CANARY), 5, info),
        event(msgspec.structs.replace(delta("plain"), message_id=CANARY), 6, info),
        event(delta("plain"), 7, RuntimeInfo(name="fake", raw={"a": CANARY})),
        event(delta("plain"), 8, RuntimeInfo(name="fake", model=CANARY)),
    ]
    for dirty in odd * 2:
        assert CANARY.encode() not in choke.encode(dirty)[1]


def test_a_secret_that_becomes_known_is_also_looked_for_in_what_was_looked_at_before():
    choke, info = ChokePoint(), RuntimeInfo(name="fake", model=CANARY)
    assert CANARY.encode() in choke.encode(event(delta("plain"), 1, info))[1]
    choke.redactor = Redactor([CANARY])
    assert CANARY.encode() not in choke.encode(event(delta("plain"), 2, info))[1]
