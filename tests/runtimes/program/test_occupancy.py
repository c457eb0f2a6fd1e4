"""Whose files are in a session's folders, when one program is started there while another is being ended."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from codesdk.runtimes.program.environment import Places
from codesdk.runtimes.program.occupancy import occupy


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(root=tmp_path, lasting=True)


def writing(places: Places, text: str) -> Callable[[], object]:
    return lambda: (places.root / "settings").write_text(text)


def removing(places: Places) -> Callable[[], object]:
    return lambda: (places.root / "settings").unlink()


def test_what_a_program_was_started_with_goes_when_it_has_ended(places: Places):
    only = occupy(places, writing(places, "first"))
    only.leave(removing(places))
    assert not (places.root / "settings").exists()


def test_a_program_that_was_started_meanwhile_keeps_its_files(places: Places):
    first = occupy(places, writing(places, "first"))
    second = occupy(places, writing(places, "second"))
    first.leave(removing(places))
    assert (places.root / "settings").read_text() == "second"
    second.leave(removing(places))
    assert not (places.root / "settings").exists()


def test_nobody_writes_while_somebody_cleans_up(places: Places):
    first = occupy(places, writing(places, "first"))
    cleaning, go_on = threading.Event(), threading.Event()

    def clean() -> None:
        cleaning.set()
        go_on.wait()
        (places.root / "settings").unlink()

    leaving = threading.Thread(target=first.leave, args=(clean,))
    leaving.start()
    cleaning.wait()
    moving_in = threading.Thread(target=occupy, args=(places, writing(places, "second")))
    moving_in.start()
    go_on.set()
    leaving.join()
    moving_in.join()
    assert (places.root / "settings").read_text() == "second"


def test_folders_that_are_gone_need_no_cleaning(tmp_path: Path):
    places = Places(root=tmp_path / "session", lasting=False)
    places.root.mkdir()
    only = occupy(places, writing(places, "first"))
    (places.root / "settings").unlink()
    (places.root / ".occupied").unlink()
    places.root.rmdir()
    only.leave(removing(places))
    assert not places.root.exists()
