"""The audit chain: what was done to it shows, a crash does not break it, and nothing goes missing in silence."""

import asyncio
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.counts import COUNTS
from tests.store.audit.samples import WHEN, entry

from codesdk.contract.errors import StorageFailure
from codesdk.contract.events import Event, RuntimeInfo, SessionClosed, SessionClosedEvent, Trace
from codesdk.redaction.redactor import Redactor
from codesdk.store.audit.chain import (
    GENESIS,
    AuditEntry,
    AuditRecord,
    Place,
    Who,
    seal,
    segments,
    unseal,
)
from codesdk.store.audit.chain_file import MAX_LINE_BYTES, ChainFile
from codesdk.store.audit.reading import read_audit
from codesdk.store.audit.trail import Audit
from codesdk.store.audit.verify import AuditReport, verify_audit

pytestmark = pytest.mark.anyio

SOURCE = str(Path(__file__).parents[3] / "src")


def fill(root: Path, count: int = 12, segment_bytes: int = 900) -> None:
    """Write a chain of a few records to each segment."""
    chain = ChainFile(root, segment_bytes)
    for number in range(1, count + 1):
        chain.append([entry(number)])
    chain.sync()
    chain.close()


def numbers(root: Path) -> list[int]:
    return [record.n for record in read_audit(root)]


def kinds(report: AuditReport) -> list[tuple[str, int | None]]:
    return [(finding.kind, finding.n) for finding in report.findings]


# --- the chain ---------------------------------------------------------------------------------------


def test_a_record_names_the_one_before_it_and_is_written_in_one_way_only():
    line, place = seal(entry(7), Place())
    record = unseal(line.rstrip(b"\n"))
    assert record == AuditRecord(**msgspec.structs.asdict(entry(7)), n=1, prev=GENESIS, hash=place.hash)
    assert unseal(json.dumps(json.loads(line)).encode()) is None  # the same values, other spaces
    assert unseal(line) is None  # a line end that does not belong to it


def test_files_are_for_their_owner_only_and_begin_with_the_record_in_their_name(tmp_path: Path):
    root = tmp_path / "audit"
    fill(root)
    found = segments(root)
    assert len(found) >= 3
    assert [next(iter(read_audit_file(segment.path))).n for segment in found] == [s.first for s in found]
    assert {path.stat().st_mode & 0o777 for path in root.iterdir()} == {0o600}
    assert root.stat().st_mode & 0o777 == 0o700
    report = verify_audit(root)
    assert (report.ok, report.records, report.first, report.end.n, report.signed) == (True, 12, 1, 12, 12)


def read_audit_file(path: Path) -> list[AuditRecord]:
    return [msgspec.json.decode(line, type=AuditRecord) for line in path.read_bytes().splitlines()]


def test_a_chain_goes_on_where_it_was_left(tmp_path: Path):
    fill(tmp_path)
    fill(tmp_path, 5)
    assert numbers(tmp_path) == list(range(1, 18))
    assert verify_audit(tmp_path).ok


def test_an_entry_that_has_no_canonical_form_or_is_too_long_leaves_a_record_that_says_so(tmp_path: Path):
    chain = ChainFile(tmp_path)
    chain.append([entry(1, half="\ud800"), entry(2, long="x" * MAX_LINE_BYTES), entry(3)])
    chain.sync()
    chain.close()
    odd, long, plain = read_audit(tmp_path)
    assert (odd.what, odd.why) == ({}, {"reason": "the entry has no canonical form: CanonicalError"})
    assert long.what == {}
    assert "more than the 65,536 that a line may have" in long.why["reason"]
    assert plain.what == {"number": 3}
    assert verify_audit(tmp_path).ok


# --- tampering ---------------------------------------------------------------------------------------


def edit(root: Path, change: Callable[[list[bytes]], object]) -> None:
    """Change the lines of a chain as if they were one list, and put them back into the same files."""
    found = segments(root)
    held = [segment.path.read_bytes().splitlines(keepends=True) for segment in found]
    lines = [line for part in held for line in part]
    change(lines)
    for segment, part in zip(found[:-1], held[:-1], strict=True):
        segment.path.write_bytes(b"".join(lines[: len(part)]))
        del lines[: len(part)]
    found[-1].path.write_bytes(b"".join(lines))


def remove(at: int) -> Callable[[list[bytes]], object]:
    return lambda lines: lines.pop(at - 1)


def forged(record: AuditRecord, outcome: str) -> AuditEntry:
    return msgspec.convert(msgspec.to_builtins(record) | {"outcome": outcome}, type=AuditEntry)


def rewrite(at: int, *, rehash: bool) -> Callable[[list[bytes]], object]:
    def change(lines: list[bytes]) -> None:
        record = msgspec.json.decode(lines[at - 1], type=AuditRecord)
        sealed, _ = seal(forged(record, "denied"), Place(n=at - 1, hash=record.prev))
        lines[at - 1] = sealed if rehash else lines[at - 1].replace(b'"outcome":"ok"', b'"outcome":"no"')

    return change


def rewrite_to_the_end(at: int) -> Callable[[list[bytes]], object]:
    """Change a record and give it and all that follow the hashes that fit."""

    def change(lines: list[bytes]) -> None:
        place = Place(n=at - 1, hash=msgspec.json.decode(lines[at - 1], type=AuditRecord).prev)
        for index in range(at - 1, len(lines)):
            record = msgspec.json.decode(lines[index], type=AuditRecord)
            lines[index], place = seal(forged(record, "forged"), place)

    return change


def swap(first: int, second: int) -> Callable[[list[bytes]], object]:
    def change(lines: list[bytes]) -> None:
        lines[first - 1], lines[second - 1] = lines[second - 1], lines[first - 1]

    return change


def insert(at: int, *, forged: bool) -> Callable[[list[bytes]], object]:
    def change(lines: list[bytes]) -> None:
        record = msgspec.json.decode(lines[at - 1], type=AuditRecord)
        line, _ = seal(entry(99), Place(n=at - 1, hash=record.prev))
        lines.insert(at - 1, line if forged else b"nonsense\n")

    return change


def cut(count: int) -> Callable[[list[bytes]], object]:
    def change(lines: list[bytes]) -> None:
        del lines[-count:]

    return change


def drop_segment(which: int) -> Callable[[Path], object]:
    return lambda root: segments(root)[which].path.unlink()


def on_lines(change: Callable[[list[bytes]], object]) -> Callable[[Path], object]:
    return lambda root: edit(root, change)


TAMPERED: dict[str, tuple[Callable[[Path], object], list[tuple[str, int | None]]]] = {
    "a line is removed": (on_lines(remove(5)), [("missing", 5)]),
    "the first line is removed": (on_lines(remove(1)), [("missing", 1)]),
    "a line is changed": (on_lines(rewrite(5, rehash=False)), [("changed", 5)]),
    "a line is changed and its hash too": (on_lines(rewrite(5, rehash=True)), [("unlinked", 6)]),
    "all hashes behind a change are made to fit": (on_lines(rewrite_to_the_end(5)), [("changed", 12)]),
    "the last line is changed and its hash too": (on_lines(rewrite(12, rehash=True)), [("changed", 12)]),
    "neighbours are swapped": (on_lines(swap(5, 6)), [("order", 5)]),
    "the lines at a border are swapped": (on_lines(swap(3, 4)), [("order", 3)]),
    "a line is inserted": (on_lines(insert(5, forged=True)), [("twice", 5), ("unlinked", 6)]),
    "nonsense is inserted": (on_lines(insert(5, forged=False)), [("unreadable", None)]),
    "the last line is cut off": (on_lines(cut(1)), [("missing", 12)]),
    "many lines are cut off": (on_lines(cut(9)), [("missing", 4)]),
    "the first segment is gone": (drop_segment(0), [("missing", 1)]),
    "a segment in the middle is gone": (drop_segment(1), [("missing", 4)]),
    "the last segment is gone": (drop_segment(-1), [("missing", 10)]),
    "the head is gone": (lambda root: (root / "head").unlink(), [("head", None)]),
    "the head is damaged": (lambda root: (root / "head").write_bytes(b"{"), [("head", None)]),
    "the key is another one": (lambda root: (root / "key").write_text("00" * 32), [("head", None)]),
    "the key is gone": (lambda root: (root / "key").unlink(), [("head", None)]),
}


@pytest.mark.parametrize("name", TAMPERED)
@pytest.mark.slow
def test_what_was_done_to_the_audit_is_found_and_named(tmp_path: Path, name: str):
    fill(tmp_path)
    assert [segment.first for segment in segments(tmp_path)] == [1, 4, 7, 10]
    tamper, expected = TAMPERED[name]
    tamper(tmp_path)
    report = verify_audit(tmp_path)
    assert kinds(report) == expected, report.findings


def test_an_end_that_was_written_down_elsewhere_shows_that_the_whole_audit_was_replaced(tmp_path: Path):
    fill(tmp_path / "old")
    known = verify_audit(tmp_path / "old").end
    assert verify_audit(tmp_path / "old", known).ok
    fill(tmp_path / "new", 20)
    assert verify_audit(tmp_path / "new").ok
    fill(tmp_path / "short", 3)
    assert kinds(verify_audit(tmp_path / "short", known)) == [("missing", 4)]
    edited = Place(n=known.n, hash=GENESIS)
    assert kinds(verify_audit(tmp_path / "new", edited)) == [("changed", 12)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("the last line is cut off", [("noted", 13), ("missing", 12)]),
        ("many lines are cut off", [("noted", 13), ("missing", 4)]),
        ("the last segment is gone", [("noted", 13), ("missing", 10)]),
        ("the last line is changed and its hash too", [("unlinked", 13), ("noted", 13)]),
        ("the head is gone", [("noted", 13)]),
        ("the head is damaged", [("noted", 13)]),
        ("the key is gone", [("noted", 13)]),
        ("a line is removed", [("missing", 5)]),
    ],
)
def test_a_writer_that_goes_on_does_not_cover_up_what_was_done(
    tmp_path: Path, name: str, expected: list[tuple[str, int | None]]
):
    fill(tmp_path)
    TAMPERED[name][0](tmp_path)
    fill(tmp_path, 3)
    fill(tmp_path, 3)
    assert kinds(verify_audit(tmp_path)) == expected


def test_an_audit_of_which_all_segments_are_gone_still_says_how_many_records_there_were(tmp_path: Path):
    fill(tmp_path)
    for segment in segments(tmp_path):
        segment.path.unlink()
    assert kinds(verify_audit(tmp_path)) == [("missing", 1)]
    fill(tmp_path, 2)
    assert numbers(tmp_path) == [13, 14, 15]
    assert kinds(verify_audit(tmp_path)) == [("noted", 13), ("missing", 1)]


@settings(max_examples=COUNTS.examples // 2)
@given(
    parts=st.lists(st.lists(st.text(max_size=20), max_size=5), max_size=8),
    segment_bytes=st.integers(1, 3_000),
    data=st.data(),
)
def test_any_chain_holds_and_any_changed_byte_shows(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[list[str]],
    segment_bytes: int,
    data: st.DataObject,
):
    root = tmp_path_factory.mktemp("chain")
    for part in parts:  # opened again for each
        chain = ChainFile(root, segment_bytes)
        for number, text in enumerate(part):
            chain.append([entry(number, text=text), entry(number)])
        chain.sync()
        chain.close()
    written = [
        what
        for part in parts
        for n, text in enumerate(part)
        for what in ({"number": n, "text": text}, {"number": n})
    ]
    assert [record.what for record in read_audit(root)] == written
    assert verify_audit(root).findings == []
    if written:
        victim = data.draw(st.sampled_from(segments(root))).path
        held = bytearray(victim.read_bytes())
        at = data.draw(st.integers(0, len(held) - 1))
        held[at] ^= data.draw(st.integers(1, 255))
        victim.write_bytes(held)
        assert verify_audit(root).findings


# --- crashes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 40])
def test_a_torn_last_line_is_cut_off_with_a_record_and_the_chain_goes_on(tmp_path: Path, left: int):
    fill(tmp_path)
    line, _ = seal(entry(13), verify_audit(tmp_path).end)
    with segments(tmp_path)[-1].path.open("ab") as file:
        file.write(line[:left])
    assert verify_audit(tmp_path).ok  # a writer may be at it just now
    fill(tmp_path, 1)
    assert numbers(tmp_path) == list(range(1, 15))
    recovered = next(read_audit(tmp_path, after=12))
    assert (recovered.action, recovered.outcome, recovered.what) == (
        "audit.recovered",
        "ok",
        {"cut_bytes": left},
    )
    assert verify_audit(tmp_path).ok


def test_a_segment_that_was_begun_but_not_written_is_filled(tmp_path: Path):
    fill(tmp_path)
    (tmp_path / "audit-000000000013.jsonl").touch(mode=0o600)
    fill(tmp_path, 1)
    assert numbers(tmp_path) == list(range(1, 14))
    assert verify_audit(tmp_path).ok


WRITER = """
import asyncio, os, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from codesdk.store.audit.trail import Audit
from tests.store.audit.samples import entry

async def main():
    audit = await Audit.open(Path(sys.argv[1]), segment_bytes=4000)
    number = 0
    while True:
        for _ in range(1 + number % 7):
            number += 1
            audit.note(entry(number))
        await audit.flush()
        os.write(1, b"%d\\n" % number)

asyncio.run(main())
"""


def test_a_writer_that_is_killed_leaves_a_chain_that_holds_and_has_all_it_had_reported(tmp_path: Path):
    chance = random.Random(11)
    total = 0
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), SOURCE, str(Path(SOURCE).parent)],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        reported = [int(child.stdout.readline()) for _ in range(chance.randrange(1, 60))][-1]
        child.kill()
        whole = [line for line in child.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
        child.wait()
        child.stdout.close()
        reported = int(whole[-1]) if whole else reported
        fresh = [record for record in read_audit(tmp_path, after=total) if record.action == "task.start"]
        assert len(fresh) >= reported
        assert [record.what["number"] for record in fresh] == list(range(1, len(fresh) + 1))
        report = verify_audit(tmp_path)
        assert report.findings == []
        total = report.end.n


# --- the thread --------------------------------------------------------------------------------------


async def test_what_is_noted_can_be_read_by_principal_session_and_category(tmp_path: Path):
    audit = await Audit.open(tmp_path / "audit")
    for principal, session in [("ann", "ses_1"), ("bob", "ses_2"), ("ann", "ses_3")]:
        audit.request(
            method="POST", route="/v1/sessions", status=201, principal=principal, session_id=session
        )
    audit.request(method="GET", route="/v1/sessions/{id}", status=404, request_id="r-1", code="NOT_FOUND")
    audit.failed("bob", "ses_2", StorageFailure("the disk is full"))
    everything = await audit.read()
    assert [record.n for record in everything] == [1, 2, 3, 4, 5]
    assert everything[0].what == {
        "method": "POST",
        "route": "/v1/sessions",
        "status": 201,
        "session_id": "ses_1",
    }
    assert [record.outcome for record in everything] == ["ok", "ok", "ok", "refused", "failed"]
    assert everything[3].who == Who(principal="", request_id="r-1")
    assert everything[4].why == {"reason": "the disk is full"}
    assert [record.n for record in await audit.read(principal="ann")] == [1, 3]
    assert [record.n for record in await audit.read(principal="bob", after=2)] == [5]
    assert [record.n for record in await audit.read(session_id="ses_3")] == [3]
    assert [record.n for record in await audit.read(category="storage")] == [5]
    assert [record.n for record in await audit.read(after=1, limit=2)] == [2, 3]
    await audit.close()
    assert verify_audit(audit.root).ok
    with pytest.raises(StorageFailure, match="closed"):
        await audit.read()


async def test_a_secret_that_somebody_hands_in_is_redacted(tmp_path: Path):
    audit = await Audit.open(tmp_path, Redactor(["hunter2-canary"]))
    audit.request(
        method="GET", route="/x", status=200, request_id="id-hunter2-canary", client_id="sk-" + "a1" * 20
    )
    audit.note(entry(why="hunter2-canary"))
    audit.failed("ann", "ses_1", StorageFailure("no hunter2-canary here"))
    await audit.close()
    written = b"".join(segment.path.read_bytes() for segment in segments(tmp_path))
    assert b"hunter2" not in written
    assert b"a1a1" not in written
    assert written.count(b"[redacted]") == 4


async def test_a_queue_that_is_full_is_counted_and_the_count_recorded(tmp_path: Path):
    audit = await Audit.open(tmp_path, max_queued=5)
    going_on = threading.Event()
    holding = asyncio.create_task(audit.do(lambda _: going_on.wait()))
    await asyncio.sleep(0)  # the order is in the queue, before what follows
    for number in range(1, 21):
        audit.note(entry(number))
    going_on.set()
    await holding
    audit.note(entry(99))
    await audit.close()
    records = list(read_audit(tmp_path))
    gaps = [record for record in records if record.action == "audit.gap"]
    lost = sum(gap.what["lost"]["task.start"] for gap in gaps)
    kept = [record.what["number"] for record in records if record.action == "task.start"]
    assert lost in (15, 16)  # the thread may have taken the order out of the queue before the first entry
    assert len(kept) + lost == 21
    assert verify_audit(tmp_path).ok


def closed(seq: int, session_id: str = "ses_1", time: str = WHEN) -> Event:
    return SessionClosedEvent(
        schema_version=1,
        seq=seq,
        time=time,
        trace=Trace(session_id=session_id, user_id="ann"),
        runtime=RuntimeInfo(name="fake"),
        payload=SessionClosed(reason="done"),
    )


def seqs(root: Path) -> list[tuple[str, int]]:
    return [(r.what["session_id"], r.what["seq"]) for r in read_audit(root) if "seq" in r.what]


async def test_events_that_are_handed_over_again_have_one_record_also_after_a_restart(tmp_path: Path):
    audit = await Audit.open(tmp_path, segment_bytes=900)
    await audit.take([closed(1), closed(2)])
    audit.note(entry(1))
    await audit.take(
        [closed(2), closed(3), closed(1, "ses_2")]
    )  # the page before was not kept, and has grown
    await audit.take([closed(4)])
    for number in range(9):
        audit.note(entry(number))
    await audit.close()
    again = await Audit.open(tmp_path, segment_bytes=900)
    await again.take([closed(3), closed(1, "ses_2"), closed(4), closed(5)])
    await again.take([closed(6)])
    await again.close()
    wanted = [
        ("ses_1", 1),
        ("ses_1", 2),
        ("ses_1", 3),
        ("ses_2", 1),
        ("ses_1", 4),
        ("ses_1", 5),
        ("ses_1", 6),
    ]
    assert seqs(tmp_path) == wanted
    assert verify_audit(tmp_path).ok


async def test_a_seq_that_was_lost_with_the_power_and_given_again_is_another_event(tmp_path: Path):
    audit = await Audit.open(tmp_path)
    await audit.take([closed(7)])
    await audit.close()
    again = await Audit.open(tmp_path)
    await again.take([closed(7, time="2026-01-02T03:05:00.000Z")])
    await again.close()
    assert seqs(tmp_path) == [("ses_1", 7)] * 2


async def test_a_flood_of_notes_loses_no_event(tmp_path: Path):
    audit = await Audit.open(tmp_path, max_queued=5)
    await audit.take([closed(1)])
    going_on = threading.Event()
    holding = asyncio.create_task(audit.do(lambda _: going_on.wait()))
    await asyncio.sleep(0)  # the order is in the queue, before what follows
    for number in range(20):
        audit.note(entry(number))
    taking = asyncio.create_task(audit.take([closed(seq) for seq in range(2, 31)]))
    await asyncio.sleep(0)  # so are the events
    going_on.set()
    await asyncio.gather(holding, taking)
    await audit.close()
    assert seqs(tmp_path) == [("ses_1", seq) for seq in range(1, 31)]


REFUSED = """
import asyncio, json, resource, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from codesdk.contract.errors import StorageFailure
from codesdk.store.audit.trail import Audit
from codesdk.store.audit.verify import verify_audit
from tests.store.audit.samples import entry

async def main(ends_well):
    audit = await Audit.open(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))  # as a full disk would
    said = []
    for number in range(1, 21):
        audit.note(entry(number))
        try:
            await audit.flush()
        except StorageFailure as error:
            said.append(error.message)
    print(json.dumps({"flushed": 20 - len(said), "said": sorted(set(said)), "trouble": audit.trouble}), flush=True)
    if ends_well:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await audit.flush()
        print(json.dumps(audit.trouble))
    try:
        await audit.close()
    except StorageFailure as error:
        print(json.dumps(error.message))

asyncio.run(main(bool(int(sys.argv.pop()))))
"""


TOO_LARGE = "The audit cannot be written: File too large. Look at the disk and its permissions."


def run_refused(root: Path, *, ends_well: bool) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", REFUSED, str(root), SOURCE, str(Path(SOURCE).parent), str(int(ends_well))],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"{TOO_LARGE} Records are kept and tried again." in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_records_that_the_disk_refuses_are_kept_and_written_when_it_takes_them_again(tmp_path: Path):
    said, trouble = run_refused(tmp_path, ends_well=True)
    assert said == {"flushed": 3, "said": [TOO_LARGE], "trouble": TOO_LARGE}
    assert trouble is None
    records = list(read_audit(tmp_path))
    assert [record.what.get("number") for record in records] == [*range(1, 21), None]
    assert (records[-1].action, records[-1].outcome, records[-1].why) == (
        "audit.write",
        "recovered",
        {"reason": TOO_LARGE},
    )
    assert verify_audit(tmp_path).ok


def test_records_that_could_not_be_written_to_the_end_are_not_passed_over_in_silence(tmp_path: Path):
    _, error = run_refused(tmp_path, ends_well=False)
    assert error == f"17 audit records could not be written. {TOO_LARGE}"
    assert numbers(tmp_path) == [1, 2, 3]
    fill(tmp_path, 1)
    assert numbers(tmp_path)[:3] == [1, 2, 3]
    assert verify_audit(tmp_path).ok


async def test_an_audit_that_cannot_be_opened_says_why(tmp_path: Path):
    (tmp_path / "audit").write_text("in the way")
    with pytest.raises(StorageFailure, match=r"cannot be written: .*\. Look at the disk and its permissions"):
        await Audit.open(tmp_path / "audit")
