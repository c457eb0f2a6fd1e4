"""`codesdk audit`: show who did and allowed what, even while it is written, and check the chain."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, session_argument, whole
from codesdk.cli.target.lookup import find_session
from codesdk.cli.target.place import connected, reading
from codesdk.cli.view.gist import local_time, plural
from codesdk.cli.view.out import write_json, write_line, write_mark, write_text
from codesdk.cli.view.safe import one_line
from codesdk.contract.errors import NotFound
from codesdk.local import AUDIT
from codesdk.store import AuditRecord, Category, Place

if TYPE_CHECKING:
    from codesdk.client import CodeSDKClient

POLL_S = 0.2  # nothing wakes a reader of the audit
_PAGE = 1000
_BAD = frozenset({"denied", "failed", "refused", "lost", "unknown"})


@click.command()
@session_argument(required=False)
@click.option(
    "--category",
    type=click.Choice(["request", "tool", "runtime", "storage"]),
    help="Only records of this kind.",
)
@click.option("--after", type=whole(0), default=0, metavar="N", help="Only records with a greater number.")
@click.option("--limit", type=whole(1), default=50, show_default=True, help="Show only the newest N.")
@click.option("--follow", is_flag=True, help="Keep showing new records, until Ctrl-C.")
@click.option(
    "--verify", is_flag=True, help="Check the whole chain. Exits 1 if a record is missing or changed."
)
@click.option(
    "--everybody", is_flag=True, help="With a daemon: the records of all principals. Needs the scope admin."
)
@click.option("--known", metavar="N:HASH", help="With --verify: the end that an earlier check printed.")
@json_option("Print one record per line as JSON; with --verify, the result.")
@click.pass_obj
def audit(
    setup: Setup,
    session: str | None,
    category: Category | None,
    after: int,
    limit: int,
    follow: bool,
    verify: bool,
    everybody: bool,
    known: str | None,
    as_json: bool,
) -> int:
    """Show who asked for what, and what came of it, in all sessions or in one."""
    if verify and (session is not None or category is not None or follow):
        raise click.UsageError("--verify checks the whole audit: it takes no session, category or --follow.")
    if known is not None and not verify:
        raise click.UsageError("--known needs --verify.")
    if verify:
        return run_async(_verify(setup, _place(known) if known else None, as_json))
    wanted = Wanted(session, category, everybody)
    return run_async(_show(setup, wanted, after, limit, follow, as_json))


class Wanted(NamedTuple):
    """Which records to show."""

    session: str | None
    category: Category | None
    everybody: bool


async def _show(
    setup: Setup, wanted: Wanted, after: int, limit: int | None, follow: bool, as_json: bool
) -> int:
    async with _source(setup, wanted) as records:
        while True:
            # A bounded deque keeps the newest.
            for record in deque([record async for record in records(after)], limit):
                after = record.n
                _print(record, as_json)
            if not follow:
                break
            limit = None  # from now on, everything that is new
            await asyncio.sleep(POLL_S)
    if not after and not as_json:
        write_line("No audit records.")
    return OK


@asynccontextmanager
async def _source(
    setup: Setup, wanted: Wanted
) -> AsyncGenerator[Callable[[int], AsyncIterator[AuditRecord]]]:
    """Yield a reader of the records after a number: a daemon's if one is named, else the data directory's."""
    if setup.url is not None:
        async with connected(setup) as client:
            session_id = None
            if wanted.session is not None:
                session_id = (await find_session(client.daemon, wanted.session)).session_id
            yield lambda after: _ask(client, wanted, session_id, after)
        return
    from codesdk.store import read_audit

    named = await _named(setup, wanted.session)
    root = Path(setup.data_dir) / AUDIT

    async def read(after: int) -> AsyncGenerator[AuditRecord]:
        for record in read_audit(root, session_id=named, category=wanted.category, after=after):
            yield record

    yield read


async def _ask(
    client: "CodeSDKClient", wanted: Wanted, session_id: str | None, after: int
) -> AsyncGenerator[AuditRecord]:
    """Yield a daemon's records, page by page."""
    from codesdk.daemon import AuditPage

    path = f"/v1/sessions/{session_id}/audit" if session_id else "/v1/audit"
    query: dict[str, Any] = {"limit": _PAGE} | ({"category": wanted.category} if wanted.category else {})
    if wanted.everybody:
        query["everybody"] = "true"
    while True:
        page = await client.connection.get(path, AuditPage, **query, after=after)
        for record in page.records:
            yield record
        if page.next is None:
            return
        after = page.next


async def _named(setup: Setup, given: str | None) -> str | None:
    """Return the id of a session. A deleted one, which only the audit knows, must be named in full."""
    async with reading(setup.data_dir) as archive:
        if given is None:
            return None
        try:
            return (await find_session(archive, given)).session_id
        except NotFound:
            if not given.startswith("ses_"):
                raise
            return given


async def _verify(setup: Setup, known: Place | None, as_json: bool) -> int:
    from codesdk.store import AuditReport, verify_audit

    if setup.url is not None:
        async with connected(setup) as client:
            report = await client.connection.get("/v1/audit/check", AuditReport)
        if known is not None:
            raise click.UsageError("--known works only on a data directory: use it on the daemon's machine.")
    else:
        async with reading(setup.data_dir):
            pass  # fail if there is no directory: it must not pass for a flawless audit
        report = await asyncio.to_thread(verify_audit, Path(setup.data_dir) / AUDIT, known)
    if as_json:
        write_json({"ok": report.ok, **msgspec.to_builtins(report)})
    elif report.ok:
        signed = f"signed up to {report.signed:,}" if report.records else "nothing was recorded yet"
        write_mark(True, f"audit: {report.records:,} records, the chain is whole, {signed}")
        write_line(f"  end {report.end.n}:{report.end.hash}")
    else:
        problems = plural(len(report.findings), "problem")
        write_mark(False, f"audit: {problems} in {report.records:,} records")
        for finding in report.findings:
            place = f" ({finding.segment})" if finding.segment else ""
            write_line(f"  {finding.kind}: {one_line(finding.message)}{place}")
    return OK if report.ok else FAILED


def _place(given: str) -> Place:
    number, _, digest = given.partition(":")
    if not number.isascii() or not number.isdigit() or not digest.startswith("sha256:"):
        raise click.UsageError(
            "--known is the end that `codesdk audit --verify` printed, such as 57:sha256:…."
        )
    return Place(n=int(number), hash=digest)


def _print(record: AuditRecord, as_json: bool) -> None:
    if as_json:
        write_json(record)
        return
    when = f"{local_time(record.time):%Y-%m-%d %H:%M:%S}"
    start = f"{record.n:>6}  {when}  {record.category:<8} {one_line(record.action, 24):<16} "
    outcome = click.style(f"{record.outcome:<9}", fg="red" if record.outcome in _BAD else None)
    if not sys.stdout.isatty():
        outcome = click.unstyle(outcome)
    write_text(sys.stdout, f"{start}{outcome} {one_line(_words(record), 200)}".rstrip() + "\n")


def _words(record: AuditRecord) -> str:
    """Return a record's who, what and why in a few words."""
    what, why, who = record.what, record.why, record.who
    by = who.id or (who.principal if who.kind == "user" else who.kind)
    names = (
        "tool",
        "method",
        "route",
        "status",
        "code",
        "http_status",
        "runtime",
        "permission_mode",
        "execution_env",
    )
    parts = [str(what[name]) for name in names if name in what]
    if "sandbox" in what:
        parts.append("network" if what["sandbox"].get("network") else "no network")
    if "session_id" in what:
        parts.append(str(what["session_id"])[-8:])
    rules = [source["rule"] for source in why.get("sources", []) if source.get("rule")]
    reason = why.get("reason") or ", ".join(rules)
    return f"by {by}: {' '.join(parts)}" + (f" · {reason}" if reason else "")
