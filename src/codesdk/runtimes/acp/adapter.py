"""The runtimes `acp:NAME` and `acp`: tasks of a session → prompts in one session of a real agent.

What an agent needs to be told is in its row. Its models come through the gateway and its tools over MCP, so that
CodeSDK decides what it may do. `agent` speaks with the program, `task` is one prompt of it.
"""

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.access import AuthStatus, Availability, LoginDialog, LoginOutcome
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.contract.events import RuntimeNotice
from codesdk.contract.messages import Message, text_of
from codesdk.contract.options import read_options
from codesdk.contract.runtime import (
    Draft,
    HistoryLost,
    Host,
    RuntimeEnv,
    RuntimeTask,
    TaskInput,
)
from codesdk.runtimes.acp import NAME, ROWS, entry_of_row
from codesdk.runtimes.acp.agent import Agent, Listed
from codesdk.runtimes.acp.input import prompt_of, said_of
from codesdk.runtimes.acp.launch import INSTRUCTIONS, Account, Setup, tidy_session
from codesdk.runtimes.acp.row import AgentRow
from codesdk.runtimes.acp.state import State
from codesdk.runtimes.acp.task import AcpTask
from codesdk.runtimes.acp.told import Told, ending_of
from codesdk.runtimes.program import PROGRAM_CAPABILITIES
from codesdk.runtimes.program.access import availability, login_notice, status_of
from codesdk.runtimes.program.environment import Places, make_places
from codesdk.runtimes.program.finding import Program, find_program, notices_about
from codesdk.runtimes.program.signals import Signals
from codesdk.runtimes.program.unanswered import sent_of
from codesdk.tools import by_wire_name


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent's model requests go: through the gateway, or beside it with an account of its own."""

    row: AgentRow
    model_url: str = ""
    account: Account | None = None


class AcpRuntime:
    """An agent behind the runtime protocol. `program` is a path to use in place of the installed one.

    With `command` it is an agent that nobody tested, started as its session says.
    """

    def __init__(
        self, entry: RuntimeEntry, row: AgentRow, program: str | None = None, command: Sequence[str] = ()
    ) -> None:
        self.entry = entry
        self.row = row
        self._given = program
        self._command = tuple(command)
        self._agents: dict[str, Agent] = {}
        self._places: dict[str, Places] = {}

    @property
    def given(self) -> tuple[AgentRow, tuple[str, ...]]:
        """The row and the command that it was made with."""
        return self.row, self._command

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def options(self) -> type[Any]:
        return self.entry.options

    def capabilities(self) -> Capabilities:
        return capabilities_of(self.entry, self.row)

    async def check_available(self, env: RuntimeEnv) -> Availability:
        if self._command:  # whoever gave the command has allowed it
            return _given_availability(self._command)
        return await availability(self.entry, self.find(allow_untested=True), env)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return status_of(self.entry, env, None)

    async def ensure_login(self, env: RuntimeEnv, dialog: LoginDialog) -> LoginOutcome:
        raise InvalidRequest(f"{self.name} has no login that CodeSDK could make.", runtime=self.name)

    async def find(self, workspace: str | None = None, *, allow_untested: bool = False) -> Program:
        """Return the program that is driven. Raise `TaskFailure` if there is none that may be."""
        if self._command:
            return given_program(self._command)
        return await find_program(self.entry, self._given, workspace=workspace, allow_untested=allow_untested)

    async def start_task(self, host: Host, task: TaskInput) -> RuntimeTask:
        """Hand over a prompt: to the session that there is, or to a new one with the conversation retold."""
        program = await self.find(task.env.cwd, allow_untested=task.env.allow_untested)
        native = task.history == "native"
        content = await prompt_of(self.row, task.messages, host.read_artifact, whole=not native)
        agent = await self._agent(host, task, program)
        if native:
            if agent.session_id is None and await self._load(host, task, agent, "") is None:
                raise HistoryLost(f"{self.name} did not load its session")
        else:
            await agent.begin_session(await _listed(host))
        await agent.choose(task.permission_mode)
        await agent.prompt(content)
        notices = self._notices(program, agent)
        return AcpTask(
            agent, self._state(task, agent), host, lambda: self._forget(task.session_id, agent), notices
        )

    async def recall(self, host: Host, task: TaskInput, tail: Sequence[Message]) -> int | None:
        """Return what the agent has of the last messages: its session is open, or it loads it and tells it again."""
        program = await self.find(task.env.cwd, allow_untested=task.env.allow_untested)
        agent = self._agents.get(task.session_id)
        setup = await self._setup(host, task, program)
        if agent is not None and agent.alive and agent.setup == setup and agent.session_id is not None:
            return len(tail)
        await self._release(task.session_id)
        if task.runtime_session_id is None or any(
            message.role not in ("user", "assistant") for message in tail
        ):
            return None  # a turn that was cut off in a call: what an agent makes of that cannot be known
        agent = await self._agent(host, task, program)
        answer = text_of(tail[0].content)
        told = await self._load(host, task, agent, ending_of(answer))
        if told is None:
            return None
        since = await sent_of(tail[1:], partial(said_of, self.row), host.read_artifact)
        return await asyncio.to_thread(told.count_had, answer, since)

    async def way_of(self, host: Host, task: TaskInput) -> Way:
        """Return how the agent's model requests go: through the gateway."""
        places = self._placed(task)
        sources = self.entry.sources(str(places.home), str(places.folder(self.entry.state_folder)))
        rules = self.entry.rules(task.native_tools)
        return Way(row=self.row, model_url=await host.model_endpoint(sources, None, rules))

    async def admit(self, host: Host, task: TaskInput, program: Program) -> Sequence[str]:
        """Raise `TaskFailure` if the agent must not be started now. Return secrets that it may say in its stderr."""
        return ()

    async def close_session(self, session_id: str) -> None:
        await self._release(session_id)
        places = self._places.pop(session_id, None)
        if places is not None:
            await asyncio.to_thread(places.remove)

    # --- inside -----------------------------------------------------------------------------------------

    async def _release(self, session_id: str) -> None:
        agent = self._agents.pop(session_id, None)
        if agent is not None:
            await agent.stop()

    async def _agent(self, host: Host, task: TaskInput, program: Program) -> Agent:
        """Return the session's agent. Start one if there is none, or if the task needs it set up in another way."""
        setup = await self._setup(host, task, program)
        agent = self._agents.get(task.session_id)
        if agent is not None and (agent.setup != setup or not agent.alive):
            await self._release(task.session_id)
            agent = None
        if agent is None:
            secrets = await self.admit(host, task, program)
            agent = await Agent.start(self.name, setup, self._placed(task), task.env, secrets)
            self._agents[task.session_id] = agent
        return agent

    async def _load(self, host: Host, task: TaskInput, agent: Agent, last: str) -> Told | None:
        if task.runtime_session_id is None:
            return None
        await asyncio.to_thread(tidy_session, self.row, self._placed(task), task.runtime_session_id)
        try:
            return await agent.load_session(task.runtime_session_id, await _listed(host), last)
        except TaskFailure:  # it died of it, or never answered; told everything, another process can go on
            await self._release(task.session_id)
            return None

    def _placed(self, task: TaskInput) -> Places:
        places = self._places.get(task.session_id)
        if places is None:
            places = self._places[task.session_id] = make_places(task.env, self.name, task.session_id)
        return places

    async def _setup(self, host: Host, task: TaskInput, program: Program) -> Setup:
        """Return what a task wants the agent started with."""
        options: Any = read_options(self.entry.options, task.runtime_config, self.name)
        way = await self.way_of(host, task)
        return Setup(
            command=self._command or tuple(program.argv),
            row=way.row,
            model=task.model or self.row.model,
            model_url=way.model_url,
            account=way.account,
            tool_url=await host.tool_endpoint(self.entry.mcp),
            instructions="\n\n".join(
                (options.system_prompt or INSTRUCTIONS, *(file.framed for file in task.instructions))
            ),
        )

    def _state(self, task: TaskInput, agent: Agent) -> State:
        setup = agent.setup
        return State(
            runtime=self.name,
            session_id=agent.session_id or "",
            task_id=task.task_id,
            tools=by_wire_name(tool.name for tool in task.tools),
            reading=setup.row.reading,
            model=setup.model,
            log_in="" if setup.account is None else setup.account.command,
            after_name=self.row.call_id == "after_name",
            opines=self.row.opines,
            signals=Signals(self.name),
        )

    def _notices(self, program: Program, agent: Agent) -> list[Draft]:
        """Return what the log of a task must say about the program that it starts with."""
        if not self._command:
            account = agent.setup.account
            used = [] if account is None else [login_notice(account.label, "beside")]
            return [*notices_about(self.entry, program), *used]
        message = f"The agent was given as a command, and nobody tested it: {program.path}."
        details = {"version": agent.version, "command": program.path}
        return [Draft(RuntimeNotice(kind="untested", message=message, details=details))]

    def _forget(self, session_id: str, agent: Agent) -> None:
        if self._agents.get(session_id) is agent:
            del self._agents[session_id]


async def _listed(host: Host) -> Listed:
    """Return what waits until the tools are listed once more than by now: a session may list them while it is opened."""
    return partial(host.tools_read, await host.tools_read())


def make_runtime(agent: str, program: str | None = None) -> AcpRuntime:
    """Return the runtime of a known agent, by the name of its row."""
    return AcpRuntime(entry_of_row(ROWS[agent]), ROWS[agent].row, program)


def given_program(command: Sequence[str]) -> Program:
    """Return the program that a command starts. Raise `TaskFailure` if there is none."""
    if not Path(command[0]).is_absolute() or not os.access(command[0], os.X_OK):
        raise TaskFailure(
            f"The runtime {NAME} cannot run: there is no program at {command[0]}, or its path is not absolute."
            " Install the agent, and name its program by its whole path.",
            code="RUNTIME_UNAVAILABLE",
            runtime=NAME,
        )
    return Program(command[0], "", "untested", "It was given as a command.")


def _given_availability(command: Sequence[str]) -> Availability:
    try:
        program = given_program(command)
    except TaskFailure as error:
        return Availability(ok=False, problem=error.message, to_do="Install the agent, or probe it again.")
    return Availability(ok=True, program=program.path, state=program.state)


def capabilities_of(entry: RuntimeEntry, row: AgentRow) -> Capabilities:
    """Return what an agent can do, by its row."""
    return msgspec.structs.replace(
        PROGRAM_CAPABILITIES,
        auth_model="both" if entry.logins else "api_key",
        login_traffic=list(entry.logins),
        supports_steer=row.steers,
        supports_images=row.images,
        supports_reasoning=row.reasoning,
        supports_parallel_tool_calls=row.parallel,
        mcp_transports=list(row.transports),
        instruction_files=list(entry.instructions.captured),
    )
