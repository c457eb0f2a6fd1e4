"""The loops that minicode is held against: bare requests, the tool runners of the official clients, and mini-swe-agent.

Each is asked for a turn with one tool call, and says what the turn took. All but the last run in this process.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec
from anthropic import AsyncAnthropic, beta_async_tool
from openai import AsyncOpenAI
from openai.lib.responses_tool_runner import AsyncRegisteredFunction, AsyncResponsesToolRunner

from bench.measure import cost

KEY = "key-of-the-bench"
WORDS = "Read the file and say what is in it."
_ROOT = Path(__file__).parents[1]
_LOCK = _ROOT / "requirements" / "rivals.lock"
_PLACE = _ROOT / ".venv-rivals"
_INSTALL_S, _READY_S = 600, 120


class Took(msgspec.Struct):
    """What a turn took."""

    wall_ms: float
    cpu_ms: float


class Request(NamedTuple):
    """A request as minicode made it."""

    path: str
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body)


Turn = Callable[[], Awaitable[Took]]


async def timed(work: Callable[[], Awaitable[object]]) -> Took:
    """Do something, and return what it took this process."""
    with cost() as spent:
        await work()
    return Took(spent.wall_s * 1000, spent.cpu_s * 1000)


@asynccontextmanager
async def bare(url: str, asked: Sequence[Request], file: Path) -> AsyncGenerator[Turn]:
    """Send the same bodies and hear the answers to their ends. Nothing is read out of them."""
    async with httpx2.AsyncClient(trust_env=False) as client:

        async def turn() -> None:
            for request in asked:
                headers = {"content-type": "application/json", "x-api-key": KEY}
                async with client.stream(
                    "POST", url + request.path, content=request.body, headers=headers
                ) as answer:
                    assert answer.status_code == 200, await answer.aread()
                    async for _ in answer.aiter_bytes():
                        pass

        yield lambda: timed(turn)


@asynccontextmanager
async def anthropic_runner(url: str, asked: Sequence[Request], file: Path) -> AsyncGenerator[Turn]:
    """The tool runner of the official client, with the conversation, the tools and the settings of the same request."""
    fields = asked[0].fields
    tool = next(tool for tool in fields["tools"] if tool["name"] == "read")

    @beta_async_tool(name="read", description=tool["description"], input_schema=tool["input_schema"])
    async def read(**_: Any) -> str:
        return file.read_text()  # noqa: ASYNC240 - a line of text, as simply as can be

    others = [other for other in fields["tools"] if other is not tool]
    kept = {name: fields[name] for name in ("model", "max_tokens", "messages", "system") if name in fields}
    async with AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0) as client:

        async def turn() -> None:
            # Without a thread: like the others it sends the whole conversation each time.
            runner: Any = client.beta.messages.tool_runner(
                **kept, tools=[read, *others], stream=True, thread=False
            )
            async for stream in runner:
                async for _ in stream:
                    pass

        yield lambda: timed(turn)


@asynccontextmanager
async def openai_runner(url: str, asked: Sequence[Request], file: Path) -> AsyncGenerator[Turn]:
    """The tool runner of the official client, with the conversation, the tools and the settings of the same request."""
    fields = asked[0].fields

    async def read(_: dict[str, object]) -> str:
        return file.read_text()  # noqa: ASYNC240 - a line of text, as simply as can be

    functions = [AsyncRegisteredFunction(tool, read) for tool in fields["tools"]]
    kept: Any = {name: fields[name] for name in ("model", "input", "instructions", "store") if name in fields}
    async with AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0) as client:

        async def turn() -> None:
            await AsyncResponsesToolRunner(functions=functions).run(client, kept, stream=True)

        yield lambda: timed(turn)


# --- mini-swe-agent -----------------------------------------------------------------------------------


class NotThere(Exception):
    """The rival could not be installed or started, and why."""


@asynccontextmanager
async def mini_swe_agent(url: str, file: Path, home: Path) -> AsyncGenerator[Turn]:
    """mini-swe-agent in a process of its own. Each turn is a run: it has no sessions that go on."""
    python = await asyncio.to_thread(_rivals_python)
    env = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(home),
        "MSWEA_GLOBAL_CONFIG_DIR": str(home / "mini-swe-agent"),
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",  # a request that fails is a fault of the bench
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else importing it asks the network for prices
    }
    child = await asyncio.create_subprocess_exec(
        str(python),
        *("-m", "bench.rival", url, str(file)),
        cwd=_ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        await _heard(child)

        async def turn() -> Took:
            assert child.stdin is not None
            child.stdin.write(f"{WORDS}\n".encode())
            return msgspec.json.decode(await _heard(child), type=Took)

        yield turn
    finally:
        if child.stdin is not None:
            child.stdin.close()
        await child.wait()


async def _heard(child: asyncio.subprocess.Process) -> bytes:
    assert child.stdout is not None
    assert child.stderr is not None
    line = await asyncio.wait_for(child.stdout.readline(), _READY_S)
    if not line:
        last = (await child.stderr.read()).decode(errors="replace").strip().rpartition("\n")[2]
        raise NotThere(f"mini-swe-agent ended: {last[:200]}")
    return line


def _rivals_python() -> Path:
    """Return the Python of an environment with what the lock says, which is made when the lock is new."""
    python, mark = _PLACE / "bin" / "python", _PLACE / ".ready"
    wanted = hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text() == wanted:
        return python
    uv = str(Path(sys.executable).with_name("uv"))
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(_PLACE)],
        [uv, "pip", "sync", "--quiet", "--python", str(python), "--require-hashes", str(_LOCK)],
    ):
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_INSTALL_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotThere(f"{_LOCK.name} could not be installed: {type(error).__name__}") from error
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise NotThere(f"{_LOCK.name} could not be installed: {last[:200]}")
    mark.write_text(wanted)
    return python
