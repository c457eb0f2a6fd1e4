"""Attached uploads to artifacts of the session, so that they last as long as the session does.

An upload belongs to its principal and may be removed after a while; what a session was given must stay.
"""

import msgspec

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import InvalidRequest, NotFound
from codesdk.contract.ids import artifact_id
from codesdk.contract.messages import ArtifactBlock, ArtifactRef, Message
from codesdk.contract.records import ArtifactRow
from codesdk.engine.sessions.scope import SessionScope


async def take_attachments(scope: SessionScope, able: Capabilities, messages: list[Message]) -> list[Message]:
    """Return the messages with files owned by the session. Their rows are committed with the next event."""
    taken: list[Message] = []
    for message in messages:
        content = [
            await _take(scope, able, block) if isinstance(block, ArtifactBlock) else block
            for block in message.content
        ]
        taken.append(msgspec.structs.replace(message, content=content))
    return taken


async def _take(scope: SessionScope, able: Capabilities, block: ArtifactBlock) -> ArtifactBlock:
    state = scope.state
    row = await scope.ports.log.artifact(block.artifact_id)
    if row is None or row.scope not in (state.session_id, state.principal):
        raise NotFound(f"There is no artifact {block.artifact_id} to attach.")
    _check_kind(able, state.runtime_name, row.ref)
    ref = row.ref
    if row.scope != state.session_id:
        ref = msgspec.structs.replace(
            ref, artifact_id=artifact_id(state.session_id, ref.content_hash, ref.content_type, ref.name)
        )
        own = ArtifactRow(
            ref=ref, scope=state.session_id, principal=row.principal, created_at=scope.ports.stamper.now()
        )
        scope.recorder.add_artifact(own)
    return ArtifactBlock(
        artifact_id=ref.artifact_id,
        content_hash=ref.content_hash,
        content_type=ref.content_type,
        name=ref.name if block.name is None else block.name,
    )


def _check_kind(able: Capabilities, runtime: str, ref: ArtifactRef) -> None:
    image = ref.content_type.startswith("image/")
    if not (able.supports_images if image else able.supports_artifacts):
        what = "images" if image else "files"
        raise InvalidRequest(f"The runtime {runtime} cannot take {what}.")
