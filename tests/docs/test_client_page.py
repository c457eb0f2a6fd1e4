"""The programs on the page about the client run as printed, and its table of commands is the whole list."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.daemon.rig import daemon

from codesdk.cli.app import _ENTRIES, HERE_ONLY
from codesdk.client import connection, stream
from codesdk.daemon.settings import DaemonSettings

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
OUTPUTS = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_an_example_runs_as_printed(tmp_path: Path, number: int):
    with daemon(tmp_path / "data") as running:
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAMS[number]],
            cwd=tmp_path,
            env=os.environ | {"CODESDK_URL": running.url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ran.stderr, ran.stdout) == ("", OUTPUTS[number])


def test_every_command_is_in_the_table():
    table = PAGE[PAGE.index("| commands |") :]
    rows = [set(re.findall(r"`([a-z]+)(?: \w+)?`", row)) for row in table.splitlines()[2:5]]
    assert set().union(*rows) == set(_ENTRIES)
    assert rows[1] == HERE_ONLY


def test_the_times_are_those_of_the_code():
    assert f"silent for {stream.SILENCE_S:.0f} seconds (three heartbeats)" in PAGE
    assert stream.SILENCE_S == 3 * DaemonSettings().heartbeat_s
    assert f"a pause that grows to {connection.LONGEST_PAUSE_S:.0f} seconds" in PAGE
    assert f"for up to {connection.PATIENCE_S:.0f} seconds" in PAGE
