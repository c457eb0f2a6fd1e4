"""Names of tools: on the wire, in a request of a runtime, and of tools that others named."""

import pytest

from codesdk.contract.tools import ToolSpec
from codesdk.tools import NAMESPACE, PREFIX, SERVER, builtin_registry
from codesdk.tools.names import by_wire_name, offered_as, owned_name, wire_name


def test_a_name_has_no_dot_on_the_wire_and_is_found_by_what_a_model_calls_it():
    assert wire_name("mcp.git_hub.create_issue") == "mcp_git_hub_create_issue"
    assert by_wire_name(["workspace.read", "http.fetch"], PREFIX) == {
        "mcp__codesdk__workspace_read": "workspace.read",
        "mcp__codesdk__http_fetch": "http.fetch",
    }
    assert (SERVER, NAMESPACE) == ("codesdk", "mcp__codesdk")


def test_no_two_of_our_tools_have_the_same_name_on_the_wire():
    specs: list[ToolSpec] = list(builtin_registry().specs())
    assert len(by_wire_name(spec.name for spec in specs)) == len(specs)


@pytest.mark.parametrize(
    ("offered", "found"),
    [
        (["workspace_read"], "workspace_read"),
        (["mcp__codesdk__workspace_read", "workspace_read"], "workspace_read"),
        (["mcp__codesdk__workspace_read"], "mcp__codesdk__workspace_read"),
        (["codesdk.workspace_read"], "codesdk.workspace_read"),
        (["codesdk-workspace_read"], "codesdk-workspace_read"),
        (["workspace.read"], "workspace.read"),
        (["workspace_read_all", "otherworkspace_read"], None),
        ([], None),
    ],
)
def test_a_tool_is_recognized_in_each_runtimes_spelling(offered: list[str], found: str | None):
    assert offered_as("workspace.read", offered) == found


def test_names_follow_our_rules_stay_short_and_unique_and_are_the_same_every_time():
    def names(*given: tuple[str, str]) -> list[str]:
        taken: set[str] = set()
        return [owned_name(server, tool, taken) for server, tool in given]

    assert names(("git-hub", "createIssue"), ("x", "3d"), ("X9", "äöü"), ("x", "HTTPGet")) == [
        "mcp.git_hub.create_issue",
        "mcp.x.t_3d",
        "mcp.x9.t",
        "mcp.x.httpget",
    ]
    clash = names(("a", "b_c"), ("a_b", "c"), ("a", "b-c"))
    assert clash[0] == "mcp.a.b_c"
    assert len({wire_name(name) for name in clash}) == 3
    long = names(("server", "a_tool_with_a_very_long_name_that_goes_on_and_on_and_on"), ("server", "x" * 200))
    assert all(len(name) <= 48 for name in long)
    assert names(("a", "b_c"), ("a_b", "c"), ("a", "b-c")) == clash
