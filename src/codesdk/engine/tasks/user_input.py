"""Prepares what users say to a session for the log: checked, bounded, and without secrets.

Messages with their files, changes of settings, and the reasons given with stops and answers. What runtimes say
goes through `drafts`.
"""

from collections.abc import Callable

import msgspec

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import InvalidRequest, NotFound
from codesdk.contract.messages import ArtifactBlock, ArtifactRef, Message
from codesdk.contract.settings import SettingsChange, merge_values
from codesdk.engine.sessions.scope import SessionScope, adopt_artifact
from codesdk.engine.tasks.validation import check_settings, check_size

MAX_CHANGED_BYTES = 64 * 1024
"""How many bytes of `values` one change may set."""
MAX_VALUES_BYTES = 256 * 1024
"""How many bytes of `values` a session may have in all."""


async def take_messages(
    scope: SessionScope, messages: list[Message], capabilities: Callable[[], Capabilities]
) -> list[Message]:
    """Check and redact user messages, and copy the files that they attach into the session.

    The runtime is asked for its `capabilities` only if there are such files.
    """
    check_size(messages, "The messages", scope.ports.limits.max_message_bytes, "Attach a file instead.")
    if not messages:
        raise InvalidRequest("A task needs at least one message.")
    for message in messages:
        if message.role != "user" or not message.content or message.summary_of is not None:
            raise InvalidRequest("A task takes user messages with at least one block each.")
    if any(isinstance(block, ArtifactBlock) for message in messages for block in message.content):
        messages = await _take_attachments(scope, capabilities(), messages)
    if not scope.redactor.suspects(msgspec.json.encode(messages).decode()):
        return messages
    plain = msgspec.to_builtins(messages)
    clean = scope.redactor.value(plain)
    return messages if clean is plain else msgspec.convert(clean, type=list[Message])


def take_words(scope: SessionScope, text: str) -> str:
    """Return the text that somebody gave as a reason, as it may be stored."""
    check_size(text, "A reason", scope.ports.limits.max_message_bytes)
    return scope.redactor.text(text)


def take_change(scope: SessionScope, change: SettingsChange) -> SettingsChange:
    """Return a change as readers of the log will see it. Raise `InvalidRequest` if it cannot be stored."""
    data = check_settings(change, "The settings", scope.ports.limits.max_message_bytes)
    if change.values is not msgspec.UNSET:  # before it is searched: what is small is searched at once
        check_size(change.values, "The values of one change", MAX_CHANGED_BYTES)
    # Encoded and decoded, since readers get it from JSON: NaN or a wrong type is found here, not by them.
    taken = SettingsChange.of(scope.redactor.value(msgspec.json.decode(data)))
    given = taken.given()
    if not given:
        raise InvalidRequest("There is nothing to change. Name at least one setting.")
    if "values" in given:
        merged = merge_values(scope.state.values, given["values"])
        check_size(merged, "The values of a session", MAX_VALUES_BYTES)
    return taken


async def _take_attachments(
    scope: SessionScope, capabilities: Capabilities, messages: list[Message]
) -> list[Message]:
    """Return the messages with files owned by the session. Their rows are committed with the next event.

    An upload belongs to its principal and may be removed after a while; what a session was given must stay.
    """
    taken: list[Message] = []
    for message in messages:
        content = [
            await _take_file(scope, capabilities, block) if isinstance(block, ArtifactBlock) else block
            for block in message.content
        ]
        taken.append(msgspec.structs.replace(message, content=content))
    return taken


async def _take_file(scope: SessionScope, capabilities: Capabilities, block: ArtifactBlock) -> ArtifactBlock:
    state = scope.state
    row = await scope.ports.log.artifact(block.artifact_id)
    if row is None or not row.is_open_to(state.session_id, state.principal):
        raise NotFound(f"There is no artifact {block.artifact_id} to attach.")
    _check_kind(capabilities, state.runtime_name, row.ref)
    ref = row.ref
    if row.scope != state.session_id:
        own = adopt_artifact(row, state.session_id, scope.ports.stamper.now())
        ref = own.ref
        scope.recorder.add_artifact(own)
    return ArtifactBlock(
        artifact_id=ref.artifact_id,
        content_hash=ref.content_hash,
        content_type=ref.content_type,
        name=ref.name if block.name is None else block.name,
    )


def _check_kind(capabilities: Capabilities, runtime: str, ref: ArtifactRef) -> None:
    image = ref.content_type.startswith("image/")
    if not (capabilities.supports_images if image else capabilities.supports_artifacts):
        what = "images" if image else "files"
        raise InvalidRequest(f"The runtime {runtime} cannot take {what}.")
