"""Recovery of an interrupted session: its open task is closed, its open questions are kept for a resume."""

from codesdk.contract.messages import ArtifactRef
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks import lifecycle


async def close_interrupted(scope: SessionScope, *, unstored: bool = False) -> None:
    """Close the task that a crash or a failed write left open, and keep its open questions."""
    task = scope.state.task
    if task is None:
        return
    inputs: dict[str, ArtifactRef] = {}
    for call in task.calls.values():
        if call.phase == "waiting" and call.approval_id is not None:
            inputs[call.key] = call.input_ref or await scope.put_json(call.input, "input")
    lifecycle.recover(scope.journal, inputs, unstored=unstored)
    await scope.recorder.settle()
