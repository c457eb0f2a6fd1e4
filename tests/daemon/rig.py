"""A real `codesdkd` as a child process, and plain HTTP to it. Shared by the tests of the daemon."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx2

HELLO = {"turns": [{"steps": [{"text": "Hello there."}]}], "loop": True}


class Daemon:
    """A running daemon."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, data_dir: Path) -> None:
        self.process = process
        self.url = url
        self.data_dir = data_dir
        self.http = httpx2.Client(base_url=url, timeout=60)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        """Post JSON and return the answer's; anything but success is a failure."""
        answer = self.http.post(path, json=body if body is not None else {}, headers=headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def get(self, path: str, **params: Any) -> Any:
        answer = self.http.get(path, params=params)
        assert answer.is_success, answer.text
        return answer.json()

    def session(self, script: Any = None, **fields: Any) -> str:
        """Create a session that plays a script, and return its id."""
        settings = {"runtime_config": {"script": script or HELLO}} | fields.pop("settings", {})
        body = {"runtime": "scripted", "workspace": str(self.data_dir.parent), "settings": settings}
        return self.post("/v1/sessions", body | fields)["session_id"]

    def run(self, session: str, message: str = "Go.") -> str:
        """Run a task to its end and return its id."""
        task = self.post(f"/v1/sessions/{session}/tasks", {"message": message})["task_id"]
        for event in self.stream(session):
            if event["trace"].get("task_id") == task and event["type"] in TERMINAL:
                return task
        raise AssertionError("the stream ended before the task")

    def stream(self, session: str, after_seq: int = 0) -> Iterator[Any]:
        """Yield a session's events as they come."""
        path = f"/v1/sessions/{session}/events?stream=sse&after_seq={after_seq}"
        with self.http.stream("GET", path, timeout=None) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(60)


TERMINAL = {"task.completed", "task.failed", "task.stopped"}


@contextmanager
def daemon(
    data_dir: Path,
    *options: str,
    env: dict[str, str] | None = None,
    stderr: IO[bytes] | None = None,
    limit: Callable[[], None] | None = None,
    program: Sequence[str] = ("-m", "codesdk.cli.codesdkd"),
) -> Iterator[Daemon]:
    """Run a daemon on a data directory; end it, whatever happens. `limit` is called in it before it begins."""
    argv = [sys.executable, *program, "--data-dir", str(data_dir), *options]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env, preexec_fn=limit
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, f"the daemon said nothing and ended with {process.wait(30)}"
        running = Daemon(process, json.loads(first)["url"], data_dir)
        with running.http:
            yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def asks(path: str = "made.txt") -> Any:
    """Return a script that writes a file, which somebody has to approve."""
    write = {"call": {"tool": "workspace.write", "input": {"path": path, "content": "x"}}}
    return {"turns": [{"steps": [write]}, {"steps": [{"text": "Done."}]}]}


def waiting(running: Daemon, session: str) -> Any:
    """Start a task and return what it waits for."""
    running.post(f"/v1/sessions/{session}/tasks", {"message": "Go."})
    for event in running.stream(session):
        assert event["type"] not in TERMINAL, event
        if event["type"] == "approval.requested":
            return running.get(f"/v1/sessions/{session}/approvals")["approvals"][0]
    raise AssertionError("nothing waits")


def problem(answer: Any) -> tuple[int, str]:
    """Return the status and the code of an answer that says what went wrong."""
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == answer.status_code
    assert found["type"] == f"urn:codesdk:error:{found['code']}"
    return answer.status_code, found["code"]
