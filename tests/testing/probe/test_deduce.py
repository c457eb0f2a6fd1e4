"""What experiments saw → fields of a row: on what real agents did, recorded, and on small cases."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from codesdk.contract.entry import MARK
from codesdk.contract.models import Wire
from codesdk.contract.ownership import SideMark, ToolNaming
from codesdk.gateway.reply import RawRequest
from codesdk.gateway.wires.formats import find_route
from codesdk.runtimes.acp import ROWS
from codesdk.testing.probe import deduce
from codesdk.testing.probe.candidates import VARIABLES
from codesdk.testing.probe.declared import declared
from codesdk.testing.probe.seen import Asked, Called, Made, Observation, Offered
from codesdk.testing.probe.world import noted

RECORDED = Path(__file__).parent / "recorded"
AGENTS = ("claude-agent-acp", "codex-acp", "gemini", "qwen")


def recorded(name: str) -> Observation:
    return msgspec.json.decode((RECORDED / f"{name}.json").read_bytes(), type=Observation)


def asked(**fields: Any) -> Asked:
    return Asked(**{"wire": "chat", "path": "/v1/chat/completions", "model": "m", "address": "row", **fields})


@pytest.mark.parametrize("name", AGENTS)
def test_the_names_of_our_tools_are_those_of_the_row_that_ships(name: str):
    seen, known = recorded(name), ROWS[name].row
    found = deduce.naming_of(seen.main[0]) or deduce.naming_that_worked(seen)
    assert found == known.naming


@pytest.mark.parametrize("name", AGENTS)
def test_ids_of_calls_are_those_of_the_row_that_ships(name: str):
    seen, known = recorded(name), ROWS[name].row
    assert (deduce.id_rule(seen), deduce.id_key(seen)) == (known.call_id, known.call_id_key)


@pytest.mark.parametrize("name", AGENTS)
def test_a_call_of_ours_is_read_as_by_the_row_that_ships(name: str):
    found, known = deduce.reading_of(recorded(name)), ROWS[name].row.reading
    assert found is not None
    assert set(found.spelled) >= set(known.spelled)
    assert set(found.names) & set(known.names)
    assert set(found.inputs) & set(known.inputs)
    assert found.quiet == ()


def test_an_agent_that_declares_none_of_our_tools_is_known_by_the_call_that_reached_us():
    made = deduce.guesses("responses")
    assert made[0] == Made(
        id="call_guess_n",
        name="probe_read",
        namespace="mcp__codesdk",
        own="probe_read",
        input={"path": "guess-n"},
    )
    for guess in made:
        seen = Observation(made=made, called=[Called(name="probe_read", arguments=dict(guess.input))])
        expected = ToolNaming(prefix=guess.name.removesuffix("probe_read"), namespace=guess.namespace)
        assert deduce.naming_that_worked(seen) == expected
    assert deduce.naming_that_worked(Observation(made=made)) is None


def test_a_name_that_only_ends_like_one_of_ours_is_none():
    tools = (Offered(name="x_probe_read"), Offered(name="y_probe_write"), Offered(name="x_probe_remove"))
    assert deduce.naming_of(asked(tools=tools)) is None


@pytest.mark.parametrize(
    ("address", "wire", "expected"),
    [
        (
            "OPENAI_BASE_URL",
            "chat",
            {
                "OPENAI_BASE_URL": "${model_url}/v1",
                "OPENAI_API_KEY": "${key}",
                "OPENAI_MODEL": "${model}",
            },
        ),
        (
            "GOOGLE_GEMINI_BASE_URL",
            "gemini",
            {"GOOGLE_GEMINI_BASE_URL": "${model_url}", "GEMINI_API_KEY": "${key}"},
        ),
        (
            "LLM_BASE_URL",
            "chat",
            {"LLM_BASE_URL": "${model_url}/v1", "LLM_API_KEY": "${key}", "LLM_MODEL": "${model}"},
        ),
    ],
)
def test_the_variable_whose_address_was_asked_is_the_one_that_counts(
    address: str, wire: Wire, expected: dict[str, str]
):
    way = deduce.way_of(Observation(asked=[asked(address=address, wire=wire, model="gpt-5.5")]), VARIABLES)
    assert way is not None
    assert (way.wire, way.environment) == (wire, expected)


def test_without_a_request_there_is_no_way():
    assert deduce.way_of(Observation(), VARIABLES) is None


def test_the_conversation_goes_before_a_title_that_came_first():
    title = asked(model="small", main=True, wrapped=True, tools=(Offered(name="x"),))
    main = asked(model="large", main=True, tools=(Offered(name="x"),))
    way = deduce.way_of(Observation(asked=[title, main]), ())
    assert way is not None
    assert way.model == "large"


def test_each_kind_of_side_request_gets_a_mark_that_no_request_of_the_conversation_has():
    main = asked(
        main=True, system="You are an agent.\nBe kind to all of them.", tools=(Offered(name="bash"),)
    )
    seen = Observation(
        asked=[
            main,
            asked(model="small"),
            asked(tools=(Offered(name="bash"), Offered(name="x_probe_read"), Offered(name="respond"))),
            asked(
                system="You are an agent.\nVersion 1.2.3 of the thing here\nYou write titles for sessions. Short ones."
            ),
            asked(system="Be kind to all of them."),
        ]
    )
    assert deduce.side_marks(seen) == (
        SideMark(model="small"),
        SideMark(tool="respond"),
        SideMark(text="you write titles for sessions. short"),
    )


def test_a_tool_that_runs_commands_is_called_with_all_that_it_requires():
    tools = [
        Offered(
            name="Bash",
            arguments={"command": "string", "why": "string", "loud": "boolean"},
            required=("command", "why", "loud"),
        ),
        Offered(name="shell", arguments={"command": "array"}, required=("command",)),
        Offered(name="read_file", arguments={"path": "string"}),
        Offered(name="terminal", arguments={"text": "string"}),
    ]
    assert deduce.marking_calls(tools) == {
        "Bash": {"command": f"touch {MARK}", "why": "Leave a mark", "loud": False},
        "shell": {"command": ["bash", "-c", f"touch {MARK}"]},
    }


def test_announcements_of_calls_that_nobody_made_and_words_of_the_agents_own_are_found():
    def update(**fields: Any) -> dict[str, Any]:
        return {"method": "session/update", "params": {"update": fields}}

    seen = Observation(
        made=[Made(id="c1", name="x_probe_read", own="probe_read", input={"path": "a"})],
        said="Done.",
        frames=[
            update(sessionUpdate="tool_call", toolCallId="c1", title="x_probe_read", rawInput={"path": "a"}),
            update(sessionUpdate="tool_call", toolCallId="own-1", title="run code"),
            update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "[MODE] auto"}),
            update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "Done."}),
        ],
    )
    found = deduce.reading_of(seen)
    assert found is not None
    assert (found.names, found.spelled, found.inputs) == (("title",), ("x_${name}",), ("rawInput",))
    assert (found.quiet, found.dropped) == (("run code",), ("[MODE]",))


def test_of_a_call_that_an_agent_says_nothing_of_nothing_can_be_read():
    assert deduce.reading_of(Observation(made=[Made(id="c1", name="x", own="probe_read")])) is None


def request(text: str, *tools: str, words: str = "Read it.") -> Asked:
    """Return what is kept of a request with a text of the user."""
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "tools": offered}
    path = "/v1/chat/completions"
    raw = RawRequest(method="POST", path=path, query="", headers=[], body=msgspec.json.encode(body))
    found = find_route("POST", path, "")
    assert found is not None
    return noted(found[0].parse(found[1], body), raw, "row", words, ())


@pytest.mark.parametrize(
    ("text", "tools", "main", "rest"),
    [
        ("Read it.", ["bash"], True, ""),
        ("<context/> Read it.", ["bash"], True, ""),
        ("<q>\nRead it.\n</q>", ["x_probe_read"], True, "\n</q>"),
        ("Review this: Read it. Is it safe?", ["bash"], False, ""),
        ("Read it.", [], False, ""),
        ("Something else.", ["x_probe_read"], False, ""),
    ],
)
def test_the_conversation_ends_with_our_words_or_offers_our_tools_beside_them(
    text: str, tools: list[str], main: bool, rest: str
):
    found = request(text, *tools)
    assert (found.main, found.rest) == (main, rest)


def test_what_follows_our_words_is_learned_if_it_is_always_the_same():
    one, other, plain = (
        asked(main=True, wrapped=True, rest="</q>"),
        asked(main=True, wrapped=True, rest="</r>"),
        asked(main=True),
    )
    assert deduce.appended(Observation(asked=[one, one, asked(rest="x")])) == ("</q>",)
    assert deduce.appended(Observation(asked=[one, other])) == ()
    assert deduce.appended(Observation(asked=[one, plain])) == ()
    assert deduce.appended(Observation(asked=[])) == ()


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = Offered(name="read", arguments={"path": "string"}, required=("path",))


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("chat", {"tools": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]}),
        ("anthropic", {"tools": [{"name": "read", "input_schema": SCHEMA}]}),
        ("responses", {"tools": [{"type": "function", "name": "read", "parameters": SCHEMA}]}),
        (
            "responses",
            {
                "input": [
                    {
                        "type": "additional_tools",
                        "tools": [{"type": "function", "name": "read", "parameters": SCHEMA}],
                    }
                ]
            },
        ),
        ("gemini", {"tools": [{"functionDeclarations": [{"name": "read", "parametersJsonSchema": SCHEMA}]}]}),
    ],
)
def test_the_tools_of_a_request_are_found_in_every_format(wire: Wire, body: dict[str, Any]):
    assert list(declared(wire, body)) == [READ]


def test_a_namespace_and_a_providers_own_tool_are_found():
    inner = {"type": "function", "name": "read", "parameters": SCHEMA}
    body = {"tools": [{"type": "namespace", "name": "mcp__x", "tools": [inner]}, {"type": "web_search"}, 7]}
    assert list(declared("responses", body)) == [
        msgspec.structs.replace(READ, namespace="mcp__x"),
        Offered(name="web_search"),
    ]


def test_rows_are_compared_field_by_field():
    known = ROWS["qwen"].row
    other = msgspec.structs.replace(known, name="mine", parallel=True)
    assert deduce.differences(other, known) == {"parallel": (True, False)}
