"""Answers that no provider sends, or only a careless one: nothing gets past, nothing is lost that need not be."""

import json
from typing import Any

import msgspec
import pytest
from tests.gateway.ownership.rig import (
    CODE,
    MARK,
    PREFIX,
    WIRES,
    decode,
    encode,
    finish,
    make_plan,
    parse,
    play,
    question,
)

from codesdk.contract.models import Wire
from codesdk.contract.ownership import ToolNaming
from codesdk.gateway.ownership import frames
from codesdk.gateway.ownership.acts import AnswerActs
from codesdk.gateway.ownership.formats import acts_for
from codesdk.gateway.ownership.values import read_json
from codesdk.gateway.wires.exchange import Call, TextChunk
from codesdk.gateway.wires.formats import codec_for

BASH = finish([TextChunk("a"), Call("c1", "Bash", {"command": "ls"})])


def answer_of(wire: Wire, naming: ToolNaming | None = PREFIX, **plan: Any) -> AnswerActs:
    acts, made = acts_for(wire), make_plan(naming, **plan)
    return acts.answer(made, acts.request(question(wire), made))


def rewritten(wire: Wire, data: bytes, naming: ToolNaming | None = PREFIX, **plan: Any) -> bytes:
    answer = answer_of(wire, naming, **plan)
    return answer.feed(data) + answer.end()


def events(*found: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in found)


def streamed(wire: Wire, parts: Any = BASH) -> bytes:
    return encode(wire, parse(wire, question(wire)), parts)


# --- bytes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("end", [b"\r\n", b"\r", b"\n"])
def test_a_call_is_found_whatever_ends_a_line(wire: Wire, end: bytes):
    data = streamed(wire).replace(b"\r\n", b"\n").replace(b"\n", end)
    out = rewritten(wire, data)
    assert b"Bash" not in out
    assert MARK.format(0).encode() in out
    assert decode(wire, out).text == f"a{MARK.format(0)}"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("mess", ['"\\ud83d"', "NaN", "1" * 5000, '"\t"', '"\udcff"', "1e999"])
def test_a_call_is_found_beside_what_only_some_readers_accept(wire: Wire, mess: str):
    odd = mess.encode("utf-8", "surrogateescape")
    data = b"".join(
        line.replace(b"data: {", b'data: {"odd":' + odd + b",", 1)
        for line in streamed(wire).splitlines(keepends=True)
    )
    out = rewritten(wire, data)
    assert b"Bash" not in out
    mark = MARK.format(0)
    assert mark.encode() in out or json.dumps(mark)[1:-1].encode() in out


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_nested_too_deeply_to_be_judged_does_not_pass(wire: Wire):
    deep = b'"odd":' + b"[" * 50_000 + b"]" * 50_000 + b","
    assert b"Bash" not in rewritten(wire, streamed(wire).replace(b"data: {", b"data: {" + deep))
    whole = codec_for(wire).whole(parse(wire, question(wire, stream=False), stream=False), "a", BASH)
    assert b"Bash" not in answer_of(wire).whole(b"{" + deep + whole[1:])


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_in_lines_that_some_agents_read_one_by_one_is_found(wire: Wire):
    lines = [line for line in streamed(wire).split(b"\n") if line.startswith(b"data: ")]
    out = rewritten(wire, b"\n".join(lines) + b"\n\n")
    assert b"Bash" not in out
    assert decode(wire, out).text == f"a{MARK.format(0)}"


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_in_a_line_that_is_no_field_is_found(wire: Wire):
    data = b": first\n\n" + streamed(wire).replace(b"data: ", b"")
    assert b"Bash" not in rewritten(wire, data)


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_in_an_event_that_nothing_ends_is_found(wire: Wire):
    data = streamed(wire)
    for size in range(0, len(data), 7):
        told = rewritten(wire, data[:size])
        assert not [line for line in frames_of(told) if b"Bash" in line and read_json(line) is not None]


@pytest.mark.parametrize("wire", WIRES)
def test_an_event_that_is_too_large_is_left_out(wire: Wire, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frames.Frames.__init__, "__defaults__", (2000,))
    call = finish([TextChunk("a"), Call("c1", "B" * 3000, {}), TextChunk("b")])
    for sizes in ([], [100], [1999]):
        played = play(wire, [call], sizes=sizes)
        assert b"BBB" not in played.data
        assert decode(wire, played.data).text in ("ab", f"a{MARK.format(0)}b")


@pytest.mark.parametrize("wire", WIRES)
def test_an_event_of_too_many_values_is_left_out(wire: Wire):
    crowded = b'data: {"type": "new", "x": [' + b"[]," * 600_000 + b"[]]}\n\n"
    plain = streamed(wire, finish([TextChunk("a")]))
    assert rewritten(wire, crowded + plain) == plain


@pytest.mark.parametrize("wire", WIRES)
def test_comments_unknown_events_and_garbage_pass_as_they_came(wire: Wire):
    odd = b': ping\n\nevent: new\ndata: {"type": "response.of_tomorrow", "x": 1}\n\nid: 3\nretry: 5\n\n'
    odd += b"data: {not json\n\n" + codec_for(wire).broken_frame + b"\n\n"
    plain = streamed(wire, finish([TextChunk("a")]))
    assert rewritten(wire, odd + plain) == odd + plain


ERRORS: dict[Wire, dict[str, Any]] = {
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "responses": {"type": "error", "code": "server_error", "message": "Oh.", "sequence_number": 99},
    "chat": {"error": {"message": "Oh.", "type": "server_error"}},
    "gemini": {"error": {"code": 503, "message": "Oh.", "status": "UNAVAILABLE"}},
}


@pytest.mark.parametrize("wire", WIRES)
def test_an_error_in_the_middle_passes_and_the_step_has_not_ended(wire: Wire):
    start = streamed(wire)[:-300]
    start = start[: start.rfind(b"\n\n") + 2] if wire != "gemini" else b""
    error = events(ERRORS[wire])
    answer = answer_of(wire)
    assert (answer.feed(start + error) + answer.end()).endswith(error)
    assert not answer.ended


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b'"x"', b'{"error": {"message": "no"}}', b"null"])
def test_a_body_that_is_no_answer_passes_as_it_came(wire: Wire, body: bytes):
    assert answer_of(wire).whole(body) in (body, b"[]")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow
def test_many_pieces_cost_no_more_than_their_bytes(wire: Wire):
    """A guard against work that grows with the square: a long call in tiny pieces."""
    data = streamed(wire, finish([Call("c1", "Bash", {"command": "x" * 150_000})]))
    answer = answer_of(wire)
    out = b"".join(answer.feed(data[at : at + 3]) for at in range(0, len(data), 3)) + answer.end()
    assert b"Bash" not in out
    assert [call.input for call in answer.denied] == [{"command": "x" * 150_000}]


# --- anthropic --------------------------------------------------------------------------------------


def test_what_the_provider_ran_itself_is_denied_and_its_result_is_left_out():
    blocks = [
        {"type": "text", "text": ""},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "mcp_tool_use", "id": "m1", "name": "x", "server_name": "remote", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "content": []},
        {"type": "text", "text": "b"},
    ]
    data = b"".join(
        events(
            {"type": "content_block_start", "index": n, "content_block": block},
            {"type": "content_block_stop", "index": n},
        )
        for n, block in enumerate(blocks)
    )
    kinds = [
        (event["index"], event["content_block"]["type"])
        for event in map(msgspec.json.decode, frames_of(rewritten("anthropic", data)))
        if event["type"] == "content_block_start"
    ]
    assert kinds == [(0, "text"), (1, "text"), (2, "text"), (3, "text")]
    assert rewritten("anthropic", data, natives=["web_search", "remote"]) == data
    message = {"type": "message", "content": blocks, "stop_reason": "pause_turn"}
    answer = answer_of("anthropic")
    whole = msgspec.json.decode(answer.whole(msgspec.json.encode(message)))
    assert whole["content"] == [
        blocks[0],
        {"type": "text", "text": MARK.format(0)},
        {"type": "text", "text": MARK.format(1)},
        blocks[5],
    ]
    assert whole["stop_reason"] == "end_turn"
    assert [(call.name, call.input) for call in answer.denied] == [("web_search", {"query": "q"}), ("x", {})]
    again = acts_for("anthropic").again(question("anthropic"), answer)
    assert [block["type"] for block in again["messages"][-2]["content"]] == ["tool_use", "tool_use", "text"]


def frames_of(data: bytes) -> list[bytes]:
    return [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]


def test_a_message_that_begins_with_calls_has_none():
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}
    out = rewritten("anthropic", events({"type": "message_start", "message": {"content": [call]}}))
    assert msgspec.json.decode(frames_of(out)[0])["message"]["content"] == [
        {"type": "text", "text": MARK.format(0)}
    ]


def test_signed_thinking_is_sent_back_with_the_call_it_belongs_to():
    data = events(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "redacted_thinking", "data": "d"},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"x": 1}},
        },
        {"type": "content_block_stop", "index": 2},
    )
    answer = answer_of("anthropic")
    answer.feed(data)
    assert acts_for("anthropic").again(question("anthropic"), answer)["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"x": 1}},
    ]


# --- responses --------------------------------------------------------------------------------------

HOSTED_ITEMS = [
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    },
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "container_id": "c", "outputs": []},
    {"type": "mcp_call", "id": "mcp_1", "name": "x", "server_label": "remote", "arguments": "{}"},
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "remote", "tools": []},
    {
        "type": "local_shell_call",
        "id": "lsh_1",
        "call_id": "c1",
        "action": {"type": "exec", "command": ["ls"]},
    },
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
    {"type": "image_generation_call", "id": "ig_1", "result": None},
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c3",
        "name": "exec",
        "namespace": "functions",
        "arguments": "",
    },
    {"type": "tool_search_call", "id": "ts_1", "call_id": "c4", "arguments": {"query": "q"}},
]


@pytest.mark.parametrize("item", HOSTED_ITEMS, ids=lambda item: item["type"])
@pytest.mark.parametrize("begins", [True, False])
def test_every_kind_of_call_item_becomes_a_message(item: dict[str, Any], begins: bool):
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []}
    kind = item["type"]
    data = events(
        *(
            [{"type": "response.output_item.added", "output_index": 0, "item": item, "sequence_number": 0}]
            * begins
        ),
        {
            "type": f"response.{kind}.in_progress",
            "output_index": 0,
            "item_id": item["id"],
            "sequence_number": 1,
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item, "sequence_number": 2},
        {"type": "response.output_item.done", "output_index": 1, "item": message, "sequence_number": 3},
        {"type": "response.completed", "response": {"output": [item, message]}, "sequence_number": 4},
    )
    answer = answer_of("responses")
    found = [msgspec.json.decode(line) for line in frames_of(answer.feed(data) + answer.end())]
    stand_in = {
        "id": item["id"],
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": MARK.format(0), "annotations": [], "logprobs": []}],
    }
    assert found[-1]["response"]["output"] == [stand_in, message]
    assert [event["item"] for event in found if event["type"] == "response.output_item.done"] == [
        stand_in,
        message,
    ]
    numbers = [event["sequence_number"] for event in found]
    assert numbers == sorted(set(numbers))
    assert not any(f"response.{kind}" in event["type"] for event in found)
    [denied] = answer.denied
    assert denied.item == item
    again = acts_for("responses").again(question("responses"), answer)
    call, result = (
        parse("responses", again).messages[1].blocks[0],
        parse("responses", again).messages[-1].blocks[0],
    )
    assert call.id == result.id  # type: ignore[union-attr]


def test_results_of_tools_that_the_provider_ran_are_left_out_and_the_rest_moves_up():
    items = [
        {"type": "shell_call_output", "id": "o1", "call_id": "c1", "output": []},
        {"type": "message", "id": "m", "role": "assistant", "content": []},
    ]
    data = events(
        *({"type": "response.output_item.done", "output_index": n, "item": i} for n, i in enumerate(items))
    )
    found = [msgspec.json.decode(line) for line in frames_of(rewritten("responses", data))]
    assert [(event["output_index"], event["item"]) for event in found] == [(0, items[1])]


def test_an_item_that_begins_as_a_message_and_ends_as_a_call_is_denied():
    item = HOSTED_ITEMS[7]
    data = events(
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    )
    assert b'"exec"' not in rewritten("responses", data)


def test_a_reference_to_a_denied_call_becomes_the_call_and_its_result():
    answer = answer_of("responses")
    answer.feed(events({"type": "response.output_item.done", "output_index": 0, "item": HOSTED_ITEMS[5]}))
    denied = {call.mark: call for call in answer.denied}
    body = question("responses") | {"input": [{"type": "item_reference", "id": "ctc_1"}, {"id": "other"}]}
    sent = acts_for("responses").request(body, make_plan(denied=denied))
    assert sent["input"] == [
        HOSTED_ITEMS[5],
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "apply_patch is not available."},
        {"id": "other"},
    ]


@pytest.mark.parametrize("store", [True, False])
def test_reasoning_that_nobody_stored_is_sent_back_only_if_it_is_encrypted(store: bool):
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "e"},
        HOSTED_ITEMS[5],
    ]
    answer = answer_of("responses")
    answer.whole(msgspec.json.encode({"object": "response", "output": items}))
    sent = acts_for("responses").again(question("responses", store=store), answer)["input"]
    assert [item.get("id") for item in sent] == [None, *(["rs_1"] if store else []), "rs_2", "ctc_1", None]


# --- chat -------------------------------------------------------------------------------------------


def chat(*deltas: dict[str, Any], reason: str = "tool_calls") -> bytes:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return (
        events(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        + b"data: [DONE]\n\n"
    )


def call(name: str | None, arguments: str = "", **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"function": function, **more}


OURS = "mcp__codesdk__workspace_read"
ODD_CALLS = {
    "several under one index": (
        [call("Bash", "{}", index=0, id="a"), call("workspace_read", "{}", index=0, id="b")],
        [("b", OURS)],
    ),
    "without an index": (
        [call("workspace_read", "{", id="a"), call(None, "}"), call("Bash", "{}", id="b")],
        [("a", OURS)],
    ),
    "with a name that comes late": (
        [{"index": 0, "id": "a"}, call("workspace_read", "{}", index=0), call("Bash", index=1, id="b")],
        [("a", OURS)],
    ),
    "with a name that comes again": (
        [call("workspace_read", "{", index=0, id="a"), call("workspace_read", "}", index=0)],
        [("a", OURS)],
    ),
    "with another name later": (
        [call("workspace_read", "{", index=0, id="a"), call("Bash", "}", index=0)],
        [("a", OURS)],
    ),
    "never named": ([{"index": 0, "id": "a"}, call(None, "{}", index=0)], []),
    "of the custom kind": (
        [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "Bash", "input": "x"}}],
        [],
    ),
}


@pytest.mark.parametrize("case", ODD_CALLS)
@pytest.mark.parametrize("at_once", [True, False])
def test_calls_of_careless_servers(case: str, at_once: bool):
    parts, expected = ODD_CALLS[case]
    deltas = [{"tool_calls": parts}] if at_once else [{"tool_calls": [part]} for part in parts]
    out = rewritten("chat", chat(*deltas))
    seen = decode("chat", out)
    assert [(found.id, found.name) for found in seen.calls] == expected
    assert b"Bash" not in out
    assert seen.stop_reason == ("tool_use" if expected or case == "never named" else "end_turn")
    assert out.endswith(b"data: [DONE]\n\n")


def test_a_legacy_function_is_denied_or_renamed():
    denied = decode("chat", rewritten("chat", chat({"function_call": {"name": "Bash", "arguments": "{}"}})))
    assert (denied.calls, denied.text, denied.stop_reason) == ([], MARK.format(0), "end_turn")
    ours = chat({"function_call": {"name": "workspace_read", "arguments": "{}"}}, reason="function_call")
    assert [found.name for found in decode("chat", rewritten("chat", ours)).calls] == [OURS]


def test_a_server_that_ends_in_the_chunk_with_the_call_is_followed_by_a_next_step():
    first = {"index": 0, "delta": {"content": "x", "tool_calls": [call("Bash", "{}", index=0, id="a")]}}
    answer = answer_of("chat")
    out = answer.feed(
        events({"id": "1", "choices": [{**first, "finish_reason": "tool_calls"}]}) + b"data: [DONE]\n\n"
    )
    assert (out, answer.passed, [found.name for found in answer.denied]) == (b"", 0, ["Bash"])
    answer.next_step()
    role = {"role": "assistant", "content": "y"}
    out = answer.feed(events({"id": "2", "choices": [{"index": 0, "delta": role}]}) + chat(reason="stop"))
    out += answer.end()
    found = [msgspec.json.decode(line) for line in frames_of(out) if line != b"[DONE]"]
    assert [event["choices"][0]["delta"].get("content") for event in found] == [
        f"x{MARK.format(0)}",
        "y",
        None,
    ]
    assert "role" not in found[1]["choices"][0]["delta"]
    assert {event["id"] for event in found if "id" in event} == {"1"}
    assert out.count(b"[DONE]") == 1


# --- gemini -----------------------------------------------------------------------------------------


def parts_of(data: bytes) -> list[Any]:
    chunks = [msgspec.json.decode(line) for line in frames_of(data)]
    return [p for chunk in chunks for c in chunk["candidates"] for p in c["content"]["parts"]]


def gemini(*parts: Any) -> bytes:
    return events(
        {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}]}
    )


def test_the_signature_stays_with_the_denied_call():
    part = {"functionCall": {"name": "Bash", "args": {}}, "thoughtSignature": "sig"}
    answer = answer_of("gemini")
    assert parts_of(answer.feed(gemini({"text": "a"}, part)) + answer.end()) == [
        {"text": "a"},
        {"text": MARK.format(0)},
    ]
    assert acts_for("gemini").again(question("gemini"), answer)["contents"][1:] == [
        {"role": "model", "parts": [{"text": "a"}, part]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "Bash", "response": {"error": "Bash is not available."}}}
            ],
        },
    ]


def test_what_google_ran_itself_is_denied_unless_it_is_enabled():
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {}}},
        {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB"}},
        {"function_call": {"name": "Bash", "args": {}}},
    ]
    marks = [{"text": MARK.format(n)} for n in range(3)]
    assert parts_of(rewritten("gemini", gemini(*parts))) == marks
    enabled = rewritten("gemini", gemini(*parts), natives=["codeExecution", "googleSearch", "Bash"])
    assert enabled == gemini(*parts)


def test_more_of_the_arguments_of_a_denied_call_is_left_out():
    parts = [
        {"functionCall": {"name": "Bash", "willContinue": True}},
        {"functionCall": {"partialArgs": [{"jsonPath": "$.x", "stringValue": "y"}], "willContinue": True}},
        {"functionCall": {}},
        {"text": "b"},
    ]
    assert parts_of(rewritten("gemini", gemini(*parts))) == [{"text": MARK.format(0)}, {"text": "b"}]


@pytest.mark.parametrize("sizes", [[], [1], [13]])
def test_an_array_is_rewritten_like_events_and_stays_an_array(sizes: list[int]):
    steps = [BASH, finish([TextChunk("b"), Call("c2", "workspace_read", {"path": "x"})])]
    played = play("gemini", steps, sizes=sizes, sse=False)
    chunks = msgspec.json.decode(played.data)
    assert isinstance(chunks, list)
    assert decode("gemini", played.data) == decode("gemini", play("gemini", steps).data)
    assert b"Bash" not in played.data


# --- code -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_arguments_that_are_no_json_cannot_become_code(wire: Wire):
    hostile = "{}); evil(); ("
    data = streamed(wire, finish([Call("c1", "workspace_read", "PLACEHOLDER")]))
    data = data.replace(b'\\"PLACEHOLDER\\"', hostile.encode()).replace(
        b'"PLACEHOLDER"', b'"' + hostile.encode() + b'"'
    )
    [found] = decode(wire, rewritten(wire, data, CODE)).calls
    assert found.name == "run_typescript"
    code = found.input["code"]
    assert code.startswith('async function main(){ return await tools.mcp_codesdk.workspace_read("')
    assert json.loads(code[code.index('("') + 1 : code.rindex(")")]) == hostile


@pytest.mark.parametrize("wire", WIRES)
def test_code_of_the_model_passes_only_in_exactly_our_form(wire: Wire):
    code = 'async function main(){ return await tools.mcp_codesdk.workspace_read({"path":"x"}); }'
    good, bad = ({"code": text} for text in (code, code + " evil()"))
    parts = finish([Call("c1", "run_typescript", good), Call("c2", "run_typescript", bad)])
    answer = answer_of(wire, CODE)
    seen = decode(wire, answer.feed(streamed(wire, parts)) + answer.end())
    assert [found.input for found in seen.calls] == [good]
    assert [(found.name, found.input) for found in answer.denied] == [("run_typescript", bad)]
