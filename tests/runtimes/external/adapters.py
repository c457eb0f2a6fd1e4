"""Adapters that tests start: the examples, runtimes of this package behind the protocol, and ones that misbehave."""

import atexit
import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from codesdk.contract.entry import AdapterOptions
from codesdk.contract.runtime import Runtime
from codesdk.runtimes.external.hosting import external_runtime, hosted_runtime
from codesdk.runtimes.external.runtime import ExternalRuntime, HostedRuntime
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import Script, dump
from codesdk.testing.conformance import MakeRuntime, Scenario

ROOT = Path(__file__).parents[3]
PYTHON_AGENT = ROOT / "examples" / "adapter_python" / "agent.py"
SCRIPTED = """
import sys
from codesdk.adapter import serve
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import load_script
serve(ScriptedRuntime(load_script(sys.argv[1])))
"""


def hosted_script(script: Script, folder: Path) -> HostedRuntime:
    """Return the scripted runtime as a process, with a script to play."""
    path = folder / "script.yaml"
    path.write_text(json.dumps(dump(script)))
    return HostedRuntime(ScriptedRuntime(script), [sys.executable, "-c", SCRIPTED, str(path)], {})


def makes_hosted(name: str, folder: Path, **options: Unpack[AdapterOptions]) -> MakeRuntime:
    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncIterator[Runtime]:
        if name == "scripted" and not scenario.where:  # what only a program is asked, it cannot play
            yield hosted_script(scenario.script, folder)
        elif name == "minicode":  # the process that hosts it is the program
            hosted = hosted_runtime(name, **options)
            yield hosted if scenario.program is None else hosted.driving(scenario.program)
        else:
            yield hosted_runtime(name, **({} if scenario.program is None else {"program": scenario.program}))

    return make


def makes_external(*command: str) -> MakeRuntime:
    @asynccontextmanager
    async def make(scenario: Scenario) -> AsyncIterator[Runtime]:
        runtime = external_runtime("judged", command)
        await runtime.introduce()
        yield runtime if scenario.program is None else runtime.driving(scenario.program)

    return make


@functools.cache
def typescript_agent() -> Path:
    """Compile the agent in TypeScript, which checks its types. Return the program."""
    target = Path(tempfile.mkdtemp(prefix="codesdk-typescript-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    compiler = ROOT / "node_modules" / ".bin" / "tsc"
    project = ROOT / "examples" / "adapter_typescript"
    done = subprocess.run(
        [compiler, "-p", project, "--outDir", target], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return target / "agent.mjs"


def python_adapter(source: str, *arguments: object) -> ExternalRuntime:
    """Return an adapter that is a Python program, given as its source."""
    return external_runtime("bad", [sys.executable, "-c", source, *map(json.dumps, arguments)])


LIAR = """
import json, os, signal, sys, time

plan = json.loads(sys.argv[1])
DESCRIPTION = {"protocol_version": 1, "name": "liar", "version": "1", "capabilities": {}}
DELTA = {"kind": "text_delta", "block_id": "b", "message_id": "m", "delta": "Hello."}
WHOLE = {"message_id": "m", "content": [{"type": "text", "text": "Hello."}]}
ITEMS = [
    {"type": "model.output.delta", "payload": DELTA},
    {"type": "model.output.completed", "payload": WHOLE},
    {"type": "finished", "stop_reason": "end_turn"},
]
USUAL = {
    "initialize": [{"result": DESCRIPTION}],
    "check_available": [{"result": {"ok": True}}],
    "start_task": [{"result": {}}] + [{"item": item} for item in ITEMS],
}
task_id = None


def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}).replace("TASK", task_id or "TASK") + "\\n")


def act(step, message):
    for _ in range(step.get("times", 1)):
        if "result" in step:
            send({"id": message["id"], "result": step["result"]})
        if "error" in step:
            send({"id": message["id"], "error": step["error"]})
        if "item" in step:
            send({"method": "item", "params": {"task_id": task_id, "item": step["item"]}})
        if "send" in step:
            send(step["send"])
        if "raw" in step:
            write(step["raw"])
        if "bytes" in step:
            piece = "x" * 65536
            for _ in range(step["bytes"] // 65536):
                write(piece)
            write("\\n")
    if "die" in step:
        os.kill(os.getpid(), signal.SIGKILL)
    if "leave" in step:
        sys.stderr.write("no disk left\\n")
        sys.stderr.flush()
        os._exit(step["leave"])
    if "hang" in step:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(3600)


for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method", "answer")
    if method == "start_task":
        task_id = message["params"]["task"]["task_id"]
        words = message["params"]["task"]["messages"][-1]["content"][0]["text"]
        if words == "Behave.":
            method = "behave"
    usual = USUAL["start_task"] if method == "behave" else USUAL.get(method)
    if usual is None:
        usual = [{"result": {}}] if "id" in message and "method" in message else []
    for step in plan.get(method, usual):
        act(step, message)
"""
"""An adapter that does what a plan says for each method, and otherwise what it should."""
