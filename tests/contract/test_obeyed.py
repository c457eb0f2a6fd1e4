"""Whatever programs of the host run or obey is reported when a command makes it, and asked about when a tool edits it."""

from pathlib import Path

import pytest

from codesdk.contract.obeyed import OBEYED, OBEYED_ROOTS
from codesdk.contract.ports import PolicyQuestion
from codesdk.contract.tools import Subjects
from codesdk.contract.workspace import Workspace
from codesdk.policy import all_opinions, decide, preset_policy
from codesdk.runtimes import entries
from codesdk.sandbox import TriggerWatch
from codesdk.testing.traps import traps

READ = {
    ".env",
    *(name for e in entries().values() for name in (*e.instructions.captured, *e.instructions.others)),
}
"""What the workspace that takes agents over has for them to read, and what belongs to the work."""


@pytest.mark.parametrize("place", OBEYED)
def test_a_change_is_reported_with_the_place_and_the_program(tmp_path: Path, place: str):
    file = tmp_path / (f"{place}made" if place.endswith("/") else place)
    file.parent.mkdir(parents=True, exist_ok=True)
    watch = TriggerWatch(Workspace(str(tmp_path)))
    file.write_text("x")
    said = watch.warning() or ""
    assert place in said.split(": ", 2)[2].split(". Look")[0].split(", ")
    assert OBEYED[place] in said
    watch = TriggerWatch(Workspace(str(tmp_path)))
    file.write_text("y")
    assert place in (watch.warning() or "")


@pytest.mark.parametrize("tool", ["workspace.write", "workspace.edit", "patch.apply"])
@pytest.mark.parametrize("place", [*OBEYED, *OBEYED_ROOTS, *sorted(set(traps(str)) - READ)])
def test_an_edit_of_it_is_asked_about(place: str, tool: str):
    name = f"{place}made" if place.endswith("/") else place
    assert [_decided(tool, path) for path in (name, f"sub/{name}")] == ["ask", "ask"]
    assert _decided(tool, name.replace(".", "x")) == "allow"


def test_folders_of_all_runtimes_are_in_the_table():
    found = {folder for entry in entries().values() for folder in entry.instructions.folders}
    assert found <= set(OBEYED_ROOTS)


def _decided(tool: str, path: str) -> str:
    question = PolicyQuestion(
        session_id="",
        name=tool,
        tool_class="write",
        input={},
        permission_mode="auto",
        subjects=Subjects(paths=["README.md", path]),
    )
    return decide(all_opinions(question, preset_policy("edits").evaluate(question))).result


def test_the_page_on_the_sandbox_lists_the_table():
    page = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text()
    table = page.split("| place | who runs or obeys it |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert {place: program for places, program in rows for place in places.strip("`").split("`, `")} == OBEYED
