"""read, write, edit and bash, as a model uses them: what it is told, what is kept, what is refused."""

import asyncio
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
from tests.minicode.tools.rig import Bench, failed, is_alive, said, size_of
from tests.sandbox.bubblewrap.test_sandbox import alive
from tests.sandbox.stage import open_directory

from codesdk.contract.errors import InvalidRequest
from codesdk.minicode.config import SandboxSettings, ToolLimits
from codesdk.minicode.tools import find_workspace
from codesdk.sandbox.owner import SANDBOX_USER

PATH = {"PATH": os.environ["PATH"]}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, env=PATH)


def host(root: Path, **limits: int) -> Bench:
    """Return a bench whose commands run on the host."""
    return Bench(root, ToolLimits(**limits), env=PATH)


def test_the_four_tools_are_offered_with_schemas_that_every_provider_takes(bench: Bench):
    shapes = {
        each.name: {
            "required": each.input_schema.get("required"),
            "types": {name: field["type"] for name, field in each.input_schema["properties"].items()},
        }
        for each in bench.executor.definitions()
    }
    assert shapes == {
        "read": {
            "required": ["file_path"],
            "types": {"file_path": "string", "offset": "integer", "limit": "integer"},
        },
        "write": {
            "required": ["file_path", "content"],
            "types": {"file_path": "string", "content": "string"},
        },
        "edit": {
            "required": ["file_path", "old_text", "new_text"],
            "types": {"file_path": "string", "old_text": "string", "new_text": "string"},
        },
        "bash": {"required": ["command"], "types": {"command": "string", "timeout_ms": "integer"}},
    }
    text = str([each.input_schema for each in bench.executor.definitions()])
    assert not any(word in text for word in ("anyOf", "oneOf", "$ref", "additionalProperties': {"))


async def test_a_file_is_written_read_and_edited(bench: Bench):
    made = await bench.use("write", file_path="src/a.txt", content="one\ntwo\n")
    assert made == said(
        "Created src/a.txt (8 bytes).",
        {
            "changes": [
                {"path": "src/a.txt", "diff": "--- /dev/null\n+++ b/src/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"}
            ]
        },
    )
    assert await bench.use("read", file_path="src/a.txt", offset=2) == said(
        "     2\ttwo", {"path": "src/a.txt", "offset": 2, "limit": 2000}
    )
    edited = await bench.use("edit", file_path="src/a.txt", old_text="two", new_text="2")
    assert edited.output_message == "Edited src/a.txt at line 2."
    assert (bench.cwd / "src" / "a.txt").read_text() == "one\n2\n"


async def test_an_absolute_path_inside_the_directory_is_as_good_as_a_relative_one(
    bench: Bench, tmp_path: Path
):
    (tmp_path / "link").symlink_to(bench.cwd)
    for path in (bench.cwd / "a.txt", tmp_path / "link" / "a.txt", bench.cwd / "x" / ".." / "a.txt"):
        assert (await bench.use("write", file_path=str(path), content="x")).ok
        assert (await bench.use("read", file_path=str(path))).output_message == "     1\tx"
    assert [path.name for path in bench.cwd.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../outside.txt", "a/../../outside.txt", "link/outside.txt", "a\0b"]
)
@pytest.mark.parametrize("tool", ["read", "write", "edit"])
async def test_no_path_leads_out_of_the_directory(bench: Bench, tmp_path: Path, path: str, tool: str):
    (tmp_path / "outside.txt").write_text("secret")
    (bench.cwd / "link").symlink_to(tmp_path)
    more = {"read": {}, "write": {"content": "x"}, "edit": {"old_text": "secret", "new_text": "x"}}[tool]
    output = await bench.use(tool, file_path=path, **more)
    assert not output.ok
    assert output.output_message.startswith("Cannot use the path ")
    assert (tmp_path / "outside.txt").read_text() == "secret"


async def test_a_mismatch_is_explained_in_the_words_of_the_tool(bench: Bench):
    (bench.cwd / "a.txt").write_text("x\nx\n")
    assert await bench.use("edit", file_path="a.txt", old_text="y", new_text="z") == failed(
        "The old text was not found in a.txt. Nothing was changed. Read the file again and copy the text exactly."
    )
    assert await bench.use("edit", file_path="a.txt", old_text="x", new_text="z") == failed(
        "The old text occurs 2 times in a.txt, on lines 1, 2. Nothing was changed. Add lines around it until it"
        " occurs once."
    )


async def test_a_long_file_is_read_in_parts_and_the_model_is_told_how(tmp_path: Path):
    bench = host(tmp_path, max_shown_chars=1000)
    (bench.cwd / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 200)))
    output = await bench.use("read", file_path="long.txt")
    lines = output.output_message.split("\n")
    assert len(output.output_message) < 1000
    assert lines[-1] == f"(lines 1-{len(lines) - 1} of 199; for more use offset {len(lines)})"
    assert output.meta is None


async def test_bash_says_how_it_ended_and_what_was_said(bench: Bench):
    assert await bench.use("bash", command="echo out; echo err >&2; exit 3") == failed(
        "Exit code 3 after T s.\n--- stdout ---\nout\n--- stderr ---\nerr", {"exit_code": 3}
    )
    assert await bench.use("bash", command="echo $0; shopt -q login_shell && pwd") == said(
        f"Exit code 0 after T s.\n--- stdout ---\nbash\n{bench.cwd}", {"exit_code": 0}
    )


async def test_commands_get_the_environment_without_the_keys(tmp_path: Path):
    keys = {"OPENAI_API_KEY": "k1", "GEMINI_API_KEY": "k2", "OPENAI_COMPATIBLE_API_KEY": "k3"}
    bench = Bench(tmp_path, env=PATH | keys | {"EDITOR": "vi"})
    output = await bench.use("bash", command="env | grep -c -E '_API_KEY'; echo $EDITOR")
    assert output.output_message == "Exit code 0 after T s.\n--- stdout ---\n0\nvi"


async def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path):
    bench = host(tmp_path, max_timeout_ms=300)
    token = f"1000.{os.getpid()}"
    output = await bench.use("bash", command=f"sleep {token} & wait", timeout_ms=900_000)
    assert output == failed(
        "Exit code 137 after T s. It was stopped because its time was up.", {"exit_code": 137}
    )
    assert alive(token) == []


@pytest.mark.slow
async def test_a_cancelled_command_is_gone_with_all_that_it_started(bench: Bench):
    os.mkfifo(bench.cwd / "began")
    running = asyncio.create_task(bench.use("bash", command="sleep 1000 & echo $! > began; wait"))
    child = int(await asyncio.to_thread((bench.cwd / "began").read_text))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_alive(child)


@pytest.mark.slow
async def test_100_mb_of_output_cost_no_more_memory_than_is_allowed(tmp_path: Path):
    bench = host(tmp_path, max_output_bytes=1_000_000)
    tracemalloc.start()
    try:
        output = await bench.use("bash", command="yes 0123456789 | head -c 100000000")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not output.ok
    assert "It was stopped because it wrote too much." in output.output_message
    assert len(output.output_message) < 31_000
    assert peak < 20_000_000
    assert output.meta is not None
    path = output.meta["artifact"]["path"]
    assert 1_000_000 <= size_of(path) <= 1_000_200
    assert path.startswith(f"{bench.artifacts}/ses/bash-output-")


async def test_a_long_output_is_shortened_and_all_of_it_can_be_read(tmp_path: Path):
    bench = host(tmp_path, max_shown_chars=1000)
    output = await bench.use("bash", command="seq 1 1000; echo last words >&2")
    assert output.meta is not None
    path = output.meta["artifact"]["path"]
    assert output.output_message.startswith("Exit code 0 after T s.\n--- stdout ---\n1\n2\n")
    assert output.output_message.endswith("--- stderr ---\nlast words")
    assert f" characters left out; all of it is in {path}) …" in output.output_message
    shown = await bench.use("read", file_path=path, offset=502, limit=1)
    assert shown.output_message.splitlines()[0] == "   502\t500"
    assert (await bench.use("write", file_path=path, content="x")).ok is False


async def test_a_directory_that_vanished_is_one_clear_error(bench: Bench):
    shutil.rmtree(bench.cwd)
    for name, given in [
        ("read", {"file_path": "a"}),
        ("write", {"file_path": "a", "content": ""}),
        ("edit", {"file_path": "a", "old_text": "a", "new_text": "b"}),
    ]:
        assert await bench.use(name, **given) == failed(
            'Cannot use the path "a": the workspace cannot be opened: project does not exist.'
        )
    assert await bench.use("bash", command="true") == failed(
        "The command was not run: the workspace cannot be opened: project does not exist."
    )
    with pytest.raises(InvalidRequest, match=r"does not exist\. Name a directory that is there as cwd\."):
        find_workspace(bench.cwd)


async def test_another_directory_in_its_place_is_not_taken_for_it(bench: Bench, tmp_path: Path):
    bench.cwd.rename(tmp_path / "moved")
    bench.cwd.mkdir()
    for output in (
        await bench.use("write", file_path="a", content="x"),
        await bench.use("bash", command="touch a"),
    ):
        assert "the workspace was replaced by another directory" in output.output_message
    assert list(bench.cwd.iterdir()) == []


async def test_in_a_sandbox_a_command_has_no_network_no_home_and_no_variables():
    with open_directory() as root:
        (root / "project").mkdir()
        if os.geteuid() == 0:
            os.chown(root / "project", *SANDBOX_USER)
        bench = Bench(root, settings=SandboxSettings(backend="bubblewrap"), env=PATH | {"SECRET": "x"})
        (bench.cwd / "a.txt").write_text("inside\n")
        command = f"cat a.txt; echo [$SECRET]; ls {Path.home()} {root}/artifacts 2>&1 | grep -c 'No such'; cat /proc/net/dev | grep -c eth"
        output = await bench.use("bash", command=command)
    assert output.output_message.split("--- stdout ---\n")[1] == "inside\n[]\n2\n0"
