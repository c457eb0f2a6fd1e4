"""Writing a bundle: what is in it, in which order, how large it gets, and what is said of the rest."""

import asyncio
import hashlib
import io
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.bundle.unpacked import bundled, written
from tests.cli.shell import Shell

from codesdk import CodeSDK, NotFound
from codesdk.bundle import write as writing
from codesdk.bundle.story import OUTPUT_CHARS, Output
from codesdk.contract.canonical import hash_json
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.codec import decode
from codesdk.contract.runtime import RuntimeItem
from codesdk.contract.settings import Limits
from codesdk.engine.log.clock import millis
from codesdk.local import ControlServer, holder
from codesdk.policy.rules import Rule, RulePolicy
from codesdk.runtimes.scripted.adapter import ScriptedRuntime
from codesdk.script import parse_object
from codesdk.testing.fakes import FakeRuntime, FakeTask, FakeTools, call, delta, done, message


def scripted(*turns: Any) -> dict[str, Any]:
    return {"scripted": ScriptedRuntime(parse_object({"turns": list(turns)}, "a test"))}


async def test_a_bundle_holds_all_of_a_session_and_lists_what_it_holds(tmp_path: Path):
    tools = FakeTools()
    tools.hold("fake.write")
    runtime = FakeRuntime([call("fake.write", {"path": "a"}), message("Done."), done()])
    async with CodeSDK.open(tmp_path, runtimes={"fake": runtime}, tools=tools, allow_yolo=True) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path, permission_mode="yolo")
        task = await session.start("Write it.")
        run = await tools.started()
        run.say("half ")
        run.say("a line\n")
        run.say("oh dear", "stderr")
        run.finish("written")
        await task.result()
        manifest, bundle = await bundled(sdk, session.id)
        frames = [frame async for frame in sdk.archive.frames(session.id)]
        messages = await sdk.archive.transcript(session.id)
    assert [json.dumps(event) for event in bundle.events] == [
        json.dumps(json.loads(frame.data)) for frame in frames
    ]
    (made,) = bundle.calls
    assert (made["name"], made["stdout"], made["stderr"]) == ("fake.write", "half a line\n", "oh dear")
    assert made["requested"][0]["input"] == {"path": "a"}
    assert made["completed"][0]["result_preview"] == "written"
    assert len(bundle.json("transcript.json")) == len(messages) == 3
    assert bundle.json("verify.json") == {"ok": True, "interrupted": False, "findings": []}
    summary = bundle.json("summary.json")
    assert [task["state"] for task in summary["tasks"]] == ["completed"]
    assert (summary["events"], summary["tool_calls"], summary["errors"]) == (len(frames), 1, [])
    assert (manifest.session_id, manifest.last_seq, manifest.left_out) == (session.id, len(frames), [])
    assert bundle.json("manifest.json")["files"] == [
        {"path": file.path, "size": file.size, "sha256": file.sha256, "what": file.what}
        for file in manifest.files
    ]
    assert {file.path: (file.size, file.sha256) for file in manifest.files} == {
        name: (len(data), hashlib.sha256(data).hexdigest())
        for name, data in bundle.files.items()
        if name != "manifest.json"
    }
    stored = {entry["file"]: entry["content_hash"] for entry in bundle.json("artifacts.json")}
    assert stored == {
        name: f"sha256:{hashlib.sha256(bundle.files[name]).hexdigest()}" for name in bundle.below("artifacts")
    }


async def test_two_bundles_of_one_session_differ_in_when_they_were_made_and_in_nothing_else(tmp_path: Path):
    runtimes = scripted({"steps": [{"text": "Hello."}]})
    async with CodeSDK.open(tmp_path, runtimes=runtimes) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        await (await session.start("Hi")).result()
        (_, first), (_, second) = await bundled(sdk, session.id), await bundled(sdk, session.id)
        row = await sdk.archive.session(session.id)
    names = [member.name for member in first.members]
    assert names == [member.name for member in second.members]
    assert names[1:] == sorted(names[1:])
    assert names[0] == f"{session.id}/manifest.json"
    assert {(m.mtime, m.mode, m.uid, m.gid, m.uname, m.type) for m in first.members} == {
        (m.mtime, m.mode, m.uid, m.gid, m.uname, m.type) for m in second.members
    }
    assert {m.mtime for m in first.members} == {millis(row.updated_at) // 1000}
    changing = {"manifest.json", "health.json"}
    assert {name: data for name, data in first.files.items() if name not in changing} == {
        name: data for name, data in second.files.items() if name not in changing
    }


async def test_artifacts_that_do_not_fit_are_listed_and_the_limit_holds(tmp_path: Path):
    limit = 60_000

    async def play(task: FakeTask) -> AsyncIterator[RuntimeItem]:
        await task.host.put_artifact(b"small", "text/plain", "small")
        await task.host.put_artifact(b"x" * limit, "text/plain", "large")
        yield message("Kept.")
        yield done()

    async with CodeSDK.open(tmp_path, runtimes={"fake": FakeRuntime(play)}) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path)
        await (await session.start("Hi")).result()
        manifest, bundle = await bundled(sdk, session.id, max_bytes=limit)
    files = {entry["name"]: entry["file"] for entry in bundle.json("artifacts.json")}
    assert files["large"] is None
    assert bundle.files[files["small"]] == b"small"
    assert sum(file.size for file in manifest.files) <= limit
    (left,) = manifest.left_out
    assert (left.size, "large" in left.what, "limit" in left.why) == (limit, True, True)


async def test_of_too_many_events_the_first_and_the_last_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writing, "_PAGE_EVENTS", 50)
    runtime = FakeRuntime([*(delta(f"{number} ") for number in range(1_000)), message("So many."), done()])
    async with CodeSDK.open(tmp_path, runtimes={"fake": runtime}) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path)
        await (await session.start("Count.")).result()
        manifest, bundle = await bundled(sdk, session.id, max_bytes=200_000)
    seqs = [event["seq"] for event in bundle.events]
    assert seqs[:50] == list(range(1, 51))
    assert seqs[-1] == manifest.last_seq
    assert seqs[50:] == list(range(seqs[50], manifest.last_seq + 1))
    assert 100 < len(seqs) < manifest.last_seq
    assert [left.what for left in manifest.left_out] == [
        f"{(seqs[50] - 51) // 50} files of events, from seq 51 on"
    ]
    assert sum(len(bundle.files[name]) for name in bundle.below("events")) <= 100_000


async def test_a_broken_session_still_has_a_bundle_that_says_what_is_broken(tmp_path: Path):
    runtimes = scripted({"steps": [{"text": "Hello."}]})
    async with CodeSDK.open(tmp_path, runtimes=runtimes) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        await (await session.start("Hi")).result()
    with sqlite3.connect(tmp_path / "codesdk.db") as db:
        db.execute("UPDATE events SET frame = X'00ff' WHERE seq = 3")
        db.execute("DELETE FROM blobs")
    db.close()
    args = ("--data-dir", str(tmp_path), "bundle", session.id, "-o", str(tmp_path / "b.tar.gz"))
    ran = await asyncio.to_thread(Shell(tmp_path).spawn, *args)
    assert (ran.code, ran.err) == (0, "")
    bundle = written(tmp_path / "b.tar.gz")
    assert [set(event) for event in bundle.events if event["seq"] == 3] == [{"seq", "damage"}]
    assert bundle.json("verify.json")["ok"] is False
    left = bundle.json("manifest.json")["left_out"]
    assert any("could not be read" in entry["why"] for entry in left)
    assert {"health.json", "versions.json", "summary.json"} <= set(bundle.files)


async def test_a_bundle_is_its_owners_alone(tmp_path: Path):
    runtimes = scripted({"steps": [{"text": "Hello."}]})
    async with CodeSDK.open(tmp_path, runtimes=runtimes, principal="ann") as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        with pytest.raises(NotFound):
            await sdk.as_principal("bob").write_bundle(session.id, io.BytesIO())
        manifest, bundle = await bundled(sdk, session.id, health={"status": "as the daemon says"})
    assert manifest.last_seq == 1
    health = bundle.json("health.json")
    assert (health["process"], health["ok"]) == ({"status": "as the daemon says"}, False)
    assert "path" not in health["data_dir"]


async def test_a_call_that_waits_is_in_the_bundle_of_a_running_session(tmp_path: Path):
    runtime = FakeRuntime([call("fake.write", {"path": "a"}), done()])
    async with CodeSDK.open(tmp_path, runtimes={"fake": runtime}, tools=FakeTools()) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path)
        task = await session.start("Write it.")
        async for event in session.events():
            if event.type == "approval.requested":
                break
        target = tmp_path / "b.tar.gz"
        args = ("--data-dir", str(tmp_path), "bundle", "last", "-o", str(target), "--json")
        ran = await asyncio.to_thread(Shell(tmp_path).spawn, *args)
        await task.stop("enough")
    assert ran.code == 0
    assert ran.lines[0]["manifest"]["session_id"] == session.id
    bundle = written(target)
    assert [call["name"] for call in bundle.calls] == ["fake.write"]
    assert bundle.json("summary.json")["tasks"][0]["state"] == "running"
    assert bundle.json("health.json")["writer_running"] is True
    assert bundle.json("verify.json") == {"ok": True, "interrupted": False, "findings": []}
    assert target.stat().st_mode & 0o777 == 0o600


async def test_what_files_were_before_a_tool_changed_them_is_not_in_a_bundle(tmp_path: Path):
    workspace = tmp_path / "ws"
    workspace.mkdir()
    marker = "only-in-the-old-file"
    old = "\n".join([marker, *(f"line {number}" for number in range(100)), "last"])
    (workspace / "notes.txt").write_text(old)
    edit = {"path": "notes.txt", "content": old.replace("last", "changed")}
    turn = {"steps": [{"call": {"tool": "workspace.write", "input": edit}}]}
    runtimes = scripted(turn, {"steps": [{"text": "Done."}]})
    async with CodeSDK.open(tmp_path / "data", runtimes=runtimes, allow_yolo=True) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=workspace, permission_mode="yolo")
        await (await session.start("Change it.")).result()
        _, bundle = await bundled(sdk, session.id)
        (changed,) = [
            event["payload"]["changes"] for event in bundle.events if event["type"] == "tool.call.completed"
        ]
    kept = [path.read_bytes() for path in (tmp_path / "data" / "undo").rglob("*") if path.is_file()]
    assert changed[0]["undo"]
    assert any(marker.encode() in data for data in kept)
    assert not any(data in bundle.bytes for data in kept)


def test_output_is_kept_from_both_ends():
    output = Output()
    for _ in range(3):
        output.add("a" * OUTPUT_CHARS)
    output.add("end")
    text = output.text()
    assert text.startswith("a" * OUTPUT_CHARS + f"\n… {OUTPUT_CHARS + 3:,} characters …\n")
    assert text.endswith("aend")
    short = Output()
    short.add("one ")
    short.add("two")
    assert short.text() == "one two"


def test_every_stored_event_type_can_be_told():
    golden = Path(__file__).parents[1] / "contract" / "golden_events.jsonl"
    from codesdk.bundle.story import Story

    story = Story()
    lines = golden.read_bytes().split(b"\n")
    for line in lines:
        if line:
            story.take(decode(line))
    assert story.types.total() == sum(1 for line in lines if line)


async def test_the_policy_in_force_is_in_a_bundle_with_its_hash(tmp_path: Path):
    rules = [
        Rule(id="no-secrets", result="deny", path="secrets/**"),
        Rule(id="reads", result="allow", tool="workspace.read"),
    ]
    limits = Limits(max_queue=7)
    async with CodeSDK.open(tmp_path, policy=RulePolicy(rules), limits=limits, allow_yolo=True) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        _, bundle = await bundled(sdk, session.id)
    config = bundle.json("config.json")
    listed = msgspec.to_builtins(rules)
    assert config["policy"]["rules"] == listed
    assert config["policy"]["rules_hash"] == hash_json(listed)
    assert config["launch"]["limits"]["max_queue"] == 7
    assert config["launch"]["permits"]["allow_yolo"] is True


async def test_a_bundle_written_through_the_holder_has_what_the_holder_says_of_itself(tmp_path: Path):
    rules = [Rule(id="reads of swordfish", result="allow", tool="workspace.read")]
    secrets = ["swordfish"]
    async with CodeSDK.open(
        tmp_path, policy=RulePolicy(rules), limits=Limits(max_queue=7), secrets=secrets
    ) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        async with CodeSDK.open(tmp_path) as other:
            assert not other.is_holder
            _, bundle = await bundled(other, session.id)
    config = bundle.json("config.json")
    assert config["launch"]["limits"]["max_queue"] == 7
    assert [rule["result"] for rule in config["policy"]["rules"]] == ["allow"]
    assert config["policy"]["rules_hash"] == hash_json(msgspec.to_builtins(rules))
    assert b"swordfish" not in bundle.bytes


async def test_a_holder_that_says_nothing_of_itself_does_not_keep_a_bundle_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(holder, "PATIENCE_S", 0.1)
    monkeypatch.setattr(ControlServer, "_describe", silent)
    async with CodeSDK.open(tmp_path) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        async with CodeSDK.open(tmp_path) as other:
            manifest, bundle = await bundled(other, session.id)
    assert manifest.left_out == []
    config = bundle.json("config.json")
    assert (config["launch"], config["policy"]["rules"]) == (None, None)


async def test_the_transport_in_a_bundle_is_the_recorded_one(tmp_path: Path):
    served = Capabilities(
        tool_execution_model="external_mcp", mcp_support="client_only", mcp_transports=["http"]
    )
    runtimes = {"scripted": FakeRuntime([], name="scripted", capabilities=served)}
    async with CodeSDK.open(tmp_path, runtimes=runtimes) as sdk:
        session = await sdk.create_session(runtime="scripted", workspace=tmp_path)
        _, bundle = await bundled(sdk, session.id)
    found = bundle.json("mcp.json")["runtimes"]
    # The release's own scripted runtime takes no MCP, and codex always does: the log says what happened here.
    assert (found["scripted"]["chosen"], found["scripted"]["seq"]) == ("http", 1)
    assert (found["codex-sdk"]["supported"], found["codex-sdk"]["chosen"]) == (["http"], None)
