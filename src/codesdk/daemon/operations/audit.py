"""Operations on the audit: a caller's own records, those of a session, and, for an admin, all of them."""

import asyncio
from typing import Annotated

import msgspec

from codesdk.contract.errors import NotFound
from codesdk.contract.tools import Record
from codesdk.daemon.operations.operation import Call, NoQuery, get
from codesdk.daemon.operations.reading import Limit, get_session
from codesdk.store import Audit, AuditRecord, AuditReport, Category, verify_audit


class AuditQuery(NoQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which records: `limit` of them after the number `after`; with `everybody`, of all principals."""

    after: Annotated[
        int, msgspec.Meta(ge=0, le=2**53, description="Only records after the one with this number.")
    ] = 0
    limit: Limit = 100
    category: Annotated[Category | None, msgspec.Meta(description="Only records of this category.")] = None
    everybody: Annotated[
        bool, msgspec.Meta(description="Records of all principals. Needs the scope admin.")
    ] = False


class AuditPage(Record, frozen=True, kw_only=True):
    """Records in order. `next` is what `after` is to be for the next page; null if this is the end so far."""

    records: list[AuditRecord]
    next: int | None = None


async def read_audit(call: Call) -> AuditPage:
    """Read the audit: who let what happen."""
    query: AuditQuery = call.query
    if query.everybody:
        call.demand("admin", "The audit of everybody")
    return await _page(call, None if query.everybody else call.caller.principal, None)


async def read_session_audit(call: Call) -> AuditPage:
    """Read the audit of a session."""
    session = await get_session(call)
    return await _page(call, call.caller.principal, session.session_id)


async def check_audit(call: Call) -> AuditReport:
    """Check the chain of the audit: is a record missing or changed."""
    audit = _audit(call)
    await audit.flush()
    return await asyncio.to_thread(verify_audit, audit.root)


async def _page(call: Call, principal: str | None, session_id: str | None) -> AuditPage:
    query: AuditQuery = call.query
    records = await _audit(call).read(
        principal=principal,
        session_id=session_id,
        category=query.category,
        after=query.after,
        limit=query.limit,
    )
    return AuditPage(records=records, next=records[-1].n if len(records) == query.limit else None)


def _audit(call: Call) -> Audit:
    if call.sdk.audit is None:
        raise NotFound("Nothing is audited here: the daemon keeps everything in memory.")
    return call.sdk.audit


OPERATIONS = (
    get("/v1/audit", read_audit, query=AuditQuery, exports=True, group="audit"),
    get("/v1/sessions/{session_id}/audit", read_session_audit, query=AuditQuery, group="audit"),
    get("/v1/audit/check", check_audit, scope="admin", group="audit"),
)
