"""The page on scripts: its example runs, and it names every step."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from codesdk.script import load_script, model as m

PAGE = (Path(__file__).parents[2] / "docs" / "script.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_runs_as_it_is_printed(tmp_path):
    (tmp_path / "demo.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "play.py").write_text(blocks("python")[0])
    done = subprocess.run(
        [sys.executable, "play.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "OutputDelta",
        "OutputDelta",
        "OutputDelta",
        "workspace.read →      1\tHelo, world",
        "OutputCompleted",
        "UsageReported",
        "OutputDelta",
        "workspace.edit → Edited hello.txt at line 1.",
        "OutputCompleted",
        "OutputDelta",
        "OutputCompleted",
        "UsageReported",
        "finished: end_turn",
    ]
    assert (tmp_path / "hello.txt").read_text() == "Hello, world\n"
    assert load_script(tmp_path / "demo.yaml").name == "Fix the greeting"


def test_every_step_and_field_is_on_the_page():
    kinds = get_args(m.PlainStep) + get_args(m.RuntimeOnlyStep) + get_args(m.GatewayOnlyStep)
    names = [kind.__struct_config__.tag for kind in kinds]
    names += [*m.Script.__struct_fields__, *m.Turn.__struct_fields__, *m.Expect.__struct_fields__]
    names += m.Usage.__struct_fields__
    assert [name for name in names if not re.search(rf"`[^`]*\b{name}\b[^`]*`", PAGE)] == []
