"""A session's claude: a process that goes on with claude's own copy of the conversation, or with ours retold.

`launch_of` says how a task wants it started, `begin` starts it, and `Live` is what is kept of it between tasks.
"""

import asyncio
import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.errors import TaskFailure
from codesdk.contract.messages import Message, Text, text_of
from codesdk.contract.runtime import Host, TaskInput
from codesdk.runtimes.claude import ENTRY
from codesdk.runtimes.claude.input import Content, content_of, new_for_file, retold
from codesdk.runtimes.claude.login import login_variables
from codesdk.runtimes.claude.options import (
    Launch,
    command,
    key_variables,
    own_variables,
    read_wishes,
    tool_token,
)
from codesdk.runtimes.claude.process import ClaudeProcess, start_claude
from codesdk.runtimes.program.environment import Places, make_places, variables
from codesdk.runtimes.program.finding import Program
from codesdk.runtimes.program.workspace import framed

START_S = 50.0
LOGIN_RETRIES = 2


class Folders(msgspec.Struct, frozen=True):
    """Where a process has its state and its socket.

    The socket is apart, because the kernel allows it only a short path.
    """

    places: Places
    sockets: str

    def remove(self) -> None:
        """Delete what must not stay. Must not raise."""
        self.places.remove()
        shutil.rmtree(self.sockets, ignore_errors=True)


class Live:
    """A session's process, what it was started with, and what it was told."""

    def __init__(self, process: ClaudeProcess, launch: Launch, folders: Folders, program: Program) -> None:
        self.process = process
        self.program = program
        self.folders = folders
        self.told: list[Message] = []
        self.owed: list[Message] = []
        """What a stop took back. It is told again with the next task."""
        self.model = launch.model
        """The model that claude settled on."""
        self._launch = launch

    def fits(self, launch: Launch) -> bool:
        """Return whether it would be started the same way again."""
        same = msgspec.structs.replace(launch, model=None) == msgspec.structs.replace(
            self._launch, model=None
        )
        return self.process.alive and same and launch.model in (self._launch.model, self.model)


def launch_of(task: TaskInput, login: Path | None = None) -> Launch:
    """Return how a task wants claude started. Raise `InvalidRequest` if its `runtime_config` is not understood."""
    wishes = read_wishes(task.runtime_config)
    texts = [text_of(message.content) for message in task.messages if message.role == "system"]
    return Launch(
        model=task.model,
        system_prompt="\n\n".join(filter(None, [wishes.system_prompt, *texts, *framed(task.instructions)])),
        effort=wishes.effort,
        login=login,
        permission_mode=task.permission_mode,
        native_tools=tuple(sorted(set(task.native_tools))),
    )


async def begin(
    host: Host,
    task: TaskInput,
    launch: Launch,
    messages: Sequence[Message],
    program: Program,
    max_retries: int,
) -> tuple[Live, Content]:
    """Start a process for a task. Return it with what it must be told first."""
    places = make_places(task.env, ENTRY.name, task.session_id)
    folders = Folders(places, tempfile.mkdtemp(prefix="codesdk-"))
    try:
        config = places.folder(ENTRY.state_folder)
        start = await _starter(host, task, launch, folders, config, program.path, max_retries)
        known, fresh = task.runtime_session_id, new_for_file(messages)
        if (
            known is not None
            and fresh is not None
            and await asyncio.to_thread(has_copy, config, known, messages)
        ):
            content = await content_of(fresh, host.read_artifact)
            with contextlib.suppress(TaskFailure):  # claude refuses a damaged copy; ours is whole
                return Live(await start(f"--resume={known}"), launch, folders, program), content
        content = await retold(messages, host.read_artifact)
        return Live(await start(f"--session-id={uuid.uuid4()}"), launch, folders, program), content
    except BaseException:
        folders.remove()
        raise


async def _starter(
    host: Host,
    task: TaskInput,
    launch: Launch,
    folders: Folders,
    config: Path,
    program: str,
    max_retries: int,
) -> Callable[[str], Awaitable[ClaudeProcess]]:
    """Return a function that starts a process for a conversation."""
    places = folders.places
    tool_url = await host.tool_endpoint(ENTRY.mcp)
    if launch.login is None:
        model_url = await host.model_endpoint(ENTRY.sources(str(places.home), str(config)))
        secrets, models = [_last(model_url)], key_variables(model_url)
    else:
        # By itself claude would go on asking for minutes; a login that is refused stays refused.
        secrets, models, max_retries = [], login_variables(launch.login), min(max_retries, LOGIN_RETRIES)
    prompt = places.folder("prompt") / "system.txt"
    prompt.write_text(launch.system_prompt)
    own = own_variables(config, tool_url, models, max_retries=max_retries)
    env = variables(places, task.env, own | {"XDG_RUNTIME_DIR": folders.sockets})
    secrets = [tool_token(tool_url), *secrets]

    async def start(conversation: str) -> ClaudeProcess:
        argv = command(program, launch, tool_url, prompt, conversation)
        return await start_claude(
            argv, task.env, env=env, secrets=secrets, timeout_s=START_S, natives=launch.native_tools
        )

    return start


def _last(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


def has_copy(config: Path, conversation: str, messages: Sequence[Message]) -> bool:
    """Return whether claude's file has the last answer, and with it everything before. Blocking.

    Claude writes the file some time after it spoke, so the end may be missing if it was killed.
    """
    answer = next((message for message in reversed(messages) if message.role == "assistant"), None)
    folders = config / "projects"
    if answer is None or answer.message_id is None or not folders.is_dir():
        return False
    files = [folder / f"{conversation}.jsonl" for folder in folders.iterdir()]
    return any(path.is_file() and _holds(path.read_bytes(), answer) for path in files)


def _holds(data: bytes, answer: Message) -> bool:
    """Return whether a message is there with all of its texts. Each of its blocks is a line of its own."""
    lines = [line for line in data.split(b"\n") if (answer.message_id or "").encode() in line]
    blocks = [block for line in lines for block in _blocks(line, answer.message_id)]
    written = [block.get("text") for block in blocks]
    return bool(blocks) and all(
        block.text in written for block in answer.content if isinstance(block, Text) and block.text
    )


def _blocks(line: bytes, message_id: str | None) -> Iterator[dict[str, Any]]:
    try:
        record = msgspec.json.decode(line, type=_Line)
    except (ValueError, RecursionError):
        return
    if record.message is not None and record.message.id == message_id:
        yield from record.message.content


class _Said(msgspec.Struct):
    content: list[dict[str, Any]]
    id: str | None = None


class _Line(msgspec.Struct):
    message: _Said | None = None
