"""The environment that programs of runtimes get."""

from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import StorageFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.environment import forget_session, make_places, variables


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
