"""No login opens a browser by itself: the other tests here find that out, if their traps work."""

from pathlib import Path

import pytest
from tests.runtimes.logins.browsers import NAMES, Browsers
from tests.runtimes.logins.rig import Person

from codesdk.runtimes.program.logins import run_login


@pytest.mark.parametrize("name", NAMES)
async def test_a_login_that_opened_a_browser_would_be_noticed(tmp_path: Path, browsers: Browsers, name: str):
    argv = ["/bin/sh", "-c", f"{name} https://account.example/authorize"]
    problem = await run_login(
        argv, tmp_path / "login", lambda home: {}, Person(), lambda text: None, answers=False
    )
    assert problem is None
    assert browsers.opened() == [f"{name} https://account.example/authorize"]
    browsers.forget()


async def test_a_program_that_asks_for_a_browser_gets_one_that_opens_nothing(
    tmp_path: Path, browsers: Browsers
):
    argv = ["/bin/sh", "-c", '"$BROWSER" https://account.example/authorize']
    problem = await run_login(
        argv, tmp_path / "login", lambda home: {}, Person(), lambda text: None, answers=False
    )
    assert problem == "The program's login failed with code 1."
    assert browsers.opened() == []
