"""`codesdk jobs`: what extensions have queued, and what became of it; one of them called off, or run again."""

from typing import Any

import click
import msgspec

from codesdk.cli.app import Setup
from codesdk.cli.exits import OK
from codesdk.cli.loop import run_async
from codesdk.cli.options import json_option, whole
from codesdk.cli.target.lookup import find_session
from codesdk.cli.target.place import open_reader, open_sdk
from codesdk.cli.view.gist import local_time
from codesdk.cli.view.out import write_json, write_line
from codesdk.cli.view.safe import one_line, printable
from codesdk.contract.jobs import JobDetail, JobRow, JobState

_STATES = ("queued", "running", "completed", "failed", "canceled")
_job = click.argument("job_id", metavar="ID")


@click.group(invoke_without_command=True)
@click.pass_context
def jobs(ctx: click.Context) -> int:
    """List the jobs that extensions have queued; look at one, cancel it or have it run again (docs/extensions.md)."""
    return ctx.invoke(list_jobs) if ctx.invoked_subcommand is None else OK


@jobs.command("list")
@click.option("--state", type=click.Choice(_STATES), help="Only jobs in this state.")
@click.option("--type", "job_type", metavar="TYPE", help="Only jobs of this type.")
@click.option("--session", metavar="SESSION", help="Only jobs of this session.")
@click.option("--limit", type=whole(1), default=50, show_default=True, help="Show at most N.")
@json_option("Print one job per line as JSON.")
@click.pass_obj
def list_jobs(
    setup: Setup,
    state: JobState | None,
    job_type: str | None,
    session: str | None,
    limit: int,
    as_json: bool,
) -> int:
    """List jobs, newest first."""
    for row in (found := run_async(_list(setup, state, job_type, session, limit))):
        write_json(row) if as_json else write_line(_line(row))
    if not found and not as_json:
        write_line("There are no such jobs.")
    return OK


@jobs.command()
@_job
@json_option("Print the job as JSON.")
@click.pass_obj
def show(setup: Setup, job_id: str, as_json: bool) -> int:
    """Show a job with what its handler is given."""
    found = run_async(_show(setup, job_id))
    if as_json:
        write_json(found)
        return OK
    fields: dict[str, Any] = msgspec.to_builtins(found)
    payload = fields.pop("payload")
    for name, value in fields.items():
        write_line(f"{name:18} {one_line(str(value))}")
    write_line(printable(msgspec.json.format(msgspec.json.encode(payload), indent=2).decode()))
    return OK


@jobs.command()
@_job
@json_option("Print the job as JSON.")
@click.pass_obj
def cancel(setup: Setup, job_id: str, as_json: bool) -> int:
    """Cancel a job that is queued or running. What its handler has already done is not undone."""
    return _changed(run_async(_change(setup, job_id, retry=False)), as_json)


@jobs.command()
@_job
@json_option("Print the job as JSON.")
@click.pass_obj
def retry(setup: Setup, job_id: str, as_json: bool) -> int:
    """Run a job now that is waiting, has failed or was canceled. It gets all its attempts again.

    Without a process that has its extension, it waits for one.
    """
    return _changed(run_async(_change(setup, job_id, retry=True)), as_json)


async def _list(
    setup: Setup, state: JobState | None, job_type: str | None, session: str | None, limit: int
) -> list[JobRow]:
    async with open_reader(setup) as archive:
        named = None if session is None else (await find_session(archive, session)).session_id
        return await archive.jobs(state=state, job_type=job_type, session_id=named, limit=limit)


async def _show(setup: Setup, job_id: str) -> JobDetail:
    async with open_reader(setup) as archive:
        return await archive.job(job_id)


async def _change(setup: Setup, job_id: str, *, retry: bool) -> JobRow:
    async with open_sdk(setup) as sdk:
        return await (sdk.retry_job(job_id) if retry else sdk.cancel_job(job_id))


def _changed(row: JobRow, as_json: bool) -> int:
    if as_json:
        write_json(row)
    else:
        write_line(f"{row.job_id} is {row.state}.")
    return OK


def _line(row: JobRow) -> str:
    tried = f"  {row.attempts} attempts" if row.attempts > 1 else ""
    error = f"  {one_line(row.error)}" if row.error is not None else ""
    when = f"{local_time(row.created_at):%Y-%m-%d %H:%M}"
    return f"{row.job_id}  {row.state:9}  {when}  {one_line(row.type)}{tried}{error}"
