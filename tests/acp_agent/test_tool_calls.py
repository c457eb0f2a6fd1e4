"""Tool calls and updates as an editor is shown them: pure functions, checked alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from acp.schema import AgentMessageChunk, ToolCallProgress
from hypothesis import given, strategies as st

from codesdk.acp_agent.chunks import Update, merged, message_chunk, thought_chunk
from codesdk.acp_agent.tool_calls import (
    MAX_SHOWN_CHARS,
    Edit,
    differences,
    edits_in,
    kind_of,
    locations_of,
    paths_in,
    preview,
    title_of,
)
from codesdk.tools.workspace.diff import unified

PATCH = """--- a/one.txt
+++ b/one.txt
@@ -1,3 +1,3 @@
 same
--- a line that looks like a header
+++ and so does this
 end
@@ -10 +10 @@
-x
+y
--- /dev/null
+++ b/new.txt
@@ -0,0 +1,2 @@
+a
+b
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
"""


def test_the_hunks_of_a_patch_are_edits_of_their_files():
    assert edits_in(PATCH) == [
        Edit(
            path="one.txt",
            old="same\n-- a line that looks like a header\nend\n",
            new="same\n++ and so does this\nend\n",
        ),
        Edit(path="one.txt", old="x\n", new="y\n"),
        Edit(path="new.txt", old=None, new="a\nb\n"),
        Edit(path="old.txt", old="gone\n", new=""),
    ]
    assert paths_in({"patch": PATCH}) == ["one.txt", "new.txt", "old.txt"]
    assert edits_in("no patch at all\n@@ nothing @@") == []


LINES = st.lists(
    st.sampled_from(["a\n", "b\n", "-c\n", "--- d\n", "+++ e\n", "@@ -1 +1 @@\n", "\n"]), max_size=12
)


@given(LINES, LINES)
def test_a_difference_of_ours_is_read_back_as_what_was_and_what_is(before: list[str], after: list[str]):
    old, new = "".join(before), "".join(after)
    for edit in edits_in(unified("f.txt", old.encode(), new.encode())):
        assert edit.path == "f.txt"
        assert edit.old is not None
        assert edit.old in old
        assert edit.new in new


@pytest.mark.parametrize(
    ("name", "tool_class", "kind"),
    [
        ("workspace.read", "read_only", "read"),
        ("workspace.search", "read_only", "search"),
        ("workspace.exec", "dangerous", "execute"),
        ("http.fetch", "network", "fetch"),
        ("patch.apply", "write", "edit"),
        ("user.ask", "read_only", "other"),
        ("mcp.x.y", "dangerous", "other"),
        ("mcp.x.y", "read_only", "read"),
        ("Bash", None, "other"),
    ],
)
def test_the_kind_of_a_tool(name: str, tool_class: Any, kind: str):
    assert kind_of(name, tool_class) == kind


@pytest.mark.parametrize(
    ("given_input", "title"),
    [
        ({"path": "a.txt"}, "tool a.txt"),
        ({"argv": ["ls", "-l", 1]}, "tool ls -l 1"),
        ({"pattern": "two\nlines"}, "tool two lines"),
        ({"path": 7, "url": "http://x"}, "tool http://x"),
        ({}, "tool"),
        (None, "tool"),
        (["x"], "tool"),
        ({"path": "x" * 500}, "tool " + "x" * 114 + "…"),
    ],
)
def test_a_title_is_one_line_about_what_is_done(given_input: Any, title: str):
    assert title_of("tool", given_input) == title


@pytest.mark.parametrize(
    "given_input", [None, [], {"path": 7, "new": "x"}, {"path": "a"}, {"path": "a", "content": "x" * 70_000}]
)
def test_no_change_is_shown_where_none_can_be_told(given_input: Any):
    assert preview("/w", "workspace.write", given_input) == []


def test_places_are_absolute_and_a_huge_difference_is_cut():
    assert [place.path for place in locations_of("/w", ["a.txt", "/b.txt"])] == ["/w/a.txt", "/b.txt"]
    (cut,) = differences("/w", "+" * (MAX_SHOWN_CHARS + 1))
    assert cut.type == "content"


def progress(call: str, **fields: Any) -> ToolCallProgress:
    return ToolCallProgress(session_update="tool_call_update", tool_call_id=call, **fields)


def test_neighbours_are_joined_and_others_are_not():
    updates: list[Update] = [
        message_chunk("a", "1"),
        message_chunk("b", "1"),
        message_chunk("c", "2"),
        thought_chunk("d", "2"),
        message_chunk("e"),
        message_chunk("f"),
        progress("x", content=[]),
        progress("x", content=[], raw_output="later"),
        progress("y", content=[]),
        progress("y", status="completed"),
    ]
    found = merged(updates)
    texts = [update.content.text for update in found if isinstance(update, AgentMessageChunk)]
    assert texts == ["ab", "c", "e", "f"]
    calls = [(u.tool_call_id, u.raw_output, u.status) for u in found if isinstance(u, ToolCallProgress)]
    assert calls == [("x", "later", None), ("y", None, None), ("y", None, "completed")]


def test_the_types_of_the_protocol_are_loaded_for_this_command_only():
    program = (
        "import sys; from codesdk.cli.app import group; group.main(['acp', '--help'], standalone_mode=False);"
        "import codesdk.daemon, codesdk.acp_agent; codesdk.daemon.serve;"
        "assert not {'acp', 'pydantic'} & set(sys.modules), 'loaded'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
