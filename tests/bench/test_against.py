"""Two sides are compared by what their own rounds are apart; how fast anything is, is no matter for a test."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.against import compare, verdict

ROOT = Path(__file__).parents[2]
TIME, RATE = ("here", "a task", "ms"), ("here", "events", "/s")
STEADY, UP, DOWN = [100.0, 101.0, 99.0, 100.5], [120.0, 121.0, 119.0, 120.5], [80.0, 81.0, 79.0, 80.5]
WILD = [60.0, 140.0, 100.0, 160.0]


@pytest.mark.parametrize(
    ("key", "before", "after", "word"),
    [
        (TIME, STEADY, STEADY, "same"),
        (TIME, STEADY, UP, "slower"),
        (TIME, STEADY, DOWN, "faster"),
        (RATE, STEADY, UP, "faster"),
        (RATE, STEADY, DOWN, "slower"),
        (TIME, WILD, UP, "same"),
        (TIME, STEADY, WILD, "same"),
        (("here", "lost", "events"), [0.0, 0.0], [0.0, 0.0], "same"),
        (("here", "lost", "events"), [0.0, 0.0], [3.0, 3.0], "slower"),
    ],
)
def test_only_what_is_beyond_the_noise_is_slower(
    key: tuple[str, str, str], before: Sequence[float], after: Sequence[float], word: str
):
    assert compare(key, before, after).verdict == word


def test_one_sentence_says_what_changed():
    lines = [compare(TIME, STEADY, UP), compare(RATE, STEADY, STEADY)]
    assert verdict(lines) == "2 lines compared: 1 slower, 0 faster, 1 same. Slower: here, a task."


BENCH = """
import json, sys
figures, count = {figures}, open("rounds", "a+")
count.seek(0)
number = len(count.read())
count.write("x")
print(json.dumps(dict(bench=sys.argv[2], name="a task", figure=figures[number % len(figures)], unit="ms")))
print(json.dumps(dict(bench=sys.argv[2], name="only {name} has this", figure=1.0, unit="ms")))
"""


def checkout(home: Path, name: str, figures: Sequence[float]) -> Path:
    """Make a directory that looks like a checkout whose bench gives these figures, one in each round."""
    (home / name / "bench").mkdir(parents=True)
    (home / name / "bench" / "path.py").touch()
    (home / name / "bench" / "__main__.py").write_text(BENCH.format(figures=list(figures), name=name))
    (home / name / ".venv" / "bin").mkdir(parents=True)
    (home / name / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return home / name


def held(here: Path, other: Path, *options: str) -> tuple[int, str]:
    """Compare two checkouts with the code of this one."""
    code = (
        "import sys; from pathlib import Path; import bench.__main__ as m; "
        "m.ROOT = Path(sys.argv.pop(1)); sys.exit(m.main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(here), "path", "--against", str(other), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.returncode, ran.stdout


def rounds_of(directory: Path) -> int:
    return len((directory / "rounds").read_text())


def test_rounds_of_two_checkouts_take_turns_and_a_slower_line_is_measured_again(tmp_path: Path):
    here, other = checkout(tmp_path, "here", [20, 21, 22]), checkout(tmp_path, "other", [10, 11, 12])
    code, said = held(here, other, "--rounds", "3")
    assert (code, rounds_of(here), rounds_of(other)) == (1, 6, 6)
    assert "1 lines compared: 1 slower, 0 faster, 0 same. Slower: path, a task." in said
    assert "only" not in said
    code, said = held(other, here, "--rounds", "3")
    assert (code, rounds_of(here), rounds_of(other)) == (0, 9, 9)
    assert "0 slower, 1 faster" in said


def test_an_earlier_run_is_compared_by_the_rounds_that_it_kept(tmp_path: Path):
    here, kept = checkout(tmp_path, "here", [20, 21, 22]), tmp_path / "before.json"
    lines = [{"bench": "path", "name": "a task", "figure": 11.0, "unit": "ms", "rounds": [10.0, 11.0, 12.0]}]
    kept.write_text(json.dumps({"facts": {"quick": False}, "lines": lines}))
    code, said = held(here, kept, "--rounds", "3")
    assert (code, rounds_of(here)) == (1, 6)
    assert "11 ms" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read as figures of the bench"),
        ("{", "cannot be read as figures of the bench"),
        ('{"facts": {"quick": true}, "lines": []}', "a quick run and a whole one cannot be compared"),
    ],
    ids=["missing", "damaged", "quick"],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(tmp_path: Path, content: str | None, words: str):
    kept = tmp_path / "before.json"
    if content is not None:
        kept.write_text(content)
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "path", "--against", str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 2
    assert words in ran.stderr


def refused(*options: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "path", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    return ran.stderr


def test_one_round_of_each_side_is_refused_since_it_does_not_say_how_much_figures_vary(tmp_path: Path):
    other, kept = checkout(tmp_path, "other", [10]), tmp_path / "before.json"
    line = {"bench": "path", "name": "a task", "figure": 11.0, "unit": "ms"}
    kept.write_text(json.dumps({"facts": {"quick": False}, "lines": [line]}))
    for side in (other, kept):
        assert "give --rounds 2 or more" in refused("--against", str(side), "--rounds", "1")
    assert not (other / "rounds").exists()


def test_one_round_is_compared_with_several_of_an_earlier_run(tmp_path: Path):
    here, kept = checkout(tmp_path, "here", [11]), tmp_path / "before.json"
    line = {"bench": "path", "name": "a task", "figure": 11.0, "unit": "ms", "rounds": [10.0, 11.0, 12.0]}
    kept.write_text(json.dumps({"facts": {"quick": False}, "lines": [line]}))
    code, said = held(here, kept, "--rounds", "1")
    assert (code, rounds_of(here)) == (0, 1)
    assert "0 slower, 0 faster, 1 same" in said


def test_a_directory_without_a_bench_is_refused(tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "path", "--against", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 2
    assert "has no bench or no .venv" in ran.stderr
