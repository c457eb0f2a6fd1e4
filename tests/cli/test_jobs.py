"""`codesdk jobs`: what extensions queued, at a data directory and with a daemon."""

import asyncio

import pytest
from tests.cli.shell import Shell
from tests.daemon.rig import Daemon, daemon
from tests.extensions.jobs_rig import Watched, queues
from tests.extensions.rig import Extensions

from codesdk import CodeSDK, SessionSettings

HELLO = {"turns": [{"steps": [{"text": "Hello."}]}], "loop": True}
NOBODY = '    raise OSError("nobody \\x1b[31mis at home")'


@pytest.fixture
def ext(shell: Shell) -> Extensions:
    ext = Extensions(shell.home / "ext")
    source = queues('{"type": "mail", "payload": {"to": "ann"}}', NOBODY, options="attempts=1")
    ext.write("helper", source, actions=["queue.enqueue"])
    return ext


@pytest.fixture
def session(shell: Shell, ext: Extensions) -> str:
    """A stored session with a job that failed."""

    async def make() -> str:
        async with CodeSDK.open(shell.data, extensions=ext.options()) as sdk:
            watched = Watched(sdk)
            settings = SessionSettings(runtime_config={"script": HELLO})
            made = await sdk.create_session(runtime="scripted", workspace=shell.workspace, settings=settings)
            await (await made.start("Go.")).result()
            await watched.ended()
            return made.id

    return asyncio.run(make())


def test_jobs_are_listed_and_shown_without_a_daemon(shell: Shell, session: str):
    (row,) = shell.codesdk("jobs", "list", "--json").lines
    assert (row["state"], row["type"], row["source_session_id"]) == ("failed", "mail", session)
    plain = shell.codesdk("jobs")
    assert plain.out.startswith(f"{row['job_id']}  failed     ")
    assert plain.out.endswith("mail  OSError: nobody ␛[31mis at home\n")
    for options, count in (
        (("--state", "failed"), 1),
        (("--state", "queued"), 0),
        (("--type", "post"), 0),
        (("--session", "last"), 1),
    ):
        assert len(shell.codesdk("jobs", "list", *options, "--json").lines) == count
    assert shell.codesdk("jobs", "list", "--state", "queued").out == "There are no such jobs.\n"
    shown = shell.codesdk("jobs", "show", row["job_id"])
    assert shown.code == 0
    assert ('"to": "ann"' in shown.out, "\x1b" in shown.out) == (True, False)
    (whole,) = shell.codesdk("jobs", "show", row["job_id"], "--json").lines
    assert whole == {**row, "payload": {"to": "ann"}}


def test_a_job_is_retried_and_canceled_without_a_daemon(shell: Shell, session: str):
    (row,) = shell.codesdk("jobs", "list", "--json").lines
    job = row["job_id"]
    assert shell.codesdk("jobs", "retry", job).out == f"{job} is queued.\n"
    (row,) = shell.codesdk("jobs", "cancel", job, "--json").lines
    assert row["state"] == "canceled"
    again = shell.codesdk("jobs", "cancel", job, "--json")
    assert (again.code, again.error["code"]) == (4, "CONFLICT")
    missing = shell.codesdk("jobs", "show", "job_none", "--json")
    assert (missing.code, missing.error["code"]) == (3, "NOT_FOUND")


def until(running: Daemon, state: str) -> None:
    """Ask until the only job is in a state."""
    while [row["state"] for row in running.get("/v1/jobs")["jobs"]] != [state]:
        pass


def test_a_daemon_runs_what_is_retried(shell: Shell, ext: Extensions, session: str):
    (row,) = shell.codesdk("jobs", "list", "--json").lines
    ext.write("helper", queues('{"type": "mail"}', "    pass"), actions=["queue.enqueue"])
    with daemon(shell.data, "--extension", str(ext.root)) as running:
        assert shell.codesdk("jobs", "retry", row["job_id"]).code == 0
        until(running, "completed")
        (row,) = shell.codesdk("jobs", "list", "--json").lines
        assert (row["state"], row["attempts"]) == ("completed", 1)
        (over,) = shell.codesdk("--url", running.url, "jobs", "show", row["job_id"], "--json").lines
        assert over == {**row, "payload": {"to": "ann"}}
        refused = shell.codesdk("jobs", "retry", row["job_id"], "--json")
        assert (refused.code, refused.error["code"]) == (4, "CONFLICT")
