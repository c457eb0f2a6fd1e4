"""`python -m bench [NAME …] [--quick] [--json FILE]`: run the measurements and print the table.

Each benchmark runs in a process of its own, so that none finds the heap of another.
"""

import argparse
import gc
import importlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

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
    "sandbox",
    "mcp",
    "gateway",
    "containers",
    "programs",
)
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    options = _options()
    if options.child:
        _measure(options.child, options.quick)
        return 0
    started = time.perf_counter()
    known = facts() | {"quick": options.quick}
    print(" · ".join(f"{name} {value}" for name, value in known.items()), flush=True)
    table = Table().head()
    failed = [name for name in options.names or BENCHES if not _run(name, options.quick, table)]
    known["load_after"] = load()
    known["seconds"] = round(time.perf_counter() - started, 1)
    target = _target(options.json)
    target.write_bytes(to_json(known, table))
    print(f"\n{table.verdict()}")
    print(_weather(known), end="")
    if failed:
        print(f"Failed: {', '.join(failed)}; the messages are above.")
    print(f"{known['seconds']:.0f} s; {target.name} has all of it.")
    return 1 if failed else 0


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
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    return options


def _measure(name: str, quick: bool) -> None:
    """Run one benchmark here and write its lines to the parent."""

    def send(line: Line) -> None:
        print(msgspec.json.encode(line).decode(), flush=True)

    module = importlib.import_module(f"bench.{name}")
    report = Report(name, send)
    uvloop.run(module.run(report, quick))
    collections = [generation["collections"] for generation in gc.get_stats()]
    report.progress(f"garbage collections by generation: {collections}")


def _run(name: str, quick: bool, table: Table) -> bool:
    command = [sys.executable, "-m", "bench", "--child", name, *(["--quick"] if quick else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for line in child.stdout:
            table.add(msgspec.json.decode(line, type=Line))
    return child.returncode == 0


def _target(given: Path | None) -> Path:
    if given is not None:
        return given
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.json"


if __name__ == "__main__":
    sys.exit(main())
