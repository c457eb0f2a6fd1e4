"""The environment that programs of runtimes get."""

import os
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import StorageFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.redaction.redactor import Redactor
from codesdk.runtimes.program import agent_files
from codesdk.runtimes.program.environment import clean_session, forget_session, make_places, variables
from codesdk.runtimes.program.logins import read_json


def env_of(
    state_dir: Path | str, level: Any = "namespaced", namespace: str = "local", **more: str
) -> RuntimeEnv:
    return RuntimeEnv(
        cwd="/workspace",
        env=more,
        credential_namespace=namespace,
        isolation=Isolation(level=level, mode="subprocess"),
        state_dir=str(state_dir),
    )


def test_the_environment_has_the_folders_the_sessions_variables_and_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-parent")
    env = env_of(tmp_path, MINE="yes", LANG="de_DE.UTF-8")
    places = make_places(env, "some-runtime", "ses_1")
    root = tmp_path / "ns-local" / "some-runtime" / "ses_1"
    assert places.root == root
    assert variables(places, env, {"OWN_HOME": "/x", "MINE": "no"}) == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "de_DE.UTF-8",
        "HOME": f"{root}/home",
        "TMPDIR": f"{root}/tmp",
        "XDG_CONFIG_HOME": f"{root}/config",
        "XDG_DATA_HOME": f"{root}/data",
        "XDG_STATE_HOME": f"{root}/state",
        "XDG_CACHE_HOME": f"{root}/cache",
        "XDG_RUNTIME_DIR": f"{root}/run",
        "MINE": "no",
        "OWN_HOME": "/x",
    }


def test_all_folders_are_there_and_for_their_owner_only(tmp_path: Path):
    places = make_places(env_of(tmp_path / "new"), "some-runtime", "ses_1")
    places.folder("own")
    folders = [places.root, *places.root.iterdir()]
    assert sorted(f.name for f in folders[1:]) == [
        "cache", "config", "data", "home", "own", "run", "state", "tmp",
    ]  # fmt: skip
    assert {f.stat().st_mode & 0o777 for f in folders} == {0o700}


@pytest.mark.parametrize(
    ("level", "namespace", "expected"),
    [
        ("namespaced", "ana", "ns-ana/r/ses_1"),
        ("shared", "ana", "shared/r/ses_1"),
        ("namespaced", "shared", "ns-shared/r/ses_1"),
    ],
)
def test_a_level_decides_whose_folders_they_are(tmp_path: Path, level: str, namespace: str, expected: str):
    places = make_places(env_of(tmp_path, level, namespace), "r", "ses_1")
    assert (places.root, places.lasting) == (tmp_path / expected, True)
    places.remove()
    assert places.root.is_dir()


@pytest.mark.parametrize("namespace", ["..", "a/b", "", "ä", "x" * 300, ".hidden", "a\0b", "\udc80"])
def test_a_namespace_of_any_name_stays_below_the_state_directory(tmp_path: Path, namespace: str):
    places = make_places(env_of(tmp_path, namespace=namespace), "r", "ses_1")
    [folder] = tmp_path.iterdir()
    assert folder.name.startswith("ns-x-")
    assert places.root == folder / "r" / "ses_1"
    again = make_places(env_of(tmp_path, namespace=namespace), "r", "ses_1")
    assert again == places


@pytest.mark.parametrize(("state", "level"), [("", "namespaced"), ("given", "ephemeral")])
def test_what_has_no_place_or_wants_none_is_gone_with_the_session(tmp_path: Path, state: str, level: str):
    env = env_of(tmp_path / state if state else "", level)
    one, two = (make_places(env, "r", "ses_1") for _ in range(2))
    assert one.root != two.root
    assert list(tmp_path.iterdir()) == []
    for places in (one, two):
        assert places.home.is_dir()
        places.remove()
        assert not places.root.exists()


def test_a_state_directory_that_cannot_be_written_is_named_as_the_problem(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailure, match=r"the runtime r could not be made \(File exists\)"):
        make_places(env_of(tmp_path / "file"), "r", "ses_1")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_of_a_session_that_is_deleted_nothing_is_left_and_of_others_everything(tmp_path: Path):
    gone = [make_places(env_of(tmp_path, level), "r", "ses_1") for level in ("namespaced", "shared")]
    stays = make_places(env_of(tmp_path), "r", "ses_2")
    forget_session(str(tmp_path), "ses_1")
    assert [places.root.exists() for places in (*gone, stays)] == [False, False, True]
    forget_session("", "ses_2")
    forget_session(str(tmp_path), "*")
    assert stays.root.exists()


# --- secrets --------------------------------------------------------------------------------------------------

KNOWN = Redactor(["canary-1234"])


def kept(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


@pytest.mark.parametrize(
    "data",
    [
        b'{"text": "I say canary-1234"}\n',
        b"SQLite format 3\0\xff\xfe canary-1234 \0",
        b"\xff\0 ghp_canary0123456789abcdefghij \0",
    ],
    ids=["text", "database", "shape"],
)
def test_what_a_program_kept_goes_as_a_whole_if_there_is_a_secret_in_it(tmp_path: Path, data: bytes):
    env = env_of(tmp_path)
    places, other = (make_places(env, "some-runtime", name) for name in ("ses_1", "ses_2"))
    for root in (places.root, other.root):
        (root / "home" / "notes").write_text("nothing")
    (places.folder("own") / "copy").write_bytes(data)
    clean_session(str(tmp_path), "ses_1", KNOWN)
    assert not places.root.exists()
    assert kept(other.root) == ["home/notes"]


def test_what_a_program_kept_stays_if_there_is_no_secret_in_it(tmp_path: Path):
    places = make_places(env_of(tmp_path), "some-runtime", "ses_1")
    (places.home / "copy").write_text("https://me:[redacted]@host, [redacted]")
    clean_session(str(tmp_path), "ses_1", KNOWN)
    clean_session(str(tmp_path), "ses_of_nobody", KNOWN)
    clean_session("", "ses_1", KNOWN)
    assert kept(places.root) == ["home/copy"]


@pytest.mark.parametrize("before", [4000, 4085, 4090, 4096, 5000])
def test_a_secret_on_the_border_of_two_pieces_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
):
    monkeypatch.setattr(agent_files, "_CHUNK", 4096)
    monkeypatch.setattr(agent_files, "_OVERLAP", 16)
    places = make_places(env_of(tmp_path), "some-runtime", "ses_1")
    (places.home / "copy").write_bytes(b"." * before + b"canary-1234" + b"." * 9000)
    clean_session(str(tmp_path), "ses_1", KNOWN)
    assert not places.root.exists()


def test_what_is_too_large_to_be_searched_is_removed_unread(tmp_path: Path):
    places = make_places(env_of(tmp_path), "some-runtime", "ses_1")
    with (places.home / "endless").open("wb") as file:
        file.truncate(1 << 40)
    clean_session(str(tmp_path), "ses_1", KNOWN)
    assert not places.root.exists()


def test_a_pipe_is_not_waited_for_and_folders_may_be_deep(tmp_path: Path):
    places = make_places(env_of(tmp_path), "some-runtime", "ses_1")
    os.mkfifo(places.home / "pipe")
    clean_session(str(tmp_path), "ses_1", KNOWN)
    assert places.root.exists()
    deep = os.open(places.home, os.O_RDONLY)
    for _ in range(1500):  # deeper than Python's recursion goes
        os.mkdir("d", dir_fd=deep)
        deep, above = os.open("d", os.O_RDONLY, dir_fd=deep), deep
        os.close(above)
    os.close(os.open("canary-1234", os.O_CREAT, dir_fd=deep))
    os.close(deep)
    clean_session(str(tmp_path), "ses_1", KNOWN)
    assert not places.root.exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "large", "folder", "missing"])
def test_only_a_plain_file_of_a_known_size_is_read_of_an_agent(tmp_path: Path, kind: str):
    path = tmp_path / "auth.json"
    (tmp_path / "other").write_text('{"a": 1}')
    if kind == "link":
        path.symlink_to(tmp_path / "other")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        path.write_text("{" + " " * agent_files.MAX_SMALL_BYTES + "}")
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(OSError):  # noqa: PT011 - whatever is wrong
        agent_files.read_agent_file(path)
    assert read_json(path) == {}
    assert read_json(tmp_path / "other") == {"a": 1}


def test_a_name_can_hold_a_secret_too(tmp_path: Path):
    places = make_places(env_of(tmp_path), "some-runtime", "ses_1")
    (places.home / "-work-canary-1234").mkdir()
    clean_session(str(tmp_path), "ses_1", KNOWN)
    assert not places.root.exists()


def test_a_link_to_a_login_is_no_reason_to_clean_and_what_it_leads_to_is_left_alone(tmp_path: Path):
    places = make_places(env_of(tmp_path / "state"), "some-runtime", "ses_1")
    login = tmp_path / "elsewhere"
    login.write_text("canary-1234")
    (places.home / "auth.json").symlink_to(login)
    clean_session(str(tmp_path / "state"), "ses_1", KNOWN)
    assert (places.home / "auth.json").is_symlink()
    (places.tmp / "copy").write_text("canary-1234")
    clean_session(str(tmp_path / "state"), "ses_1", KNOWN)
    assert not places.root.exists()
    assert login.read_text() == "canary-1234"
