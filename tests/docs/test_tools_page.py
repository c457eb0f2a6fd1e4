"""What the page on workspace.exec and http.fetch shows, runs."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tools-exec-fetch.md"


def test_the_example_runs_as_printed(tmp_path: Path):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.stdout) == ("", "CodeSDK has both tools\n")
