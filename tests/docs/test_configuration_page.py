"""docs/configuration.md: its tables are those of the settings, and its file is one that works."""

import re
from pathlib import Path

from tests.docs.settings_page import PAGE, fill

from codesdk.cli.codesdkd import codesdkd
from codesdk.cli.settings import use
from codesdk.cli.settings.resolved import resolve
from codesdk.cli.settings.table import DAEMON

TEXT = PAGE.read_text()


def test_the_tables_are_those_of_the_settings():
    assert fill(TEXT) == TEXT, "if meant: .venv/bin/python -m tests.docs.settings_page"
    assert [setting.key for setting in DAEMON if f"| `{setting.key}` |" not in TEXT] == []


def test_the_file_that_is_shown_works(tmp_path: Path):
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "codesdk.toml"
    path.write_text(example)
    with codesdkd.make_context("codesdkd", []) as ctx:
        settings = resolve(DAEMON, ctx, path)
    run = use.commands(settings)
    assert run is not None
    assert (run.sandbox, run.limits.wall_s) == ("oci", 300)
    assert use.limits(settings).max_tasks == 64
    assert use.daemon(settings).port == 8765
    assert use.opening(settings)["fetch"] is not None
