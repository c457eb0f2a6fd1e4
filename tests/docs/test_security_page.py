"""The page on security names tests that are there, and sends readers to pages that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_attack_says_which_test_tries_it_and_that_test_is_there():
    rows = [line for line in PAGE.split("## The attacks")[1].splitlines() if line.startswith("| ")]
    attacks = [row for row in rows if not row.startswith("| attack |")]
    assert len(attacks) > 60
    assert [row for row in attacks if "tests/" not in row and "make soak" not in row] == []
    named = {name.split("::")[0] for name in re.findall(r"`(tests/[^`]+)`", PAGE)}
    assert [name for name in sorted(named) if not any(ROOT.glob(name))] == []


def test_links_lead_somewhere():
    targets = {target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", PAGE)}
    assert [target for target in sorted(targets) if not (ROOT / "docs" / target).exists()] == []
