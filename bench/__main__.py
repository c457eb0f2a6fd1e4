"""`python -m bench [NAME …] [--quick] [--rounds N] [--json FILE] [--against FILE_OR_DIRECTORY]`: run the measurements.

Prints the table, or what got slower than the other side. Each benchmark runs in a process of its own, so that none
finds the heap of another.
"""

import argparse
import gc
import importlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.against import Checkout, Failed, Stored, held_against, key_of, verdict
from bench.measure import facts, load
from bench.table import Line, Report, Table, to_json

BENCHES = (
    "encoding",
    "start",
    "append",
    "path",
    "latency",
    "sessions",
    "memory",
    "daemon",
    "streams",
    "turns",
    "history",
    "policy",
    "extensions",
    "sandbox",
    "mcp",
    "external",
    "channel",
    "gateway",
    "ownership",
    "containers",
    "programs",
    "minicode",
    "chat",
)
ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
ROUNDS = 5
"""Of each side, when two are compared."""


def main() -> int:
    # Where `make setup` puts the programs of runtimes, unless whoever measures has them elsewhere.
    os.environ.setdefault("CODESDK_PROGRAMS", str(ROOT / ".programs"))
    options = _options()
    if options.child:
        _measure(options.child, options.quick)
        return 0
    known = facts() | {"quick": options.quick}
    print(" · ".join(f"{name} {value}" for name, value in known.items()), flush=True)
    return _compare(options, known) if options.against else _table(options, known)


def _table(options: argparse.Namespace, known: dict[str, Any]) -> int:
    """Measure this checkout, print each line as it is there, and keep the figures."""
    started = time.perf_counter()
    table, failed = Table().head(), list[str]()
    for name in options.names or BENCHES:
        try:
            _run(name, options.quick, options.rounds or 1, table)
        except Failed as error:
            failed.append(str(error))
    known["load_after"] = load()
    known["seconds"] = round(time.perf_counter() - started, 1)
    target = _target(options.json)
    target.write_bytes(to_json(known, table))
    print(f"\n{table.verdict()}")
    return _last_words(known, failed, f"{known['seconds']:.0f} s; {target.name} has all of it.")


def _compare(options: argparse.Namespace, known: dict[str, Any]) -> int:
    """Measure this checkout against another one or an earlier run. Return 1 if a line is slower beyond the noise."""
    rounds, names = options.rounds or ROUNDS, options.names or BENCHES
    compared, failed = held_against(options.against, _here(), names, rounds, options.quick)
    known["load_after"] = load()
    slower = any(line.verdict == "slower" for line in compared)
    return _last_words(known, failed, f"\n{verdict(compared)}") or int(slower or not compared)


def _last_words(known: dict[str, Any], failed: Sequence[str], words: str) -> int:
    print(_weather(known), end="")
    for failure in failed:
        print(failure)
    print(words)
    return 1 if failed else 0


def _here() -> Checkout:
    return Checkout(ROOT, Path(sys.executable))


def _weather(known: dict[str, Any]) -> str:
    """Say so if others were using the machine, too."""
    before, after, cores = known["load_before"], known["load_after"], known["cores"]
    if max(before, after) <= cores + 1:
        return ""
    return (
        f"The machine was busy (load {before} to {after} on {cores} cores): the tails of times say little, "
        "ratios and processor time more.\n"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure what CodeSDK costs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHES)} (all)")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run at all?")
    parser.add_argument("--json", metavar="FILE", type=Path, help="where the figures go (bench/results)")
    parser.add_argument("--rounds", metavar="N", type=_count, help=f"how often (1; {ROUNDS} with --against)")
    parser.add_argument(
        "--against",
        metavar="FILE_OR_DIRECTORY",
        type=_other_side,
        help="compare with figures that --json wrote, or with another checkout, measured in turn with this one",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if isinstance(options.against, Stored) and options.against.quick != options.quick:
        parser.error(
            "a quick run and a whole one cannot be compared: give or leave out --quick as that run did"
        )
    other = options.against
    if options.rounds == 1 and (isinstance(other, Checkout) or (other and other.has_one_round)):
        parser.error(
            "one round of each side does not say how much figures vary, so every difference would count:"
            " give --rounds 2 or more"
        )
    if options.against and options.json:
        parser.error("--json keeps the figures of one side: leave it or --against out")
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    return options


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of rounds: give 1 or more")
    return int(text)


def _other_side(text: str) -> Checkout | Stored:
    path = Path(text)
    try:
        return Checkout(path) if path.is_dir() else Stored(path)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _measure(name: str, quick: bool) -> None:
    """Run one benchmark here and write its lines to the parent."""

    def send(line: Line) -> None:
        print(msgspec.json.encode(line).decode(), flush=True)

    module = importlib.import_module(f"bench.{name}")
    report = Report(name, send)
    uvloop.run(module.run(report, quick))
    collections = [generation["collections"] for generation in gc.get_stats()]
    report.progress(f"garbage collections by generation: {collections}")


def _run(name: str, quick: bool, rounds: int, table: Table) -> None:
    if rounds == 1:
        for line in _here().round(name, quick):
            table.add(line)
        return
    found: dict[tuple[str, str, str], list[Line]] = {}
    for _ in range(rounds):
        for line in _here().round(name, quick):
            found.setdefault(key_of(line), []).append(line)
    for lines in found.values():
        table.add(_middle(lines))


def _middle(lines: Sequence[Line]) -> Line:
    """Return the line of the median round as it was, with the figures of all rounds."""
    measured = sorted(
        (line for line in lines if line.figure is not None), key=lambda line: line.figure or 0.0
    )
    if not measured:
        return lines[0]
    figures = [line.figure for line in measured if line.figure is not None]
    return msgspec.structs.replace(measured[(len(measured) - 1) // 2], rounds=figures)


def _target(given: Path | None) -> Path:
    if given is not None:
        return given
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.json"


if __name__ == "__main__":
    sys.exit(main())
