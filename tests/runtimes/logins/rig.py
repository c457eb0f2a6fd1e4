"""Sessions of the real programs with accounts of their own, in a network in which the providers are ours."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.daemon.canaries import files
from tests.runtimes.logins.provider import holds_token

from codesdk import CodeSDK, Session, SessionSettings, Task
from codesdk.contract.access import LoginPrompt, LoginTraffic
from codesdk.contract.capabilities import Isolation
from codesdk.contract.codec import decode
from codesdk.contract.events import Event
from codesdk.contract.runtime import RuntimeEnv
from codesdk.engine.checks.replay import replay_session
from codesdk.engine.checks.verify import verify_session
from codesdk.runtimes import entries, login_folder, resolve

FILES = {
    "codex-sdk": "auth.json",
    "claude-agent-sdk": ".credentials.json",
    "gemini-cli-core": "oauth_creds.json",
}

_WATCHED = """
import os
from tests.runtimes.logins.browsers import search
from codesdk.cli.main import main
search(os.environ.pop("TEST_SEARCH_PATH"))
main()
"""
"""The command line, in which no program finds a real browser."""


class Rig:
    """One data directory."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self.runtime = resolve(runtime)
        self.data, self.workspace = folder / "data", folder / "workspace"
        self.workspace.mkdir()
        self.login = login_folder(str(self.data / "runtimes"), "local", entries()[self.runtime])
        self.file = self.login / FILES[self.runtime]

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[CodeSDK]:
        """Open the directory with the runtime's logins switched on, unless other ones are given."""
        chosen: dict[str, Any] = {"logins": (self.runtime,)} | options
        async with CodeSDK.open(self.data, **chosen) as sdk:
            yield sdk

    async def session(self, sdk: CodeSDK, settings: SessionSettings | None = None, **options: Any) -> Session:
        return await sdk.create_session(
            runtime=self.runtime,
            workspace=self.workspace,
            settings=settings or SessionSettings(),
            **options,
        )

    def env(self, traffic: LoginTraffic | None) -> RuntimeEnv:
        """Return the environment of a runtime outside of any session."""
        return RuntimeEnv(
            cwd=str(self.workspace),
            env={},
            credential_namespace="local",
            isolation=Isolation(level="namespaced", mode="subprocess"),
            state_dir=str(self.data / "runtimes"),
            login=traffic,
        )

    async def codesdk(self, *words: str, typed: str = "") -> tuple[int | None, str, str]:
        """Run the command on the directory. Return its code, what it says, and what it complains about."""
        argv = [sys.executable, "-c", _WATCHED, "--data-dir", str(self.data), *words]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        env = {**os.environ, "CODESDK_LOGINS": self.runtime}
        process = await asyncio.create_subprocess_exec(*argv, env=env, **pipes)
        out, err = await process.communicate(f"{typed}\n".encode())
        return process.returncode, out.decode(), err.decode()

    def leaked(self) -> list[str]:
        """Return where tokens are besides the login itself: in files, rows and blobs of the whole data directory."""
        own = str(self.login.relative_to(self.data))
        kept = ((name, data) for name, data in files(self.data) if own not in name)
        return [name for name, data in kept if not self._is_link(name) and holds_token(data)]

    def _is_link(self, name: str) -> bool:
        """Return whether a file is no file but a link to the login."""
        path = self.data / name.partition(" ")[2]
        return path.is_symlink() and path.resolve() == self.file


class Person:
    """Somebody who logs in: notes what is asked, and answers it."""

    def __init__(self, answer: str = "") -> None:
        self.prompts: list[LoginPrompt] = []
        self._answer = answer

    async def show(self, prompt: LoginPrompt) -> None:
        self.prompts.append(prompt)

    async def ask(self, prompt: LoginPrompt) -> str:
        self.prompts.append(prompt)
        return self._answer


async def run(session: Session, text: str = "Hi") -> str:
    """Run a task to its end and return its text."""
    task: Task = await session.start(text)
    return (await task.result()).text


async def log_of(sdk: CodeSDK, session: Session) -> list[Event]:
    """Return the whole log, checked."""
    log, blobs = sdk.archive.log, sdk.archive.blobs
    assert await verify_session(log, blobs, session.id) == []
    assert (await replay_session(log, blobs, session.id))[1] == []
    return [decode(frame.data) async for frame in sdk.archive.frames(session.id)]


def payloads(events: list[Event], kind: str) -> list[Any]:
    """Return the payloads of a type."""
    return [event.payload for event in events if event.type == kind]
