"""What the page on metrics, logs and traces shows runs, and its tables are what there is."""

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.observe.test_metrics import NAMES
from tests.observe.test_traces import collector

PAGE = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def programs() -> list[str]:
    return re.findall(r"<!-- run -->\n```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_first_example_prints_metrics_and_logs_a_line(tmp_path: Path):
    ran = run(programs()[0], tmp_path)
    assert set(re.findall(r"^# TYPE (\S+)", ran.stdout, re.MULTILINE)) == set(NAMES)
    (line,) = ran.stderr.split("\n")[:-1]
    assert json.loads(line)["message"] == "The task is done."


def test_the_second_example_sends_spans_to_a_collector(tmp_path: Path):
    with collector() as (endpoint, got):
        ran = run(programs()[1].replace("http://127.0.0.1:4318/v1/traces", endpoint), tmp_path)
    assert ran.stderr == ""
    assert [path for path, _ in got] == ["/v1/traces"]
    assert b"my-service" in got[0][1]


def test_the_page_lists_all_metrics_and_no_others():
    rows = re.findall(r"^\| `(codesdk_\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert dict(rows) == NAMES
