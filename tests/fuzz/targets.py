"""Every parser that meets bytes of others: what runs on them, from which seeds, and which errors are an answer.

An error that is not in `answers` is a failure of the target, and so is an input that does not end. A new parser is a row
of `TARGETS`.
"""

import asyncio
import contextlib
import io
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.fuzz import (
    adapter_rooms,
    agent_rooms,
    http_rooms,
    mcp_rooms,
    minicode_rooms,
    owned,
    pipe_rooms,
    rooms,
    seeds,
    text_rooms,
)
from tests.fuzz.mutations import Shape

from codesdk import prices
from codesdk.bundle import read_bundle
from codesdk.cli.commands.bundle import _explain
from codesdk.client.stream import Parser
from codesdk.contract.codec import decode, encode
from codesdk.contract.errors import CodeSDKError, InvalidRequest, StorageFailure
from codesdk.contract.models import Wire
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.records import Changes, StoredFrame
from codesdk.contract.tools import Subjects, ToolClass
from codesdk.engine.checks.rules_log import Checker
from codesdk.engine.log.fold import fold, session_row
from codesdk.engine.log.state import SessionState
from codesdk.gateway.cassettes.cassette import dump_cassette, parse_cassette
from codesdk.gateway.wires.exchange import Decoder, Seen
from codesdk.gateway.wires.formats import codec_for
from codesdk.gateway.wires.sse import EventReader
from codesdk.policy import load_policy
from codesdk.runtimes.program.framing import LineSplitter
from codesdk.script import dump, load_script, parse_object
from codesdk.store.audit.chain import parse as parse_record, unseal
from codesdk.tools.http_get import BadAnswer
from codesdk.tools.patch.hunks import DoesNotApply, apply_hunks
from codesdk.tools.patch.parsing import BadPatch, parse
from codesdk.tools.registry import ToolError

Run = Callable[[bytes], object]
WIRES: tuple[Wire, ...] = ("anthropic", "responses", "chat", "gemini")
_PATHS: dict[Wire, str] = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/m:generateContent",
}
_MOST_PIECES = 64


class Target(NamedTuple):
    """A parser. `opened` gives what runs on one input; `cost` is how many cheap inputs one of its inputs costs."""

    name: str
    shape: Shape
    seeds: Callable[[], Sequence[bytes]]
    opened: Callable[[], AbstractContextManager[Run]]
    answers: tuple[type[Exception], ...] = ()
    cost: int = 1


def _plain(run: Run) -> Callable[[], AbstractContextManager[Run]]:
    return lambda: contextlib.nullcontext(run)


def _in(room: Callable[[], Any]) -> Callable[[], AbstractContextManager[Run]]:
    """Return a room as a context manager of its own: a loop that also reports what no task was asked about."""

    @contextlib.contextmanager
    def opened() -> Iterator[Run]:
        with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
            unheard: list[dict[str, Any]] = []
            runner.get_loop().set_exception_handler(lambda _, context: unheard.append(context))
            entered = room()
            run = runner.run(entered.__aenter__())
            stack.callback(lambda: runner.run(entered.__aexit__(None, None, None)))

            def once(data: bytes) -> None:
                runner.run(run(data))
                assert not unheard, unheard

            yield once

    return opened


def _on_file(run: Callable[[Path], object], name: str) -> Callable[[], AbstractContextManager[Run]]:
    @contextlib.contextmanager
    def opened() -> Iterator[Run]:
        with tempfile.TemporaryDirectory(prefix="codesdk-fuzz-") as folder:
            path = Path(folder) / name

            def once(data: bytes) -> None:
                path.write_bytes(data)
                run(path)

            yield once

    return opened


# --- answers of models, and streams -----------------------------------------------------------------


def _pieces(data: bytes) -> list[bytes]:
    """Cut a stream where no event ends."""
    size = 7 + len(data) // _MOST_PIECES
    return [data[at : at + size] for at in range(0, len(data), size)]


def _stream(wire: Wire, data: bytes) -> None:
    """The same is seen wherever the stream is cut; a body that is not streamed is read as well."""
    whole, cut = codec_for(wire).decoder(), codec_for(wire).decoder()
    whole.feed(data)
    for piece in _pieces(data):
        cut.feed(piece)
    assert _seen(wire, whole) == _seen(wire, cut)


def _whole(wire: Wire, data: bytes) -> None:
    decoder = codec_for(wire).decoder()
    decoder.whole(data)
    _seen(wire, decoder)


def _owned_stream(wire: Wire, data: bytes) -> None:
    owned.stream(wire, data, _pieces(data))


def _seen(wire: Wire, decoder: Decoder) -> Seen:
    """What was seen can be stored, and priced."""
    seen = decoder.result()
    assert msgspec.json.decode(msgspec.json.encode(seen), type=Seen) == seen
    if seen.tokens is not None:
        price = prices.price_of(wire, seen.model or "", seen.tokens)
        assert price is None or math.isfinite(price)
    return seen


def _events(data: bytes) -> None:
    for size in (1 << 20, 20):
        whole, cut = EventReader(size), EventReader(size)
        assert whole.feed(data) == [event for piece in _pieces(data) for event in cut.feed(piece)]


def _client_stream(data: bytes) -> None:
    whole, cut = Parser(), Parser()
    pieces = [event for piece in _pieces(data) for event in cut.feed(piece)]
    assert [(event.seq, event.frame) for event in whole.feed(data)] == [
        (event.seq, event.frame) for event in pieces
    ]


def _framing(data: bytes) -> None:
    for size in (1 << 20, 20):
        whole, cut = LineSplitter(size), LineSplitter(size)
        lines = whole.feed(data)
        assert lines == [line for piece in _pieces(data) for line in cut.feed(piece)]
        assert (rest := whole.rest()) == cut.rest()
        if size > len(data):
            assert b"\n".join([*map(bytes, lines), rest or b""]) == data  # pyright: ignore[reportArgumentType]


# --- files ------------------------------------------------------------------------------------------


def _script(path: Path) -> None:
    script = load_script(path)
    assert parse_object(dump(script), "again") == script


_CALLS: tuple[tuple[str, ToolClass, Subjects], ...] = (
    ("workspace.read", "read_only", Subjects(paths=["src/a.py", "../x"])),
    ("workspace.edit", "write", Subjects(paths=["a/" * 50 + "b"])),
    ("web.fetch", "network", Subjects(hosts=["api.example.com"])),
    ("exec.run", "dangerous", Subjects(argv=["git", "push"])),
)
_QUESTIONS = [
    PolicyQuestion(
        session_id="", name=name, tool_class=kind, input=None, permission_mode="ask", subjects=subjects
    )
    for name, kind, subjects in _CALLS
]


def _policy(path: Path) -> None:
    policy = load_policy(path)
    for question in _QUESTIONS:
        policy.look(question)
        msgspec.json.encode(policy.evaluate(question))


_FILE = b"".join(b"%d\n" % number for number in range(1, 11))


def _patch(data: bytes) -> None:
    for file in parse(data):
        content, offsets = apply_hunks(_FILE if file.old else b"", file.hunks)
        assert len(offsets) == len(file.hunks)
        assert len(content) <= len(_FILE) + len(data)


def _bundle(path: Path) -> None:
    opened = read_bundle(path)
    msgspec.json.encode(opened)
    with contextlib.redirect_stdout(io.StringIO()):
        _explain(path, opened)


def _cassette(data: bytes) -> None:
    exchanges = parse_cassette(data, "c")
    assert parse_cassette(dump_cassette(exchanges), "c") == exchanges
    for exchange in exchanges:
        _ = exchange.can_replay, [chunk.bytes() for chunk in exchange.chunks]


# --- the log ----------------------------------------------------------------------------------------


def _event(data: bytes) -> None:
    event = decode(data)
    assert decode(encode(event)) == event


def _log(data: bytes) -> None:
    """A damaged log is checked to its end; what can be read of it is folded."""
    checker, state = Checker("ses_1"), SessionState(session_id="ses_1", principal="local")
    for number, line in enumerate(data.split(b"\n"), 1):
        checker.take(StoredFrame(seq=number, data=line))
        try:
            event = decode(line)
        except ValueError:
            continue
        if state.created is None and event.type != "session.created":
            continue  # a session that does not begin with it is not loaded
        with contextlib.suppress(ValueError):  # `verify` says so: an event that the engine never writes
            fold(state, event, Changes())
        if state.created is not None:
            msgspec.json.encode(session_row(state))
    checker.finish(running=False)


def _audit(line: bytes) -> None:
    """Only what was written is taken as such; anything else may still be shown."""
    record = unseal(line)
    assert record is None or parse_record(line) == record


_MANIFESTS: tuple[tuple[str, Shape, Callable[[], Sequence[bytes]]], ...] = (
    ("toml", "text", pipe_rooms.toml_manifests),
    ("json", "json", pipe_rooms.json_manifests),
)
TARGETS = (
    *(
        Target(
            f"{wire}-request", "json", partial(seeds.requests, wire), _in(rooms.gateway(_PATHS[wire])), cost=2
        )
        for wire in WIRES
    ),
    *(
        Target(f"{wire}-stream", "lines", partial(seeds.answers, wire), _plain(partial(_stream, wire)))
        for wire in WIRES
    ),
    *(
        Target(f"{wire}-answer", "json", partial(seeds.whole_answers, wire), _plain(partial(_whole, wire)))
        for wire in WIRES
    ),
    *(
        Target(
            f"{wire}-owned-stream",
            "lines",
            partial(seeds.answers, wire),
            _plain(partial(_owned_stream, wire)),
        )
        for wire in WIRES
    ),
    *(
        Target(
            f"{wire}-owned-answer",
            "json",
            partial(seeds.whole_answers, wire),
            _plain(partial(owned.whole, wire)),
        )
        for wire in WIRES
    ),
    *(
        Target(
            f"{wire}-owned-request",
            "json",
            partial(seeds.requests, wire),
            _plain(partial(owned.request, wire, _PATHS[wire])),
            (ValueError, RecursionError),
        )
        for wire in WIRES
    ),
    Target("sse", "lines", seeds.streams, _plain(_events)),
    Target("client-stream", "lines", seeds.streams, _plain(_client_stream)),
    Target("framing", "lines", seeds.codex_lines, _plain(_framing)),
    Target("claude", "lines", seeds.claude_lines, _in(rooms.program(rooms.claude_items)), cost=10),
    Target("codex", "lines", seeds.codex_lines, _in(rooms.program(rooms.codex_items)), cost=10),
    Target("acp", "lines", agent_rooms.acp_lines, _in(rooms.program(agent_rooms.acp_items)), cost=10),
    Target(
        "opencode",
        "lines",
        agent_rooms.opencode_lines,
        _in(rooms.program(agent_rooms.opencode_items)),
        cost=10,
    ),
    Target("copies", "lines", agent_rooms.copied_lines, agent_rooms.copied, cost=3),
    Target("editor", "lines", agent_rooms.editor_lines, _in(agent_rooms.editor_heard), cost=5),
    Target("adapter-heard", "lines", adapter_rooms.adapter_lines, _in(adapter_rooms.adapter_heard), cost=10),
    Target("engine-heard", "lines", adapter_rooms.engine_lines, _in(adapter_rooms.engine_heard), cost=5),
    Target("policy-heard", "lines", pipe_rooms.policy_events, _in(pipe_rooms.policy_heard), cost=5),
    Target("policy-told", "lines", pipe_rooms.policy_commands, _in(pipe_rooms.policy_told)),
    Target("extension", "lines", pipe_rooms.reports, _in(pipe_rooms.extension_heard), cost=3),
    *(
        Target(
            f"extension-{kind}",
            shape,
            given,
            _plain(partial(pipe_rooms.manifest, f"extension.{kind}")),
            (InvalidRequest,),
        )
        for kind, shape, given in _MANIFESTS
    ),
    Target(
        "minicode-config",
        "json",
        minicode_rooms.configs,
        minicode_rooms.configured,
        (InvalidRequest,),
        cost=3,
    ),
    Target(
        "minicode-session", "json", minicode_rooms.sessions, minicode_rooms.stored, (StorageFailure,), cost=3
    ),
    Target("mcp-served", "json", seeds.mcp_requests, _in(mcp_rooms.mcp_served), cost=3),
    Target(
        "mcp-attached",
        "lines",
        seeds.mcp_answers,
        _in(mcp_rooms.mcp_attached),
        (CodeSDKError, ToolError),
        cost=5,
    ),
    Target("script-yaml", "text", seeds.yaml_scripts, _on_file(_script, "s.yaml"), (InvalidRequest,), cost=2),
    Target("script-json", "json", seeds.json_scripts, _on_file(_script, "s.json"), (InvalidRequest,), cost=2),
    Target("policy", "text", seeds.policies, _on_file(_policy, "p.toml"), (InvalidRequest,), cost=2),
    Target("patch", "text", seeds.patches, _plain(_patch), (BadPatch, DoesNotApply)),
    Target("bundle", "archive", seeds.bundles, _on_file(_bundle, "b.tar.gz"), (InvalidRequest,), cost=2),
    Target("cassette", "lines", seeds.cassettes, _plain(_cassette), (InvalidRequest,)),
    Target("event", "json", seeds.events, _plain(_event), (ValueError,)),
    Target("log", "lines", seeds.logs, _plain(_log)),
    Target("audit", "json", seeds.audit_lines, _plain(_audit)),
    Target("names", "text", text_rooms.names, _plain(text_rooms.quoted)),
    Target("instruction-file", "text", text_rooms.files, _plain(text_rooms.compared), cost=3),
    Target("volatile", "json", text_rooms.volatile, _plain(text_rooms.normalized)),
    Target("marks", "text", text_rooms.marked, _plain(text_rooms.stripped)),
    Target("egress", "text", seeds.proxied, _in(rooms.egress)),
    Target("fetched", "text", seeds.web_answers, _in(rooms.fetched), (BadAnswer,)),
    Target("daemon", "request", seeds.http_requests, _in(http_rooms.daemon), cost=5),
    Target("control", "lines", seeds.control_lines, _in(http_rooms.control), cost=5),
)
