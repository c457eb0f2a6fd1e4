"""The page on testing: its examples run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.testing.test_conformance import EXCLUDED

from codesdk.testing.conformance import MATRIX, PROGRAM_CELLS, RUNTIME_CELLS

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
EXAMPLES = {
    "test_app.py": "ok\n",
    "test_runtime.py": "It says: Hello\n[('fake.read', {'path': 'a.txt'})]\n",
    "test_tools.py": "Cancelled: the task was stopped while this ran.\nstopped True\n",
    "test_chaos.py": "ok\n",
    "test_my_runtime.py": "".join(
        f"unsupported: {name} {EXCLUDED[name]}\n" if name in EXCLUDED else f"pass: {name}\n"
        for name in RUNTIME_CELLS
    ),
    "test_my_log.py": "all cells pass\n",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_should(name: str, tmp_path: Path):
    (code,) = re.findall(rf"```python\n# {name}\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / name).write_text(code)
    done = subprocess.run(
        [sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == (EXAMPLES[name], "")


def test_every_example_is_run():
    assert sorted(re.findall(r"```python\n# (\S+)\n", PAGE)) == sorted(EXAMPLES)


def test_every_row_of_the_matrix_is_explained_and_says_of_whom_it_is_asked():
    table = re.search(
        r"\| row \| asked of \| what it shows \|\n\|---\|---\|---\|\n(.*?)\n\n", PAGE, re.DOTALL
    )
    assert table is not None
    told = [tuple(cell.strip() for cell in row.strip("| ").split("|")[:2]) for row in table[1].splitlines()]
    asked = {True: {True: "both", False: "runtimes"}, False: {True: "programs"}}
    assert told == [(row, asked[row in RUNTIME_CELLS][row in PROGRAM_CELLS]) for row in MATRIX]
