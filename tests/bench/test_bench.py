"""The bench runs and says what it should; how fast anything is, is no matter for a test."""

import json
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("claude", "codex", "gemini", "opencode")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_a_quick_run_prints_a_table_keeps_its_figures_and_loses_nothing(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("encoding", "path", "sessions", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    document = json.loads(kept.read_text())
    lines = document["lines"]
    assert {line["bench"] for line in lines} == {"encoding", "path", "sessions"}
    assert all(line["name"] in run.stdout for line in lines)
    assert document["verdict"] in run.stdout
    assert document["facts"]["cores"] > 0
    lost = {line["name"]: line["figure"] for line in lines if "lost" in line["name"]}
    assert len(lost) == 4
    assert set(lost.values()) == {0}
    names_of_this_machine = [socket.gethostname(), str(ROOT), str(tmp_path)]
    assert [name for name in names_of_this_machine if name in kept.read_text()] == []


def test_several_rounds_are_kept_with_their_median(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("encoding", "--quick", "--rounds", "3", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = json.loads(kept.read_text())["lines"]
    assert [len(line["rounds"]) for line in lines] == [3] * len(lines)
    assert [line["figure"] for line in lines] == [sorted(line["rounds"])[1] for line in lines]


def test_whoever_asks_a_model_is_measured_without_a_key(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("start", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    measured = {line["name"].partition(": a task")[0] for line in json.loads(kept.read_text())["lines"]}
    assert {"minicode", "codex-sdk", "acp:gemini"} <= measured
    assert "scripted" not in measured


def test_the_sandbox_is_held_against_bubblewrap_alone(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("sandbox", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = {line["name"]: line for line in json.loads(kept.read_text())["lines"]}
    assert list(lines) == [
        "a command that does nothing, no sandbox",
        "bubblewrap alone",
        "through the sandbox",
        "through the sandbox, added",
    ]
    assert lines["through the sandbox, added"]["goal"] == "≤ 15"


def test_the_way_over_mcp_is_held_against_the_gate(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("mcp", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = {line["name"]: line for line in json.loads(kept.read_text())["lines"]}
    assert lines["over HTTP, p50"]["against"] == "at the gate"
    assert lines["over HTTP, 16 clients at once"]["figure"] > 0


def test_no_event_is_lost_on_its_way_through_the_gateway(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("gateway", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    figures = {line["name"]: line["figure"] for line in json.loads(kept.read_text())["lines"]}
    assert figures["10 streams at once, lost"] == 0
    assert all(figure is not None for figure in figures.values())


def test_a_quick_run_of_the_daemon_has_every_line_and_loses_nothing(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("daemon", "streams", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = {line["name"]: line for line in json.loads(kept.read_text())["lines"]}
    assert {name: line["goal"] for name, line in lines.items() if "goal" in line} == {
        "start to ready": "≤ 500",
        "idle memory": "≤ 60",
        "create a session, p99": "≤ 5",
        "20 idle sessions, memory each": "≤ 58",
        "2,000 stored events, ready": "≤ 1.25x",
        "2,000 stored events, memory": "≤ 1.25x",
        "burst": "≥ 17,000",
        "burst, CPU of the daemon per event": "≤ 80",
        "burst, lost": "≤ 0",
        "stalled reader, lost": "≤ 0",
        "stalled reader, memory grown meanwhile": "≤ 8",
        "reader back after 2,004 events, lost": "≤ 0",
        "1 session, p50": "≤ 1",
        "1 session, p99": "≤ 5",
        "10 sessions, p50": "≤ 1",
        "10 sessions, p99": "≤ 5",
        "SIGKILL, lost": "≤ 0",
    }
    assert {line["figure"] for name, line in lines.items() if "lost" in name} == {0}


def test_the_process_boundary_and_a_rival_with_the_same_agent_are_measured(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("external", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = {line["name"]: line for line in json.loads(kept.read_text())["lines"]}
    assert {name: (line.get("against"), line.get("goal")) for name, line in lines.items()} == {
        "an event, runtime in process": (None, None),
        "an event over the adapter protocol": ("in process", None),
        "a short task in process, p50": (None, None),
        "over the adapter protocol, p50": ("in process", None),
        "ACP agent, burst of 2,000": ("sandbox-agent", "≥ 1.50x"),
        "ACP agent, burst of 2,000, lost": ("sandbox-agent", "≤ 0"),
        "ACP agent, burst of 2,000, CPU per event": ("sandbox-agent", "≤ 0.60x"),
        "ACP agent, burst of 2,000, memory after it": ("sandbox-agent", None),
    }
    assert lines["ACP agent, burst of 2,000, lost"]["figure"] == 0
    assert all(line["figure"] is not None for line in lines.values())


def test_the_policy_channel_is_held_against_cat(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("channel", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = {line["name"]: line for line in json.loads(kept.read_text())["lines"]}
    assert {name: line.get("against") for name, line in lines.items()} == {
        "passed through, text": "cat",
        "passed through, lines of JSON": "cat",
        "a decision, the channel alone, p50": None,
        "a decision of a session, stored, p50": "alone",
        "a decision of a session, stored, p99": None,
    }
    assert all(line["figure"] > 0 for line in lines.values())


def test_containers_are_held_against_the_docker_library(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("containers", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = {line["name"]: line for line in json.loads(kept.read_text())["lines"]}
    assert list(lines) == ["a command in a kept container", "the same, p95", "a session's first command"]
    assert lines["a command in a kept container"]["against"] == "docker library, exec_run"


def test_real_programs_are_held_against_the_same_programs_driven_directly(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("programs", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = {line["name"]: line for line in json.loads(kept.read_text())["lines"]}
    tasks = ["next task", "first task", "next task, model at once"]
    ways = ["", ", our part", ", first delta", ", first delta, our part"]
    assert list(lines) == [
        f"{program}, {name}"
        for program in PROGRAMS
        for name in [*(task + way for task in tasks for way in ways), "our memory for a live session"]
    ]
    assert all(line["figure"] is not None for line in lines.values())
    held = {name for name, line in lines.items() if line.get("goal") == "≤ 1.05x"}
    assert held == {f"{program}, {task}" for program in PROGRAMS for task in tasks}
    assert all(lines[name]["against"] == "direct" for name in held)


def test_a_turn_of_minicode_is_held_against_bare_requests_and_other_loops(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("minicode", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = {line["name"]: line for line in json.loads(kept.read_text())["lines"]}
    against = {"": "bare httpx2", ", our part": None, ", beside its runner": "the client's tool runner"}
    expected: dict[str, str | None] = {
        f"{provider}, {turn}, {what}{way}": other
        for provider in ("anthropic", "openai")
        for turn in ("turn 1", "turn 1,000")
        for what in ("CPU", "wall")
        for way, other in against.items()
    }
    for provider in ("anthropic", "openai"):
        expected[f"{provider}, a session opened, CPU"] = None
        expected[f"{provider}, turn 1,000, sent in its two requests"] = None
    expected["5 open sessions, RSS each"] = "a client for each loop"
    expected |= {f"runtime minicode, task 1, {what}": None for what in ("CPU", "wall")}
    expected |= {f"runtime minicode, task 1,000, {what}": "at task 1" for what in ("CPU", "wall")}
    # From packages that setup does not install: where they cannot be had, the line says so.
    rival = {
        lines.pop(f"anthropic, turn 1, {what}, beside mini-swe-agent")["bench"] for what in ("CPU", "wall")
    }
    assert rival == {"minicode"}
    assert {name: line.get("against") for name, line in lines.items()} == expected
    assert all(line["figure"] is not None for line in lines.values())
    # The window of either model is smaller than a thousand turns, which are about 2 MB: they were shortened.
    sent = [line["figure"] for name, line in lines.items() if "sent" in name]
    assert all(200 < kb < 1_500 for kb in sent), sent


def test_a_line_is_judged_by_its_goal():
    from bench.table import Line, Report, Table, at_most, ratio_at_least

    lines: list[Line] = []
    report = Report("here", lines.append)
    report.line("fast", 50.0, "/s", against=("raw", 100.0), goal=ratio_at_least(0.5))
    report.line("slow", 6.0, "ms", goal=at_most(5))
    report.line("plain", 1.0, "ms")
    report.missing("absent", "not there yet")
    table = Table()
    for line in lines:
        table.add(line)
    assert [line.ok for line in lines] == [True, False, None, None]
    assert table.verdict() == (
        "1 of 2 goals are met. Short: here, slow (6 ms, goal ≤ 5). Not measured: here, absent."
    )


def test_an_unknown_name_is_refused():
    run = bench("nonsense")
    assert run.returncode == 2
    assert "there is no nonsense" in run.stderr


def test_a_chat_is_measured_from_its_start_to_an_hours_transcript(tmp_path: Path):
    kept = tmp_path / "figures.json"
    run = bench("chat", "--quick", "--json", str(kept))
    assert run.returncode == 0, run.stderr
    lines = {line["name"]: line for line in json.loads(kept.read_text())["lines"]}
    assert lines["start to prompt"]["goal"] == "≤ 300"
    assert lines["memory after 3 messages, 30 calls, more"]["goal"] == "≤ 64"
    assert all(line["figure"] is not None for line in lines.values())
