"""The small things that every event goes through: encoding, canonical JSON, redaction."""

import msgspec
import rfc8785

from bench.measure import micros_per_call
from bench.rig import FRAME_BYTES
from bench.table import Report, ratio_at_most
from codesdk.contract.canonical import canonical
from codesdk.contract.codec import decode, encode
from codesdk.contract.events import OutputDelta, OutputDeltaEvent, RuntimeInfo, Trace
from codesdk.redaction.redactor import Redactor

_SECRETS = ["a-secret-of-the-bench", "another secret"]


async def run(report: Report, quick: bool) -> None:
    calls = 200 if quick else 10_000
    event = _event()
    frame = encode(event)
    plain = msgspec.json.decode(frame)
    report.progress("microseconds")
    report.line(
        "encode an event", micros_per_call(lambda: encode(event), calls), "µs", note=f"{len(frame)} bytes"
    )
    report.line("decode an event", micros_per_call(lambda: decode(frame), calls), "µs")
    other = micros_per_call(lambda: rfc8785.dumps(plain), calls)
    report.line(
        "canonical JSON of an event",
        micros_per_call(lambda: canonical(plain), calls),
        "µs",
        against=("rfc8785", other),
        goal=ratio_at_most(0.3),
    )
    redactor = Redactor(_SECRETS)
    stream = redactor.stream()
    delta = "some words of a model "
    text = "A page of text without anything secret. " * 100
    report.line("redact a delta", micros_per_call(lambda: stream.feed(delta), calls), "µs")
    report.line("redact an event's JSON", micros_per_call(lambda: redactor.value(plain), calls), "µs")
    report.line("redact 4 KB of text", micros_per_call(lambda: redactor.text(text), calls // 10), "µs")


def _event() -> OutputDeltaEvent:
    task = "task_01m7gc6tgfb4sxrtm72nb6vpwj"
    event = OutputDeltaEvent(
        schema_version=1,
        seq=1234,
        time="2026-01-01T00:00:00.000Z",
        trace=Trace(session_id="ses_01m7gc6tgdb2qzghhhe86gdzdw", task_id=task),
        runtime=RuntimeInfo(name="scripted", raw={"turn": 0, "kind": "burst", "step": 0}),
        payload=OutputDelta(kind="text_delta", block_id=f"{task}.0.0", message_id=f"{task}.0", delta=""),
    )
    missing = FRAME_BYTES - len(encode(event))
    payload = msgspec.structs.replace(event.payload, delta=("some words " * 40)[:missing])
    return msgspec.structs.replace(event, payload=payload)
