"""Which files of a workspace, and of a runtime's own folders, may be behind what a request says."""

from pathlib import Path

from codesdk.contract.models import NO_SOURCES, InstructionSources
from codesdk.contract.workspace import Workspace
from codesdk.gateway.capture.source_files import MAX_DEPTH, read_sources
from codesdk.sandbox import identify


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_files_are_found_by_the_names_and_folders_that_a_runtime_reads(tmp_path: Path):
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    write(workspace, "TOY.md", "deep/er/toy.md", ".toy/rules/any.md", ".toy/not.txt", "README.md", "OTHER.md")
    write(workspace, ".hidden/TOY.md", "node_modules/TOY.md", f"{'d/' * (MAX_DEPTH + 1)}TOY.md")
    write(home, "any.md", "not.txt")
    sources = InstructionSources(names=("TOY.md",), folders=(".toy",), outside={"home": str(home)})
    assert read_sources(Workspace(str(workspace)), sources) == {
        "workspace/TOY.md": b"TOY.md",
        "workspace/deep/er/toy.md": b"deep/er/toy.md",
        "workspace/.toy/rules/any.md": b".toy/rules/any.md",
        "home/any.md": b"any.md",
    }


def test_a_runtime_that_tells_nothing_has_no_candidates(tmp_path: Path):
    write(tmp_path, "CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md")
    assert read_sources(Workspace(str(tmp_path)), NO_SOURCES) == {}


def test_links_are_not_followed_and_what_is_missing_is_no_error(tmp_path: Path):
    write(tmp_path, "secret.txt")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "TOY.md").symlink_to(tmp_path / "secret.txt")
    sources = InstructionSources(names=("TOY.md",), outside={"home": str(tmp_path / "nowhere")})
    assert read_sources(Workspace(str(tmp_path / "workspace")), sources) == {}


def test_nothing_is_found_in_what_took_the_place_of_the_workspace(tmp_path: Path):
    write(tmp_path, "outside/TOY.md", "workspace/TOY.md")
    workspace = identify(Workspace(str(tmp_path / "workspace")))
    sources = InstructionSources(names=("TOY.md",))
    assert read_sources(workspace, sources) == {"workspace/TOY.md": b"workspace/TOY.md"}
    (tmp_path / "workspace").rename(tmp_path / "before")
    (tmp_path / "workspace").symlink_to(tmp_path / "outside")
    assert read_sources(workspace, sources) == {}


def test_a_runtimes_own_folder_may_be_reached_through_a_link(tmp_path: Path):
    write(tmp_path, "kept/any.md", "workspace/OTHER.md")
    (tmp_path / "home").symlink_to(tmp_path / "kept")
    sources = InstructionSources(names=("TOY.md",), outside={"home": str(tmp_path / "home")})
    assert read_sources(Workspace(str(tmp_path / "workspace")), sources) == {"home/any.md": b"kept/any.md"}
