"""The tools on a directory, without a session: a `ToolCalls` that decides by policy and cannot ask anyone.

Nothing is recorded: this is for `codesdk mcp --workspace`, whose client keeps its own log.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from codesdk.contract.ports import Policy, PolicyQuestion, ToolInvocation, ToolRunner
from codesdk.contract.runtime import ToolReply
from codesdk.contract.tools import Evaluation, OutputStream, PermissionMode, Subjects, ToolClass, ToolSpec
from codesdk.contract.workspace import Workspace
from codesdk.policy import all_opinions, decide


class DirectoryTools:
    """Runs what the policy allows. What it would ask about is refused, with a text that says what to do."""

    def __init__(
        self, runner: ToolRunner, policy: Policy, workspace: Workspace, mode: PermissionMode
    ) -> None:
        self._runner = runner
        self._policy = policy
        self._workspace = workspace
        self._mode: PermissionMode = mode
        self._numbers = itertools.count(1)

    def specs(self, session_id: str) -> Sequence[ToolSpec]:
        """Return all tools, including those the policy refuses: a model learns why when it tries one.

        Those that ask a person are left out: nobody can be asked here.
        """
        return [spec for spec in self._runner.specs() if not spec.interactive]

    def call(
        self, session_id: str, name: str, arguments: Any, *, runtime_tool_call_id: str | None = None
    ) -> "asyncio.Future[ToolReply]":
        """Validate the input, apply the policy, and run."""
        call = ToolInvocation(
            session_id=session_id,
            task_id=None,
            tool_call_id=runtime_tool_call_id or f"call_{next(self._numbers)}",
            attempt=1,
            name=name,
            input=arguments,
            workspace=self._workspace,
        )
        return asyncio.ensure_future(self._call(call))

    async def _call(self, call: ToolInvocation) -> ToolReply:
        # Validated before the policy is asked: only a valid input tells what the call touches.
        prepared = self._runner.prepare(call.name, call.input)
        if isinstance(prepared, str):
            return ToolReply(result=prepared, is_error=True)
        verdict = self._judge(call, prepared.subjects)
        if verdict.result != "allow":
            return ToolReply(result=_refusal(verdict), is_error=True)
        run = await prepared.run(call, _unheard)
        return ToolReply(result=run.result, is_error=run.is_error)

    def _judge(self, call: ToolInvocation, subjects: Subjects) -> Evaluation:
        kinds: dict[str, ToolClass] = {spec.name: spec.tool_class for spec in self._runner.specs()}
        question = PolicyQuestion(
            session_id=call.session_id,
            name=call.name,
            tool_class=kinds[call.name],
            input=call.input,
            permission_mode=self._mode,
            subjects=subjects,
        )
        return decide(all_opinions(question, self._policy.evaluate(question)))


def _refusal(verdict: Evaluation) -> str:
    reason = verdict.reason or "The policy does not allow this call."
    return (
        reason if verdict.result == "deny" else f"{reason} Nobody can be asked here. Do the work without it."
    )


def _unheard(stream: OutputStream, text: str) -> None:
    """Discard a running tool's output."""
