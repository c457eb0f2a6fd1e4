"""Jobs of extensions over HTTP: listed, looked at, called off, run again and counted, and each principal has its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.requests import UNKNOWN
from tests.daemon.rig import Daemon, daemon, problem
from tests.extensions.jobs_rig import queues
from tests.extensions.rig import Extensions
from tests.observe.test_metrics import samples

from codesdk.client import CodeSDKClient, SyncClient
from codesdk.local.tokens import TokenFile

# It fails until somebody makes the file.
BODY = """
    from pathlib import Path
    if not Path({flag!r}).exists():
        raise OSError("nobody is at home")
"""


class Rig:
    """A daemon with an extension, ann who has a job that failed, and bob."""

    def __init__(self, running: Daemon, flag: Path, ann: str, bob: str) -> None:
        self.running = running
        self.flag = flag
        self.ann = ann
        self.bob = {"authorization": f"Bearer {bob}"}
        running.http.headers["authorization"] = f"Bearer {ann}"
        self.session = running.session()
        running.run(self.session)
        self.job = self.until("failed")

    def until(self, state: str) -> Any:
        """Ask for the job until it is in a state."""
        while True:
            found = self.running.get("/v1/jobs")["jobs"]
            if [row["state"] for row in found] == [state]:
                return found[0]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    tokens = TokenFile(tmp_path / "data")
    ann, bob = (tokens.add(name, ["admin"])[0] for name in ("ann", "bob"))
    ext, flag = Extensions(tmp_path / "ext"), tmp_path / "at-home"
    source = queues(
        '{"type": "mail", "payload": {"to": "ann"}}', BODY.format(flag=str(flag)), options="attempts=1"
    )
    ext.write("helper", source, actions=["queue.enqueue"])
    with daemon(tmp_path / "data", "--extension", str(ext.root)) as running:
        yield Rig(running, flag, ann, bob)


def test_a_job_is_listed_shown_retried_and_canceled(rig: Rig):
    running, job = rig.running, rig.job
    assert (job["type"], job["attempts"], job["error"]) == ("mail", 1, "OSError: nobody is at home")
    assert (job["extension"], job["source_session_id"]) == ("helper", rig.session)
    assert running.get(f"/v1/jobs/{job['job_id']}") == {**job, "payload": {"to": "ann"}}
    wanted: list[tuple[dict[str, Any], int]] = [
        ({"session_id": rig.session}, 1),
        ({"state": "queued"}, 0),
        ({"type": "post"}, 0),
        ({"limit": 1}, 1),
    ]
    for query, count in wanted:
        assert len(running.get("/v1/jobs", **query)["jobs"]) == count
    page = running.get("/v1/jobs", limit=1)
    assert running.get("/v1/jobs", after=page["next"])["jobs"] == []
    for wrong in ("lost", "null"):
        assert problem(running.http.get(f"/v1/jobs?state={wrong}")) == (400, "INVALID_REQUEST")
    path = f"/v1/jobs/{job['job_id']}"
    assert problem(running.http.post(f"{path}/cancel", json={})) == (409, "CONFLICT")
    rig.flag.touch()
    assert running.post(f"{path}/retry")["state"] == "queued"
    done = rig.until("completed")
    assert (done["job_id"], done["attempts"]) == (job["job_id"], 1)
    assert problem(running.http.post(f"{path}/retry", json={})) == (409, "CONFLICT")


def test_what_is_anothers_answers_as_if_it_were_not_there(rig: Rig):
    running = rig.running
    assert running.http.get("/v1/jobs", headers=rig.bob).json() == {"jobs": []}
    for method, tail in (("GET", ""), ("POST", "/cancel"), ("POST", "/retry")):
        body: Any = {"json": {}} if method == "POST" else {}
        texts: list[str] = []
        for name in (rig.job["job_id"], UNKNOWN["job_id"]):
            answer = running.http.request(method, f"/v1/jobs/{name}{tail}", headers=rig.bob, **body)
            assert problem(answer) == (404, "NOT_FOUND")
            texts.append(answer.json()["detail"].replace(name, ""))
        assert texts[0] == texts[1]
    assert running.get("/v1/jobs")["jobs"] == [rig.job]


def test_handlers_and_jobs_are_counted(rig: Rig):
    found = samples(rig.running.http.get("/v1/metrics").content)
    assert found['codesdk_jobs{state="failed"}'] == 1
    assert found['codesdk_job_attempts_total{outcome="failed",type="mail"}'] == 1
    assert found['codesdk_extension_calls_total{extension="helper",outcome="enqueue_result"}'] == 1
    assert found["codesdk_extension_dispatch_seconds_count"] == 1
    assert found["codesdk_job_attempt_seconds_count"] == 1
    assert found["codesdk_extension_backlog"] == 0


def test_who_queued_and_who_changed_a_job_is_in_the_audit(rig: Rig):
    rig.flag.touch()
    rig.running.post(f"/v1/jobs/{rig.job['job_id']}/retry")
    records = rig.running.get(f"/v1/sessions/{rig.session}/audit", limit=1000)["records"]
    about = [one for one in records if "job" in one["action"] or "queue.enqueue" in one["action"]]
    assert [(one["action"], one["who"]["principal"], one["who"].get("kind", "user")) for one in about] == [
        ("extension.queue.enqueue", "ann", "extension"),
        ("job.retry", "ann", "user"),
    ]
    assert (about[0]["who"]["id"], about[1]["what"]["job_id"]) == ("helper", rig.job["job_id"])


@pytest.mark.anyio
async def test_the_clients_have_the_same_verbs(rig: Rig):
    url, job_id = rig.running.url, rig.job["job_id"]
    async with CodeSDKClient.connect(url, rig.ann) as client:
        (row,) = await client.jobs(state="failed", job_type="mail", session_id=rig.session)
        detail = await client.job(job_id)
        assert (row.job_id, detail.payload, detail.error) == (job_id, {"to": "ann"}, row.error)
        assert (await client.retry_job(job_id)).state == "queued"
    rig.until("failed")


def test_the_client_without_asyncio_has_them_too(rig: Rig):
    with SyncClient.connect(rig.running.url, rig.ann) as client:
        (row,) = client.jobs()
        assert client.job(row.job_id).payload == {"to": "ann"}
        assert client.retry_job(row.job_id).state == "queued"
