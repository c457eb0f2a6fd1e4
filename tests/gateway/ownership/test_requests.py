"""Requests as the model gets them: every tool is gone but ours and what the session enabled, in every format."""

from typing import Any

import pytest
from tests.gateway.ownership.rig import CODE, NAMESPACE, PREFIX, TOOLS, WIRES, make_plan, parse, question

from codesdk.contract.models import Wire
from codesdk.contract.ownership import ToolNaming
from codesdk.gateway.ownership.formats import acts_for

FUNCTION = {"type": "object", "properties": {}}


def named(wire: Wire, name: str) -> dict[str, Any]:
    """The declaration of a tool that an agent carries out."""
    match wire:
        case "anthropic":
            return {"name": name, "description": "d", "input_schema": FUNCTION}
        case "responses":
            return {"type": "function", "name": name, "parameters": FUNCTION, "strict": True}
        case "chat":
            return {"type": "function", "function": {"name": name, "parameters": FUNCTION}}
        case "gemini":
            return {"functionDeclarations": [{"name": name, "parametersJsonSchema": FUNCTION}]}


HOSTED: dict[Wire, list[dict[str, Any]]] = {
    "anthropic": [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "mcp_toolset", "mcp_server_name": "remote"},
        {"type": "custom", "name": "Write", "input_schema": FUNCTION},
    ],
    "responses": [
        {"type": "web_search_preview_2025_03_11"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "mcp", "server_label": "remote", "server_url": "https://example.com"},
        {"type": "custom", "name": "apply_patch", "format": {"type": "text"}},
        {"type": "namespace", "name": "functions", "tools": [{"type": "function", "name": "exec"}]},
        {"type": "local_shell"},
    ],
    "chat": [
        {"type": "custom", "custom": {"name": "apply_patch"}},
        {"type": "web_search"},
    ],
    "gemini": [{"googleSearch": {}}, {"codeExecution": {}, "urlContext": {}}, {"google_maps": {}}],
}


def asked(wire: Wire, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return question(wire, tools=list(tools), **more)


def declared(wire: Wire, body: dict[str, Any], naming: ToolNaming | None = PREFIX, **plan: Any) -> list[str]:
    return list(parse(wire, acts_for(wire).request(body, make_plan(naming, **plan))).tools)


@pytest.mark.parametrize("naming", [PREFIX, NAMESPACE, CODE])
@pytest.mark.parametrize("wire", WIRES)
def test_all_tools_are_taken_out_and_ours_are_declared(wire: Wire, naming: ToolNaming):
    body = asked(wire, named(wire, "Bash"), named(wire, "mcp__codesdk__workspace_read"), *HOSTED[wire])
    before = repr(body)
    assert declared(wire, body, naming) == list(TOOLS)
    assert repr(body) == before  # the agent's request is kept as it was


@pytest.mark.parametrize("wire", WIRES)
def test_our_tools_have_description_and_schema(wire: Wire):
    tools = acts_for(wire).request(asked(wire), make_plan())["tools"]
    first = {"anthropic": tools[0], "responses": tools[0], "chat": tools[0].get("function")}
    function = first[wire] if wire != "gemini" else tools[0]["functionDeclarations"][0]
    spec = TOOLS["workspace_read"]
    assert (function["name"], function["description"]) == ("workspace_read", spec.description)
    assert spec.input_schema in function.values()


@pytest.mark.parametrize("wire", WIRES)
def test_a_side_request_gets_no_tools_at_all(wire: Wire):
    chosen = {"toolConfig": {"retrievalConfig": {}}} if wire == "gemini" else {"tool_choice": "auto"}
    body = asked(wire, named(wire, "Bash"), *HOSTED[wire], **chosen)
    assert acts_for(wire).request(body, make_plan(tools={})) == question(wire)


@pytest.mark.parametrize("wire", WIRES)
def test_what_the_session_enabled_by_name_stays(wire: Wire):
    body = asked(wire, named(wire, "Read"), named(wire, "Bash"), *HOSTED[wire])
    assert declared(wire, body, natives=["Read"]) == ["Read", *TOOLS]


HOSTED_NAMES: dict[Wire, tuple[str, ...]] = {
    "anthropic": ("web_search", "remote"),
    "responses": ("web_search", "remote", "local_shell", "functions__exec"),
    "chat": ("web_search",),
    "gemini": ("googleSearch", "urlContext"),
}


@pytest.mark.parametrize(("wire", "name"), [(wire, name) for wire in WIRES for name in HOSTED_NAMES[wire]])
def test_a_tool_of_the_provider_stays_if_it_is_enabled(wire: Wire, name: str):
    body = asked(wire, *HOSTED[wire], mcp_servers=[{"name": "remote"}, {"name": "other"}])
    sent = acts_for(wire).request(body, make_plan(natives=[name]))
    assert len(sent["tools"]) == 1 + (1 if wire == "gemini" else len(TOOLS))
    if wire == "anthropic":
        assert sent.get("mcp_servers") == ([{"name": "remote"}] if name == "remote" else None)


@pytest.mark.parametrize("wire", WIRES)
def test_without_a_naming_the_agents_declarations_of_ours_are_kept_as_they_are(wire: Wire):
    own = named(wire, "mcp__codesdk__workspace_read")
    body = asked(wire, named(wire, "Bash"), own, named(wire, "run_workspace_read"), *HOSTED[wire])
    sent = acts_for(wire).request(body, make_plan(None))
    assert sent["tools"] == [own]


def test_without_a_naming_a_namespace_of_ours_is_kept():
    own = {"type": "function", "name": "workspace_read", "parameters": FUNCTION}
    space = {
        "type": "namespace",
        "name": "mcp__codesdk",
        "tools": [own, {"type": "function", "name": "other"}],
    }
    sent = acts_for("responses").request(asked("responses", space), make_plan(None))
    assert sent["tools"] == [{**space, "tools": [own]}]


FORCED: dict[Wire, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "anthropic": [
        (
            {"tool_choice": {"type": "tool", "name": "Bash", "disable_parallel_tool_use": True}},
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        ),
        (
            {"tool_choice": {"type": "tool", "name": "mcp__codesdk__workspace_read"}},
            {"tool_choice": {"type": "tool", "name": "workspace_read"}},
        ),
        ({"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "any"}}),
    ],
    "responses": [
        ({"tool_choice": {"type": "function", "name": "Bash"}}, {"tool_choice": "auto"}),
        ({"tool_choice": {"type": "web_search_preview"}}, {"tool_choice": "auto"}),
        (
            {"tool_choice": {"type": "function", "name": "mcp__codesdk__workspace_read"}},
            {"tool_choice": {"type": "function", "name": "workspace_read"}},
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "x"}],
                }
            },
            {"tool_choice": "auto"},
        ),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
    ],
    "chat": [
        ({"tool_choice": {"type": "function", "function": {"name": "Bash"}}}, {"tool_choice": "auto"}),
        (
            {"tool_choice": {"type": "function", "function": {"name": "mcp__codesdk__workspace_read"}}},
            {"tool_choice": {"type": "function", "function": {"name": "workspace_read"}}},
        ),
        ({"functions": [{"name": "Bash"}], "function_call": {"name": "Bash"}}, {}),
        ({"web_search_options": {}, "enable_search": True, "plugins": [{"id": "web"}]}, {}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
    ],
    "gemini": [
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["Bash"]}}},
            {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}},
        ),
        (
            {
                "tool_config": {
                    "function_calling_config": {
                        "mode": "ANY",
                        "allowed_function_names": ["Bash", "mcp__codesdk__workspace_read"],
                    }
                }
            },
            {
                "tool_config": {
                    "function_calling_config": {"mode": "ANY", "allowed_function_names": ["workspace_read"]}
                }
            },
        ),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
        ),
    ],
}


@pytest.mark.parametrize(
    ("wire", "given", "expected"), [(wire, *pair) for wire in WIRES for pair in FORCED[wire]]
)
def test_what_forces_a_tool_that_is_gone_is_mended(
    wire: Wire, given: dict[str, Any], expected: dict[str, Any]
):
    body = asked(wire, named(wire, "Bash"), **given)
    sent = acts_for(wire).request(body, make_plan())
    assert {key: value for key, value in sent.items() if key not in (*question(wire), "tools")} == expected


@pytest.mark.parametrize("wire", WIRES)
def test_unknown_fields_stay_as_they_are(wire: Wire):
    odd = {"something": {"new": [1, None]}, "tools": [named(wire, "Bash")]}
    sent = acts_for(wire).request(question(wire, **odd), make_plan())
    assert sent["something"] is odd["something"]


def test_a_breakpoint_of_the_cache_moves_from_a_tool_that_is_gone_to_ours():
    kept = {"cache_control": {"type": "ephemeral"}}
    body = asked("anthropic", named("anthropic", "Read"), named("anthropic", "Bash") | kept)
    tools = acts_for("anthropic").request(body, make_plan())["tools"]
    assert [tool.get("cache_control") for tool in tools] == [None, kept["cache_control"]]


def test_references_to_tools_that_are_gone_become_text():
    found = [{"type": "tool_reference", "tool_name": name} for name in ("workspace_read", "Bash")]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": found}
    call = {"type": "tool_use", "id": "c1", "name": "ToolSearch", "input": {}}
    said = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body = question("anthropic") | {"messages": [{"role": "user", "content": "Hi"}, *said]}
    sent = acts_for("anthropic").request(body, make_plan())
    assert sent["messages"][2]["content"][0]["content"] == [found[0], {"type": "text", "text": "Bash"}]


def test_items_that_bring_more_tools_bring_none_but_what_stays():
    tools = [named("responses", "Bash"), named("responses", "Read")]
    body = question("responses") | {
        "input": [
            {"role": "user", "content": "Hi"},
            {"type": "additional_tools", "tools": tools},
            {"type": "tool_search_output", "call_id": "c", "tools": tools},
        ]
    }
    sent = acts_for("responses").request(body, make_plan())
    assert sent["input"] == [
        {"role": "user", "content": "Hi"},
        {"type": "tool_search_output", "call_id": "c", "tools": []},
    ]
    assert declared("responses", body, natives=["Read"]) == [*TOOLS, "Read", "Read"]


def test_a_count_of_tokens_may_wrap_the_request():
    inner = asked("gemini", named("gemini", "Bash"))
    sent = acts_for("gemini").request({"generateContentRequest": inner}, make_plan(tools={}))
    assert sent == {"generateContentRequest": question("gemini")}


def test_a_call_in_a_namespace_is_mapped_back_and_one_in_another_is_not():
    call = {"type": "function_call", "call_id": "c1", "name": "workspace_read", "arguments": "{}"}
    items = [call | {"namespace": "mcp__codesdk"}, call | {"namespace": "mcp__other"}]
    body = question("responses") | {"input": items}
    assert acts_for("responses").request(body, make_plan(NAMESPACE))["input"] == [call, items[1]]


@pytest.mark.parametrize(
    "code",
    [
        'async function main(){ return await tools.mcp_codesdk.workspace_read({"path":"x"}); evil(); }',
        "async function main(){ return await tools.mcp_codesdk.workspace_read(evil()); }",
        'async function main(){ return await tools.mcp_codesdk.workspace_read({"path":"x"}); } evil()',
        'async function main(){ return await tools.mcp_codesdk.other({"path":"x"}); }',
        'async function main(){ return await tools.mcp_codesdk.workspace_read({"path": "x"}); }',
    ],
)
def test_code_that_has_not_exactly_our_form_is_not_taken_for_a_call_of_ours(code: str):
    call = {"id": "c1", "name": "run_typescript", "type": "tool_use", "input": {"code": code}}
    body = question("anthropic") | {"messages": [{"role": "assistant", "content": [call]}]}
    assert acts_for("anthropic").request(body, make_plan(CODE))["messages"] == body["messages"]
