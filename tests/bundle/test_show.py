"""Looking into a bundle: what it says, whether it is whole, and that one made to do harm does none."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shell import Shell

from codesdk.bundle import read_bundle, show as showing
from codesdk.contract.errors import InvalidRequest, NotFound

SCRIPT = """
turns:
  - steps:
      - call: {tool: workspace.read, input: {path: notes.txt}}
  - steps:
      - fail: {code: MODEL_ERROR, message: "It \\u001b[31mbroke."}
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A session that failed, and its bundle."""
    made = Shell(tmp_path_factory.mktemp("bundle"))
    (made.workspace / "notes.txt").write_text("remember the milk")
    made.run(SCRIPT)
    ran = made.codesdk("bundle", "last", "-o", "good.tar.gz")
    assert (ran.code, ran.err) == (0, "")
    return made


@pytest.fixture
def good(shell: Shell) -> Path:
    return shell.home / "good.tar.gz"


Members = list[tuple[tarfile.TarInfo, bytes]]


def members(bundle: Path) -> Members:
    with tarfile.open(bundle) as tar:
        return [(member, getattr(tar.extractfile(member), "read", bytes)()) for member in tar.getmembers()]


def pack(target: Path, changed: Members) -> Path:
    with tarfile.open(target, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        for member, data in changed:
            tar.addfile(member, io.BytesIO(data))
    return target


def plain(name: str, data: bytes = b"x", **options: Any) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for option, value in options.items():
        setattr(member, option, value)
    return member, data


def test_a_bundle_that_is_whole_says_what_happened(shell: Shell):
    ran = shell.codesdk("bundle", "--show", "good.tar.gz")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.split("\n")
    assert "Tasks: 1, tool calls: 1" in lines
    assert "Errors: 1" in lines
    assert any("MODEL_ERROR: It ␛[31mbroke." in line for line in lines)
    assert any(line.startswith("✓ whole: ") for line in lines)
    assert "\x1b" not in ran.out


def test_a_bundle_as_json_has_the_manifest_and_the_summary(shell: Shell, good: Path):
    (opened,) = shell.codesdk("bundle", "--show", "good.tar.gz", "--json").lines
    assert opened["problems"] == []
    assert opened["manifest"]["session_id"] == shell.last()
    assert opened["summary"]["errors"][0]["kind"] == "MODEL_ERROR"
    assert [file["path"] for file in opened["manifest"]["files"]] == [
        member.name.partition("/")[2] for member, _ in members(good)[1:]
    ]


def changed_byte(found: Members) -> Members:
    member, data = found[-1]
    return [*found[:-1], (member, data[:-2] + b"?\n")]


def twice(found: Members) -> Members:
    return [*found, found[-1]]


def added(found: Members) -> Members:
    root = found[0][0].name.partition("/")[0]
    return [*found, plain(f"{root}/more.txt")]


def elsewhere(found: Members) -> Members:
    return [*found, plain("other/file")]


def shortened(found: Members) -> Members:
    return found[:-1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed_byte, "was changed"),
        (twice, "there twice"),
        (added, "not in the manifest"),
        (elsewhere, "not in the manifest"),
        (shortened, "is missing"),
    ],
)
def test_what_was_changed_afterwards_is_found(
    good: Path, shell: Shell, tmp_path: Path, change: Callable[[Members], Members], words: str
):
    bad = pack(tmp_path / "bad.tar.gz", change(members(good)))
    (problem,) = read_bundle(bad).problems
    assert words in problem
    ran = shell.codesdk("bundle", "--show", str(bad))
    assert ran.code == 1
    assert "✗ " in ran.out


HOSTILE = {
    "a way out": plain("../../etc/cron.d/x"),
    "a way out inside": plain("ses/../../x"),
    "an absolute path": plain("/etc/passwd"),
    "a way out for Windows": plain("ses\\..\\x"),
    "a symbolic link": plain("ses/link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": plain("ses/link", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a device": plain("ses/zero", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    "a pipe": plain("ses/pipe", b"", type=tarfile.FIFOTYPE),
    "a folder": plain("ses/folder", b"", type=tarfile.DIRTYPE),
    "an extended header": plain("ses/pax", b"20 path=/etc/passwd\n", type=tarfile.XHDTYPE),
    "a long name": plain("ses/long", b"../../etc/passwd\0", type=tarfile.GNUTYPE_LONGNAME),
    "a sparse file": plain("ses/sparse", b"", type=tarfile.GNUTYPE_SPARSE),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("place", [0, 1, -1])
def test_what_could_do_harm_is_refused_and_nothing_is_written(
    good: Path, tmp_path: Path, name: str, place: int
):
    found = members(good)
    at = len(found) if place == -1 else place
    bad = pack(tmp_path / "bad.tar.gz", [*found[:at], HOSTILE[name], *found[at:]])
    with pytest.raises(InvalidRequest, match=r"plain file|leads out"):
        read_bundle(bad)
    assert list(tmp_path.iterdir()) == [bad]


def test_a_bundle_that_grows_beyond_what_it_states_is_refused_early(good: Path, tmp_path: Path):
    found = members(good)
    root = found[0][0].name.partition("/")[0]
    bomb = tmp_path / "bomb.tar.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as packed:
        for member, data in found:
            packed.write(member.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE))
        zeros = tarfile.TarInfo(f"{root}/zeros")
        zeros.size = 4 * 1024**3
        packed.write(zeros.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(40):
            packed.write(bytes(1024 * 1024))
    with pytest.raises(InvalidRequest, match="larger than it states"):
        read_bundle(bomb)


def test_a_manifest_that_states_more_than_can_be_looked_into_does_not_help(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(showing, "MAX_UNPACKED", 4096)
    with pytest.raises(InvalidRequest, match="larger than"):
        read_bundle(good)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "ends too early"),
        (b"no gzip", "damaged"),
        (gzip.compress(b""), "ends too early"),
        (gzip.compress(b"x" * 2000), "damaged"),
        (gzip.compress(bytes(2000)), "begin with a manifest"),
    ],
    ids=["nothing", "text", "an empty archive", "an archive of text", "an archive of zeros"],
)
def test_what_is_no_bundle_is_said_to_be_none(tmp_path: Path, data: bytes, words: str):
    (tmp_path / "b.tar.gz").write_bytes(data)
    with pytest.raises(InvalidRequest, match=words):
        read_bundle(tmp_path / "b.tar.gz")


def test_a_bundle_that_is_cut_off_at_any_place_is_refused(good: Path, tmp_path: Path):
    whole = good.read_bytes()
    for size in range(0, len(whole) - 1, max(1, len(whole) // 40)):
        (tmp_path / "b.tar.gz").write_bytes(whole[:size])
        with pytest.raises(InvalidRequest):
            read_bundle(tmp_path / "b.tar.gz")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "codesdk-support-bundle/9"}, "only codesdk-support-bundle/1 is known"),
        ({"session_id": "ses_other"}, "another session"),
        ({"files": "none"}, "Expected `array`"),
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused(
    good: Path, tmp_path: Path, change: dict[str, Any], words: str
):
    found = members(good)
    data = json.dumps({**json.loads(found[0][1]), **change}).encode()
    bad = pack(tmp_path / "bad.tar.gz", [plain(found[0][0].name, data), *found[1:]])
    with pytest.raises(InvalidRequest, match=words):
        read_bundle(bad)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path):
    with pytest.raises(NotFound):
        read_bundle(tmp_path / "b.tar.gz")


@pytest.mark.parametrize(
    "args",
    [(), ("last", "--show", "good.tar.gz"), ("last", "--max-size", "much"), ("last", "-o", "no/dir/x")],
)
def test_bad_usage_is_told(shell: Shell, args: tuple[str, ...]):
    ran = shell.codesdk("bundle", *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error (INVALID_REQUEST)")


def test_a_bundle_can_be_written_to_stdout_and_under_its_own_name(shell: Shell):
    ran = shell.spawn("bundle", "last", "--max-size", "500K")
    (made,) = shell.home.glob("codesdk-bundle-*.tar.gz")
    assert read_bundle(made).problems == []
    assert ran.out.startswith(made.name)
    made.unlink()


def test_a_file_that_claims_more_than_there_may_be_is_refused_before_it_is_unpacked(
    good: Path, tmp_path: Path
):
    found = members(good)
    root = found[0][0].name.partition("/")[0]
    claim = tarfile.TarInfo(f"{root}/claim")
    claim.size = 10 * 1024**3
    bad = tmp_path / "claim.tar.gz"
    with gzip.open(bad, "wb") as packed:
        for member, data in found:
            packed.write(member.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE))
        packed.write(claim.tobuf(tarfile.GNU_FORMAT))  # and not a byte of it
    with pytest.raises(InvalidRequest, match="larger than it states"):
        read_bundle(bad)


def test_a_bundle_of_nothing_but_names_is_given_up(good: Path, tmp_path: Path):
    found = members(good)
    root = found[0][0].name.partition("/")[0]
    listed = json.loads(found[0][1])
    more = [{"path": f"n{number}", "size": 4096, "sha256": "", "what": ""} for number in range(1_000)]
    manifest = plain(found[0][0].name, json.dumps({**listed, "files": listed["files"] + more}).encode())
    names = [plain(f"{root}/x{number}", b"") for number in range(2_000)]
    with pytest.raises(InvalidRequest, match="many files that it does not list"):
        read_bundle(pack(tmp_path / "bad.tar.gz", [manifest, *names]))


def test_only_the_listed_summary_is_shown(good: Path, tmp_path: Path):
    found = members(good)
    root = found[0][0].name.partition("/")[0]
    forged = b'{"tasks": [], "errors": []}'
    bad = pack(
        tmp_path / "bad.tar.gz",
        [*found, plain("summary.json", forged), plain(f"{root}/summary.json", forged)],
    )
    opened = read_bundle(bad)
    assert opened.summary == read_bundle(good).summary
    assert len(opened.problems) == 2


STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e\r"


def test_nothing_in_a_bundle_steers_the_terminal(good: Path, shell: Shell, tmp_path: Path):
    found = members(good)
    root = found[0][0].name.partition("/")[0]
    listed = json.loads(found[0][1])
    listed |= {"created_at": STEERING, "codesdk_version": STEERING}
    listed["files"] += [{"path": STEERING, "size": 1, "sha256": STEERING, "what": STEERING}]
    listed["left_out"] = [{"what": STEERING, "why": STEERING}]
    summary = json.dumps(
        {
            "session": {"runtime": STEERING, "title": STEERING},
            "tool_calls": STEERING,
            "tasks": [{"started_at": STEERING, "error": {"code": STEERING, "message": STEERING}}],
            "errors": [{"seq": STEERING, "kind": STEERING, "message": STEERING}],
        }
    ).encode()
    for file in listed["files"]:
        if file["path"] == "summary.json":
            file |= {"size": len(summary), "sha256": hashlib.sha256(summary).hexdigest()}
    rest = [
        plain(member.name, summary) if member.name.endswith("/summary.json") else (member, data)
        for member, data in found[1:]
    ]
    manifest = plain(found[0][0].name, json.dumps(listed).encode())
    bad = pack(tmp_path / "bad.tar.gz", [manifest, *rest, plain(f"{root}/{STEERING}")])
    ran = shell.codesdk("bundle", "--show", str(bad))
    assert ran.code == 1
    assert "owned" in ran.out
    assert [sign for sign in STEERING if not sign.isprintable() and sign in ran.out + ran.err] == []
