"""The table of attacks on the page, against the attacks as they are tested."""

import re
from pathlib import Path

from tests.sandbox.attacks import ATTACKS

PAGE = Path(__file__).parents[2] / "docs" / "sandbox.md"


def _rows() -> dict[int, str]:
    """Return the last column of the table, by number."""
    table = PAGE.read_text().split("<!-- attacks: bubblewrap -->")[1].split("\n\n")[0]
    found = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", table, re.MULTILINE)
    return {int(number): cell for number, cell in found}


def test_every_attack_has_its_row():
    assert list(_rows()) == list(range(1, 43))


def test_what_a_row_says_is_what_the_attack_must_get():
    rows = _rows()
    missing = {
        (attack.row, word)
        for attack in ATTACKS
        for word in attack.expected["bubblewrap"]
        if f"`{word}`" not in rows[attack.row]
    }
    assert missing == set()


def test_a_row_says_so_if_an_attack_is_not_stopped():
    rows = _rows()
    reached = {attack.row for attack in ATTACKS if "REACHED" in attack.expected["bubblewrap"]}
    assert reached == {34}
    assert {row for row, cell in rows.items() if "**not stopped**" in cell} == {*reached, 19, 20, 22}


def test_the_page_says_where_containers_differ():
    table = PAGE.read_text().split("<!-- attacks: oci -->")[1].split("\n\n")[0]
    cells = {
        int(number): cell for number, cell in re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", table, re.MULTILINE)
    }
    differing = {
        attack.row: attack for attack in ATTACKS if attack.expected["oci"] != attack.expected["bubblewrap"]
    }
    assert differing.keys() <= cells.keys()
    assert all(
        f"`{word}`" in cells[row] for row, attack in differing.items() for word in attack.expected["oci"]
    )
