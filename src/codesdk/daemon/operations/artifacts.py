"""Operations on artifacts: uploaded, listed, read whole or in part."""

import tempfile
from typing import Annotated, BinaryIO, cast

import msgspec

from codesdk.contract.api import ArtifactInfo, ArtifactPage
from codesdk.contract.errors import NotFound
from codesdk.contract.messages import ArtifactRef
from codesdk.contract.records import ArtifactRow
from codesdk.daemon.operations.daemon import process_health
from codesdk.daemon.operations.operation import Call, NoQuery, Operation, get
from codesdk.daemon.operations.reading import Limit, get_session
from codesdk.daemon.problems import wrong_type
from codesdk.daemon.responses import Content, Spooled, media_type
from codesdk.daemon.settings import launch_settings


class UploadQuery(NoQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the artifact is to be called."""

    name: str | None = None


class BundleQuery(NoQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How large the files in the bundle may be together."""

    max_bytes: Annotated[int, msgspec.Meta(ge=100_000, le=1024**3)] = 64 * 1024 * 1024


class ArtifactQuery(NoQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which artifacts: those behind the id `after`, `limit` of them."""

    after: str | None = None
    limit: Limit = 100


async def upload_artifact(call: Call) -> ArtifactRef:
    """Store bytes that a message can attach.

    The same bytes again are the same artifact.
    """
    given = call.headers.get(b"content-type", b"application/octet-stream").decode("latin-1")
    if media_type(given) != given.encode("latin-1"):
        raise wrong_type("of a media type such as image/png")

    return await call.sdk.service.put_artifact(call.body, given, call.query.name, key=call.key)


async def list_artifacts(call: Call) -> ArtifactPage:
    """List what a session stored."""
    query: ArtifactQuery = call.query
    rows = await call.sdk.service.artifacts(call.path["session_id"], after=query.after, limit=query.limit)
    more = len(rows) == query.limit
    found = [ArtifactInfo(**msgspec.structs.asdict(row.ref), created_at=row.created_at) for row in rows]
    return ArtifactPage(artifacts=found, next=rows[-1].ref.artifact_id if more else None)


async def get_artifact(call: Call) -> ArtifactRef:
    """Look at an artifact."""
    return (await _find(call, call.path["artifact_id"])).ref


async def read_artifact(call: Call) -> Content:
    """Read an artifact's bytes, or a range of them."""
    row = await _find(call, call.path["artifact_id"])
    return Content(call.sdk.archive.blobs, row.ref, call.headers)


async def support_bundle(call: Call) -> Spooled:
    """Everything that explains a session, in one archive without secrets."""
    session = await get_session(call)
    spool = tempfile.TemporaryFile()  # noqa: SIM115 - the response closes it
    try:
        await call.sdk.write_bundle(
            session.session_id,
            cast("BinaryIO", spool),
            max_bytes=call.query.max_bytes,
            health=await process_health(call),
            launch=launch_settings(call.settings),
        )
    except BaseException:
        spool.close()
        raise
    return Spooled(
        cast("BinaryIO", spool), b"application/gzip", f"codesdk-bundle-{session.session_id}.tar.gz"
    )


async def _find(call: Call, artifact_id: str) -> ArtifactRow:
    row = await call.sdk.archive.log.artifact(artifact_id)
    if row is None or row.principal != call.caller.principal:
        raise NotFound(f"There is no artifact {artifact_id}.")
    return row


OPERATIONS = (
    Operation(
        name="uploadArtifact",
        method="POST",
        path="/v1/artifacts",
        scope="run",
        run=upload_artifact,
        query=UploadQuery,
        body="bytes",
        answer=ArtifactRef,
        status=201,
        group="artifacts",
    ),
    get("/v1/sessions/{session_id}/artifacts", list_artifacts, query=ArtifactQuery, group="artifacts"),
    get("/v1/artifacts/{artifact_id}", get_artifact, group="artifacts"),
    get(
        "/v1/artifacts/{artifact_id}/content",
        read_artifact,
        answer=bytes,
        media_type="application/octet-stream",
        group="artifacts",
    ),
    get(
        "/v1/sessions/{session_id}/support-bundle",
        support_bundle,
        query=BundleQuery,
        answer=bytes,
        media_type="application/gzip",
        exports=True,
    ),
)
