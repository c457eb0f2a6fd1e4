"""A session's claude: a process that goes on with claude's own copy of the conversation, or with ours retold.

`launch_of` says how a task wants it started, `begin` starts it, and `Live` is what is kept of it between tasks.
"""

import shutil
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from codesdk.contract.errors import TaskFailure
from codesdk.contract.messages import Message
from codesdk.contract.options import read_options
from codesdk.contract.runtime import HistoryLost, Host, TaskInput
from codesdk.runtimes.claude import ENTRY, NAME, ClaudeOptions
from codesdk.runtimes.claude.copy import in_copy
from codesdk.runtimes.claude.login import login_variables
from codesdk.runtimes.claude.options import Launch, command, key_variables, own_variables, tool_token
from codesdk.runtimes.claude.process import ClaudeProcess, start_claude
from codesdk.runtimes.program.environment import Places, make_places, variables
from codesdk.runtimes.program.finding import Program
from codesdk.runtimes.program.logins import folder_of, traffic_of
from codesdk.runtimes.program.unanswered import Sent

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
    """A session's process, and what it was started with."""

    def __init__(self, process: ClaudeProcess, launch: Launch, folders: Folders, program: Program) -> None:
        self.process = process
        self.program = program
        self.folders = folders
        self.owes = False
        """Whether a stop took back something that the transcript has."""
        self.model = launch.model
        """The model that claude settled on."""
        self._launch = launch

    def fits(self, launch: Launch) -> bool:
        """Return whether it would be started the same way again."""
        same = msgspec.structs.replace(launch, model=None) == msgspec.structs.replace(
            self._launch, model=None
        )
        return self.process.alive and same and launch.model in (self._launch.model, self.model)


def launch_of(task: TaskInput) -> Launch:
    """Return how a task wants claude started. Raise `InvalidRequest` if its `runtime_config` is not understood."""
    wishes = read_options(ClaudeOptions, task.runtime_config, NAME)
    return Launch(
        model=task.model,
        system_prompt="\n\n".join(
            filter(None, [wishes.system_prompt, *(file.framed for file in task.instructions)])
        ),
        effort=wishes.effort,
        login=None if traffic_of(ENTRY, task.env) is None else folder_of(ENTRY, task.env),
        permission_mode=task.permission_mode,
        native_tools=tuple(sorted(set(task.native_tools))),
    )


async def begin(host: Host, task: TaskInput, launch: Launch, program: Program, max_retries: int) -> Live:
    """Start a process for a task: with claude's own copy of the conversation, or with a new one.

    Raise `HistoryLost` if claude refuses its copy, such as a damaged one.
    """
    places = make_places(task.env, ENTRY.name, task.session_id)
    folders = Folders(places, tempfile.mkdtemp(prefix="codesdk-"))
    try:
        config = places.folder(ENTRY.state_folder)
        start = await _starter(host, task, launch, folders, config, program.path, max_retries)
        if task.history == "given":
            return Live(await start(f"--session-id={uuid.uuid4()}"), launch, folders, program)
        try:
            return Live(await start(f"--resume={task.runtime_session_id}"), launch, folders, program)
        except TaskFailure as error:
            raise HistoryLost("claude did not resume its conversation") from error
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
        sources, rules = ENTRY.sources(str(places.home), str(config)), ENTRY.rules(launch.native_tools)
        model_url = await host.model_endpoint(sources, rules=rules)
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


def in_own_copy(task: TaskInput, answer: Message, since: Sequence[Sent]) -> int | None:
    """Return how many of the last messages claude's own copy of the conversation has, or None. Blocking."""
    places = make_places(task.env, ENTRY.name, task.session_id)
    try:
        return in_copy(places.folder(ENTRY.state_folder), task.runtime_session_id or "", answer, since)
    finally:
        places.remove()  # those of an ephemeral session were made just now
