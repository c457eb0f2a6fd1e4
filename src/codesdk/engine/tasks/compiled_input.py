"""A session's transcript to the runtime's input for a task, and to the `model.input` event about it."""

from collections.abc import Sequence

from codesdk.contract.canonical import hash_json
from codesdk.contract.capabilities import InputCapture
from codesdk.contract.errors import StorageFailure
from codesdk.contract.events import ModelInput
from codesdk.contract.runtime import Instructions, RuntimeEnv, TaskInput
from codesdk.engine.log.loading import refold_transcript
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.context import Compiled, Window, compile_input, schema_hashes
from codesdk.engine.tasks.instructions import Captured

NO_SOURCES = {
    "disabled": True,
    "reason": "This runtime reads nothing that CodeSDK did not hand to it.",
}
LISTED_LATER = {
    "disabled": True,
    "reason": "What this runtime adds is listed with each exact request of the task.",
}


async def write_input(
    scope: SessionScope, window: Window, capture: InputCapture, captured: Captured | None = None
) -> tuple[Compiled, int]:
    """Compile the input from the transcript and record it.

    Return it with the seq of its event: messages before that seq are part of it.
    """
    config = scope.redactor.value(scope.settings.runtime_config)
    sources = LISTED_LATER if capture == "exact" else NO_SOURCES
    sources_ref = await scope.put_json(captured.document if captured else sources, "implicit sources")
    while True:
        await scope.recorder.settle()
        while scope.recorder.backlog:  # somebody steered meanwhile, and that message must be included
            await scope.recorder.settle()
        try:
            await window.catch_up(scope.ports.log, scope.state.session_id, scope.state.messages)
        except StorageFailure:  # a stored message is damaged; the log still has it
            window.replace(
                await refold_transcript(scope.ports.log, scope.ports.blobs, scope.state.session_id)
            )
        task = scope.state.task
        new = window.since(task.started_seq) if task is not None else 0
        offered = schema_hashes(scope.tools.specs(), scope.redactor.text)
        compiled = compile_input(window, offered, config, new)
        input_ref = await scope.put_json(compiled.manifest, "compiled input")
        if window.next_index == scope.state.messages:
            break  # else the task was steered meanwhile
    written = scope.journal.write(
        ModelInput(
            capture="compiled",
            input_ref=input_ref,
            input_hash=hash_json(compiled.manifest),
            implicit_sources_ref=sources_ref,
            tool_manifest=compiled.tool_manifest,
            runtime_config=compiled.manifest["runtime_config"],
            context_window=compiled.context_window,
        )
    )
    return compiled, written.seq


def task_input(
    scope: SessionScope, task_id: str, compiled: Compiled, instructions: Sequence[Instructions] = ()
) -> TaskInput:
    """Return everything that a runtime is given for a task."""
    state, config = scope.state, scope.state.config
    return TaskInput(
        session_id=state.session_id,
        task_id=task_id,
        env=RuntimeEnv(
            cwd=config.workspace,
            env={},
            credential_namespace=config.credential_namespace,
            isolation=config.isolation,
            state_dir=scope.ports.state_dir,
        ),
        messages=compiled.messages,
        model_messages=state.model_messages,
        tools=scope.tools.specs(),
        permission_mode=config.permission_mode,
        interaction_mode=config.interaction_mode,
        runtime_config=scope.settings.runtime_config,
        model=state.model,
        runtime_session_id=state.runtime_session_id,
        native_tools=() if config.native_tools == "off" else config.native_tools,
        instructions=instructions,
    )
