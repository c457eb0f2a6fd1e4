"""docs/policy-channel.md: its program runs as printed, its options, codes, types and limits are those of the code."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from tests.cli.shell import Shell

from codesdk.channel import ArbiterLimits, read_event
from codesdk.channel.diagnostics import KEPT_FILES
from codesdk.channel.framing import MAX_LINE_BYTES
from codesdk.channel.process import TAIL_BYTES
from codesdk.channel.protocol import MARKER, PolicyCommand, ToolEvent
from codesdk.channel.states import State
from codesdk.cli.commands import wrap

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "policy-channel.md").read_text()


@pytest.mark.parametrize(
    ("mode", "said"), [("auto", "characters: 5\n"), ("ask", "not allowed: Nobody can be asked")]
)
def test_the_program_on_the_page_runs_as_printed(tmp_path: Path, mode: str, said: str):
    (example,) = re.findall(r"<!-- run -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    shell = Shell(tmp_path)
    (tmp_path / "program.py").write_text(example)
    (tmp_path / "notes.txt").write_text("notes")
    ran = shell.spawn("wrap", "--mode", mode, "--", sys.executable, "program.py")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(said)


def test_the_program_in_node_asks_and_obeys(tmp_path: Path):
    assert shutil.which("node"), "node is among the system's packages"
    shell = Shell(tmp_path)
    (tmp_path / "README.md").write_text("seven..")
    producer = str(ROOT / "examples" / "policy_channel" / "producer.mjs")
    ran = shell.spawn("wrap", "--mode", "auto", "--", "node", producer, "README.md")
    first, second = ran.out.splitlines()
    assert (ran.code, first) == (0, "fs.read: 7 bytes"), ran.err
    assert second.startswith("shell: no (Nobody can be asked")
    alone = subprocess.run(
        ["node", producer], input=b"", capture_output=True, cwd=tmp_path, check=True, timeout=60
    )
    assert b"fs.read: no (nobody decides any more)" in alone.stdout


def test_the_table_of_options_is_that_of_the_command():
    told = set(re.findall(r"`(--[a-z-]+)`", PAGE.partition("## Wrapping")[2].partition("**Questions**")[0]))
    # Where sessions are is asked of every command, and shown in the help of none.
    shown = [option for option in wrap.wrap.params if not vars(option).get("hidden")]
    own = {option.opts[0] for option in shown if option.opts[0].startswith("--")}
    assert told == own
    limits = ArbiterLimits()
    assert f"seconds after which no answer is a no: {limits.decision_s:g}" in PAGE
    assert f"between the steps of an abort: {limits.grace_s:g}" in PAGE
    assert f"before that is an abort: {limits.max_parse_errors}" in PAGE


def test_the_exit_codes_are_those_of_the_command():
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    own = {wrap.USAGE, wrap.CONFIGURATION, wrap.NOT_RUN, wrap.POLICY_FAILURE, wrap.INTERNAL, 130}
    assert told == own


def test_every_message_has_its_row_with_its_fields():
    rows = dict(re.findall(r"^\| `((?:tool|policy)\.\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    common = {"v", "ts", "id", "run_id", "trace", "nonce"}
    for kind in (*get_args(ToolEvent), *get_args(PolicyCommand)):
        named = set(re.findall(r"`([a-z_]+)`", re.sub(r"\(.*?\)", "", rows.pop(kind.__struct_config__.tag))))
        assert named == set(kind.__struct_fields__) - common
    assert rows == {}


def test_the_lines_on_the_page_are_events():
    (block,) = re.findall(r"<!-- lines -->\n```\n(.*?)```", PAGE, re.DOTALL)
    lines = block.encode().splitlines()
    assert [read_event(line)[1] for line in lines] == [None, None]
    assert all(json.loads(line.removeprefix(MARKER))["id"] == "t-1" for line in lines)


def test_the_limits_and_states_on_the_page_are_those_of_the_code():
    limits = ArbiterLimits()
    assert f"An event may have {MAX_LINE_BYTES // 1024 // 1024} MiB" in PAGE
    assert (
        f"more than {limits.max_waiting:,} requests waiting, or {limits.max_waiting_bytes // 1024 // 1024} MiB"
        in PAGE
    )
    assert f"does not read it for {limits.write_s:g} s" in PAGE
    assert f"`policy.ping`, {limits.probe_s:g} s, abort" in PAGE
    assert f"the last {TAIL_BYTES // 1024} KiB of stdout" in PAGE
    assert f"the newest {KEPT_FILES} are kept" in PAGE
    for state in get_args(State):
        assert f"`{state}`" in PAGE
