"""Tools that run nothing: `FakeTools` answers every call, and lets a test hold calls and end them itself.

They are the tools of `memory_sdk` unless a test gives others.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from codesdk.contract.ports import PreparedCall, ToolInvocation, ToolRun, ToolSink
from codesdk.contract.tools import ExecutionEnv, OutputStream, SandboxSummary, Subjects, ToolClass, ToolSpec


def tool_spec(name: str, tool_class: ToolClass = "read_only") -> ToolSpec:
    """Return the spec of a tool that takes any object."""
    return ToolSpec(
        name=name,
        description=f"Stands for {name}.",
        input_schema={"type": "object"},
        tool_class=tool_class,
        safe_replay=tool_class == "read_only",
    )


READ = tool_spec("fake.read")
WRITE = tool_spec("fake.write", "write")


class FakeRun:
    """A call that is held: the test decides what it prints and how it ends."""

    def __init__(self, invocation: ToolInvocation, output: ToolSink) -> None:
        self.invocation = invocation
        self.cancelled = False
        self._output = output
        self._end: asyncio.Future[ToolRun] = asyncio.get_running_loop().create_future()

    @property
    def over(self) -> bool:
        """Whether the call has ended, by the test or by cancellation."""
        return self.cancelled or self._end.done()

    def say(self, text: str, stream: OutputStream = "stdout") -> None:
        """Print something."""
        self._output(stream, text)

    def finish(self, result: Any = "ok", *, is_error: bool = False) -> None:
        """End the call with a result, or with a whole `ToolRun`."""
        if not self._end.done():
            run = result if isinstance(result, ToolRun) else ToolRun(result=result, is_error=is_error)
            self._end.set_result(run)

    def fail(self, error: Exception) -> None:
        """End the call with an exception."""
        if not self._end.done():
            self._end.set_exception(error)

    async def wait(self) -> ToolRun:
        """Wait until the test ends it."""
        try:
            # Shielded, so that a cancelled call can still be ended by the test that holds it.
            return await asyncio.shield(self._end)
        except asyncio.CancelledError:
            self.cancelled = True
            raise


class FakeTools:
    """A `ToolRunner` whose tools do nothing but answer. `runs` holds every call, in the order they started.

    A call of a held tool waits for its `FakeRun` to be ended; any other ends at once with what `give` said.
    An input with the key `invalid` is refused with its value.
    """

    def __init__(self, *specs: ToolSpec) -> None:
        self.runs: list[FakeRun] = []
        self._specs = {spec.name: spec for spec in specs or (READ, WRITE)}
        self._held: set[str] = set()
        self._answers: dict[str, Any] = {}
        self._change = asyncio.Event()

    @property
    def invocations(self) -> list[ToolInvocation]:
        """What was asked to run."""
        return [run.invocation for run in self.runs]

    async def started(self, number: int = 1) -> FakeRun:
        """Wait until this many calls have started, and return the last of them."""
        while len(self.runs) < number:
            self._change.clear()
            await self._change.wait()
        return self.runs[number - 1]

    def hold(self, *names: str) -> None:
        """Hold the calls of these tools, or of all tools."""
        self._held.update(names or self._specs)

    def release(self, *names: str) -> None:
        """Stop holding these tools, or all, and end the calls that wait."""
        freed = set(names or self._specs)
        self._held -= freed
        for run in self.runs:
            if run.invocation.name in freed and not run.over:
                self._settle(run)

    def give(self, name: str, answer: Any) -> None:
        """Make a tool answer with this from now on: a result, a `ToolRun`, or an exception to raise."""
        self._answers[name] = answer

    def specs(self) -> Sequence[ToolSpec]:
        return list(self._specs.values())

    def prepare(self, name: str, arguments: Any) -> PreparedCall | str:
        problem = self.check(name, arguments)
        if problem is not None:
            return problem
        env, sandbox = self.environment(name)
        subjects = self.subjects(name, arguments)
        return PreparedCall(run=self.run, execution_env=env, sandbox=sandbox, subjects=subjects)

    def environment(self, name: str) -> tuple[ExecutionEnv, SandboxSummary]:
        """Return where a tool would run. A subclass may override this, and `check`, `subjects` and `run`."""
        return "codesdk_host", SandboxSummary(network=False)

    def check(self, name: str, arguments: Any) -> str | None:
        if not isinstance(arguments, Mapping):
            return f"{name} takes an object."
        problem = cast("Mapping[str, Any]", arguments).get("invalid")
        return None if problem is None else str(problem)

    def subjects(self, name: str, arguments: Any) -> Subjects:
        return Subjects()

    async def close_session(self, session_id: str) -> None:
        """Release nothing."""

    async def run(self, call: ToolInvocation, output: ToolSink) -> ToolRun:
        run = FakeRun(call, output)
        self.runs.append(run)
        self._change.set()
        if call.name not in self._held:
            self._settle(run)
        return await run.wait()

    def _settle(self, run: FakeRun) -> None:
        answer = self._answers.get(run.invocation.name, "ok")
        if isinstance(answer, Exception):
            run.fail(answer)
        else:
            run.finish(answer)
