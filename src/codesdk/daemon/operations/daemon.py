"""Operations about the daemon itself: health, readiness, runtimes, metrics, clean-up, who the caller is."""

import asyncio
import contextlib
from typing import Any

import msgspec

from codesdk import __version__
from codesdk.contract.actions import SCOPES
from codesdk.contract.api import (
    Collecting,
    Health,
    Readiness,
    RuntimeInfo,
    RuntimePage,
    TokenInfo,
)
from codesdk.contract.entry import RuntimeEntry
from codesdk.contract.errors import CodeSDKError, StorageFailure
from codesdk.contract.events import CONTRACT_VERSION
from codesdk.contract.ports import EventLog
from codesdk.contract.retention import GcReport
from codesdk.contract.runtime import Runtime
from codesdk.daemon.operations.accounts import enabled
from codesdk.daemon.operations.operation import Call, Operation, get
from codesdk.daemon.problems import not_ready
from codesdk.daemon.responses import Whole
from codesdk.observe import CONTENT_TYPE
from codesdk.runtimes import create_runtime

PROBE_S = 5.0


async def health(call: Call) -> Health:
    """Does the daemon answer."""
    return Health(status="ok", version=__version__, contract_version=CONTRACT_VERSION)


async def ready(call: Call) -> Readiness:
    """Does the daemon take work.

    Problems that do not stop it are in the answer. With any other it is 503: the daemon shuts down, or what it
    is told cannot be stored.
    """
    call.refuse_late()
    await _probe(call.sdk.archive.log)
    trouble = None if call.sdk.audit is None else call.sdk.audit.trouble
    return Readiness(ready=True, problems=[] if trouble is None else [trouble])


async def _probe(log: EventLog) -> None:
    """Write something small to the store. A read would not notice a full disk."""
    try:
        async with asyncio.timeout(PROBE_S):
            await log.keep_cursor("readiness probe", 0)
    except TimeoutError:
        raise not_ready(f"The store did not take a write within {PROBE_S:g} s.") from None
    except StorageFailure as error:
        # Anyone may ask, so the reason is named without the path that the error's own words hold.
        reason = (error.details or {}).get("sqlite", "the cause is in the daemon's log")
        raise not_ready(f"The store refused a write ({reason}).") from error


async def process_health(call: Call) -> dict[str, Any]:
    """Return the daemon's own health, for a support bundle: what `/v1/health` and `/v1/ready` say."""
    found: dict[str, Any] = msgspec.to_builtins(await health(call))
    try:
        answer: dict[str, Any] = msgspec.to_builtins(await ready(call))
    except CodeSDKError as error:
        answer = {"ready": False, "problems": [error.message]}
    return {**found, **answer, "draining": call.draining}


async def whoami(call: Call) -> TokenInfo:
    """Who am I to the daemon, and what may I do."""
    return TokenInfo(
        principal=call.caller.principal, scopes=[scope for scope in SCOPES if call.caller.may(scope)]
    )


async def read_metrics(call: Call) -> Whole:
    """Figures for Prometheus.

    Over all principals together, and without their names.
    """
    return Whole(200, await call.metrics.scrape(), ((b"content-type", CONTENT_TYPE.encode()),))


async def collect_garbage(call: Call) -> GcReport:
    """Remove what is older or more than is to be kept, of all principals."""
    wanted: Collecting = call.body
    return await call.sdk.engine.keys.once(
        call.caller.principal,
        call.operation.name,
        call.key,
        msgspec.to_builtins(wanted),
        lambda _: call.sdk.collect(wanted, dry_run=wanted.dry_run),
        passing=True,
    )


async def list_runtimes(call: Call) -> RuntimePage:
    """List the runtimes and what each can do."""
    found: list[RuntimeInfo] = []
    for entry in enabled(call):
        # An executable that has not said what it is: asking for its auth status says why.
        with contextlib.suppress(CodeSDKError):
            found.append(_info(entry, call.sdk.external.get(entry.name)))
    return RuntimePage(runtimes=found)


def _info(entry: RuntimeEntry, external: Runtime | None) -> RuntimeInfo:
    capabilities = (external or create_runtime(entry.name)).capabilities()
    return RuntimeInfo(name=entry.name, alias=entry.alias, capabilities=capabilities)


OPERATIONS = (
    get("/v1/health", health, scope=None, group="daemon"),
    get("/v1/ready", ready, scope=None, group="daemon"),
    get("/v1/whoami", whoami, group="daemon"),
    get("/v1/metrics", read_metrics, scope="admin", answer=str, media_type="text/plain", group="daemon"),
    Operation(
        name="collectGarbage",
        method="POST",
        path="/v1/gc",
        scope="admin",
        run=collect_garbage,
        body=Collecting,
        answer=GcReport,
        group="daemon",
    ),
    get("/v1/runtimes", list_runtimes, group="runtimes"),
)
