"""`codesdk gc`: remove old and excess data from the data directory, and free the space."""

import re
import sys

import click

from codesdk.cli.app import Setup
from codesdk.cli.exits import FAILED, OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option
from codesdk.cli.target.place import connected, reading, served
from codesdk.cli.view.gist import plural, size
from codesdk.cli.view.out import write_json, write_line, write_text
from codesdk.cli.view.safe import one_line
from codesdk.contract.retention import GcReport, Progress, Retention

_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "y": 365.0}
_BYTES = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def _age(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return a span of time in days."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdwy])", value.lower())
    if found is None:
        raise click.BadParameter(f"{value!r} is not an age: write 12h, 30d, 8w or 1y.", ctx, param)
    return float(found[1]) * _DAYS[found[2]]


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a number of bytes."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Z]*)", value.upper())
    if found is None or found[2] not in _BYTES:
        raise click.BadParameter(f"{value!r} is not a size: write 500MB, 2GB or 1GiB.", ctx, param)
    return int(float(found[1]) * _BYTES[found[2]])


@click.command()
@click.option(
    "--older-than",
    callback=_age,
    metavar="AGE",
    help="Remove sessions that were not used for this long, such as 30d.",
)
@click.option(
    "--max-size",
    callback=_size,
    metavar="SIZE",
    help="Remove the oldest sessions until the rest takes less, such as 2GB.",
)
@click.option(
    "--undo-older-than", callback=_age, metavar="AGE", help="Remove the undo data of older changes."
)
@click.option(
    "--undo-max-size", callback=_size, metavar="SIZE", help="Keep only this much undo data, the newest."
)
@click.option("--audit-older-than", callback=_age, metavar="AGE", help="Remove older audit segments.")
@click.option(
    "--audit-max-size", callback=_size, metavar="SIZE", help="Keep only this much of the audit, the newest."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option("Print the report as JSON.")
@click.pass_obj
def gc(
    setup: Setup,
    older_than: float | None,
    max_size: int | None,
    undo_older_than: float | None,
    undo_max_size: int | None,
    audit_older_than: float | None,
    audit_max_size: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove old sessions and data that nothing needs any more, and free the space.

    Without limits, only data that nothing needs is removed. A session that has work to do stays. Exits 1 if
    one that is over a limit could not be removed.
    """
    retention = Retention(
        max_age_days=older_than,
        max_total_bytes=max_size,
        undo_max_age_days=undo_older_than,
        undo_max_bytes=undo_max_size,
        audit_max_age_days=audit_older_than,
        audit_max_bytes=audit_max_size,
    )
    return run_async(_gc(setup, retention, dry_run, as_json))


async def _gc(setup: Setup, retention: Retention, dry_run: bool, as_json: bool) -> int:
    from codesdk.sdk import CodeSDK

    if served(setup):
        async with connected(setup) as client:
            report = await client.collect(retention, dry_run=dry_run)
    else:
        async with reading(setup.data_dir):
            pass  # fail if there is no directory: opening it below would create one
        async with CodeSDK.open(setup.data_dir, share=False, goes_on=False) as sdk:
            report = await sdk.collect(retention, dry_run=dry_run, rewrite=True, progress=_progress())
    if as_json:
        write_json(report)
    else:
        _tell(report)
    return FAILED if report.kept else OK


def _progress() -> Progress | None:
    """Return what shows the progress, if stderr is a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        end = "\r\x1b[2K" if done == total else ""
        write_text(sys.stderr, f"\r\x1b[2Kremoved {done:,} of {total:,} sessions{end}")

    return show


def _tell(report: GcReport) -> None:
    verb = "would remove" if report.dry_run else "removed"
    for session in report.sessions:
        write_line(f"{verb}  {session.session_id}  {size(session.bytes):>9}  {session.why}")
    for kept in report.kept:
        write_line(f"kept  {kept.session_id}: {one_line(kept.reason)}", err=True)
    counts = {
        "undo file": report.undo_files,
        "uploaded file": report.uploads,
        "stray blob": report.blobs,
        "audit segment": len(report.audit_segments),
    }
    parts = [plural(len(report.sessions), "session")]
    parts += [plural(count, noun) for noun, count in counts.items() if count]
    after = "" if report.dry_run else f", now {size(report.bytes_after)}"
    write_line(f"{verb} {', '.join(parts)}; it was {size(report.bytes_before)}{after}")
