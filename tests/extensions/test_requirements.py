"""Document 001 and the tests: each sentence is shown, and nothing else is claimed."""

import ast
from pathlib import Path

from tests.extensions.requirements import REQUIREMENTS


def shown() -> dict[str, list[str]]:
    """Return the requirements that the tests of this folder say they show, and by which tests."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "shows":
                    for name in mark.args:
                        found.setdefault(ast.literal_eval(name), []).append(node.name)
    return found


def test_every_sentence_is_shown_and_no_other():
    assert set(shown()) == set(REQUIREMENTS)
