"""mini-swe-agent, in a process and an environment of its own: `python -m bench.rival URL FILE` under the Python of the rivals.

Says `ready`, then runs the agent once for each line of stdin and answers with what that took, as JSON. Its loop, its
model and its cost tracking are its own; only its shell is left out: a command gives the text of FILE, or ends the run.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n"


class _Files(LocalEnvironment):
    """Its own environment, with a file in place of a shell."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        text = _SUBMIT if action["command"] == "submit" else self._path.read_text()
        output = {"output": text, "returncode": 0, "exception_info": ""}
        self._check_finished(output)
        return output


def main(url: str, file: str) -> None:
    asks = {"api_base": url, "api_key": "key-of-the-bench"}
    model = LitellmModel(model_name="anthropic/claude-sonnet-4-5", model_kwargs=asks)
    print("ready", flush=True)
    for line in sys.stdin:
        agent = DefaultAgent(
            model,
            _Files(Path(file)),
            system_template="You are a coding agent.",
            instance_template="{{task}}",
        )
        wall, cpu = time.perf_counter(), time.process_time()
        ended = agent.run(line.strip())
        took = {
            "wall_ms": (time.perf_counter() - wall) * 1000,
            "cpu_ms": (time.process_time() - cpu) * 1000,
        }
        assert ended["exit_status"] == "Submitted", ended
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
