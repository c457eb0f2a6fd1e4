"""Golden files of the wire formats: `requests/<case>/{route,request,ask}.json` and
`answers/<case>/{parts.json,stream.txt,whole.json,seen.json}`, and what providers send in `seen/<case>/`.

With `CODESDK_WRITE_GOLDEN=1` what is compared is written instead: read the difference before it is committed.
"""

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from codesdk.gateway.wires.exchange import Ask, Codec, Part, Seen

HOME = Path(__file__).parent / "golden"
_IS_WRITING = os.environ.get("CODESDK_WRITE_GOLDEN") == "1"


def cases(wire: str, kind: str) -> list[Path]:
    """Return the cases of a format."""
    return sorted(path for path in (HOME / wire / kind).iterdir() if path.is_dir())


def check(path: Path, actual: bytes) -> None:
    """Compare a golden file with what there is now, byte for byte."""
    if _IS_WRITING:
        path.write_bytes(actual)
    assert actual == path.read_bytes()


def check_json(path: Path, actual: Any) -> None:
    """The same for a value, which is kept readable."""
    check(path, (json.dumps(actual, indent=2, ensure_ascii=False) + "\n").encode())


def check_seen(path: Path, actual: Seen) -> None:
    """The same for what was seen."""
    check_json(path, msgspec.to_builtins(actual))


def read_case(codec: Codec, case: Path) -> Seen:
    """Return what is seen in a provider's answer: in a stream, the same wherever it is cut."""
    if (case / "whole.json").exists():
        return read_whole(codec, (case / "whole.json").read_bytes())
    data = (case / "stream.txt").read_bytes()
    seen = read_stream(codec, data)
    assert read_stream(codec, data, list(range(len(data)))) == seen
    return seen


def ask_of(codec: Codec, case: Path) -> Ask:
    """Return the ask of a recorded request."""
    line = json.loads((case / "route.json").read_bytes())
    route = codec.route(line["method"], line["path"], line.get("query", ""))
    assert route is not None
    return codec.parse(route, json.loads((case / "request.json").read_bytes()))


def parts_of(case: Path) -> list[Part]:
    """Return the parts of an answer."""
    return msgspec.json.decode((case / "parts.json").read_bytes(), type=list[Part])


def without_body(ask: Ask) -> Any:
    """Return an ask as JSON. Its body is the request itself."""
    return {name: value for name, value in msgspec.to_builtins(ask).items() if name != "body"}


def streamed(codec: Codec, ask: Ask, answer_id: str, parts: list[Part]) -> bytes:
    """Return the bytes of a whole stream."""
    encoder = codec.encoder(ask, answer_id)
    return encoder.start() + b"".join(encoder.feed(part) for part in parts)


def read_stream(codec: Codec, data: bytes, cuts: list[int] | None = None) -> Seen:
    """Return what the decoder sees in a stream that is cut at these places."""
    decoder = codec.decoder()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    for start, end in pairwise(edges):
        decoder.feed(data[start:end])
    return decoder.result()


def read_whole(codec: Codec, body: bytes) -> Seen:
    """Return what the decoder sees in a whole body."""
    decoder = codec.decoder()
    decoder.whole(body)
    return decoder.result()
