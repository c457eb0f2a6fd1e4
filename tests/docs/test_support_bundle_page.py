"""What the page on support bundles shows is what happens, and its table is what is in one."""

import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.cli.shell import Shell

PAGE = (Path(__file__).parents[2] / "docs" / "support-bundle.md").read_text()


def test_the_example_prints_what_the_page_says_and_the_commands_work(tmp_path: Path):
    (program,) = re.findall(r"<!-- run -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", printed)
    shell = Shell(tmp_path)
    (commands,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for command in commands.strip().split("\n"):
        ran = shell.codesdk(*shlex.split(command.removeprefix("$ codesdk ")))
        assert (ran.code, ran.err) == (0, "")
    listed = set(re.findall(r"`([a-z]+\.jsonl?|[a-z]+/\*[a-z.]*)`", PAGE.split("## ")[1]))
    with tarfile.open(tmp_path / "bundle.tar.gz") as tar:
        names = [name.partition("/")[2] for name in tar.getnames()]
    found = {name if "/" not in name else name.partition("/")[0] for name in names}
    assert found <= {name.partition("/")[0] for name in listed}
    assert {"events", "artifacts"} < found
