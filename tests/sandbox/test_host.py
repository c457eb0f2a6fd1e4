"""The host backend, which hides nothing and says so; and choosing a backend by name."""

import asyncio
import inspect
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.bubblewrap.test_sandbox import Said, alive

from codesdk.contract.errors import InvalidRequest
from codesdk.contract.workspace import Workspace
from codesdk.sandbox.backend import (
    Command,
    CommandEnd,
    SandboxCapabilities,
    SandboxLimits,
    SandboxUnavailable,
)
from codesdk.sandbox.bubblewrap import sandbox as bubblewrap
from codesdk.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from codesdk.sandbox.choose import BubblewrapOptions, OciOptions, open_sandbox
from codesdk.sandbox.host import HostSandbox
from codesdk.sandbox.oci.sandbox import OciSandbox


def _command(workspace: Path, *argv: str, **fields: Any) -> Command:
    return Command(session_id="s", argv=argv, workspace=Workspace(str(workspace)), **fields)


async def test_its_capabilities_hide_nothing():
    found = await HostSandbox().capabilities()
    assert found == SandboxCapabilities(
        backend="host",
        available=True,
        execution_env="codesdk_host",
        limits=frozenset({"wall", "output", "file_size", "open_files"}),
        notes=found.notes,
    )
    who = "root" if os.geteuid() == 0 else "this user"
    assert found.notes[0].startswith(f"Commands can do everything that {who} can")


async def test_a_command_has_both_streams_its_exit_code_and_no_environment_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN_OF_OURS", "secret")
    (tmp_path / "sub").mkdir()
    said = Said()
    script = "pwd; echo $GIVEN $TOKEN_OF_OURS; echo oops >&2; exit 7"
    end = await HostSandbox().run(_command(tmp_path, "sh", "-c", script, cwd="sub", env={"GIVEN": "x"}), said)
    assert (said.out.decode(), said.err) == (f"{tmp_path}/sub\nx\n", b"oops\n")
    assert end == CommandEnd(exit_code=7, duration_ms=end.duration_ms, output_bytes=len(said.out + said.err))


async def test_a_program_that_is_not_there_is_127(tmp_path):
    assert (await HostSandbox().run(_command(tmp_path, "no-such-program"), Said())).exit_code == 127


async def test_when_its_time_is_over_the_process_group_is_gone(tmp_path):
    token = uuid.uuid4().hex
    limits = SandboxLimits(wall_s=0.5)
    end = await HostSandbox().run(
        _command(tmp_path, "sh", "-c", "sleep 300 & wait", token, limits=limits), Said()
    )
    assert (end.exit_code, end.limits_hit, alive(token)) == (137, ("wall",), [])


async def test_cancelled_the_process_group_is_gone_before_it_returns(tmp_path):
    token, said = uuid.uuid4().hex, Said()
    script = 'sh -c "echo begun; sleep 300" $0 & wait'
    running = asyncio.create_task(HostSandbox().run(_command(tmp_path, "sh", "-c", script, token), said))
    await said.wait_for(b"begun")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(token) == []


async def test_a_child_that_holds_the_output_does_not_hold_the_command(tmp_path):
    said = Said()
    end = await HostSandbox().run(_command(tmp_path, "sh", "-c", "sleep 300 & echo done"), said)
    assert (end.exit_code, said.out) == (0, b"done\n")


async def test_a_flood_and_a_large_file_are_cut(tmp_path):
    limits = SandboxLimits(output_bytes=100_000, file_bytes=1 << 20)
    flood = await HostSandbox().run(_command(tmp_path, "yes", limits=limits), Said())
    assert (flood.exit_code, flood.limits_hit, flood.output_bytes) == (137, ("output",), 100_000)
    dd = _command(tmp_path, "dd", "if=/dev/zero", "of=large", "bs=1M", limits=limits)
    large = await HostSandbox().run(dd, Said())
    assert (large.exit_code, large.limits_hit) == (153, ("file_size",))


@pytest.mark.parametrize(
    ("cwd", "words"),
    [("missing", 'no directory "missing" in the workspace'), ("out", "out is a symbolic link")],
)
async def test_a_working_directory_elsewhere_is_refused(cwd, words, tmp_path):
    (tmp_path / "out").symlink_to("/usr")
    with pytest.raises(InvalidRequest, match=words):
        await HostSandbox().run(_command(tmp_path, "true", cwd=cwd), Said())


async def test_it_refuses_what_it_cannot_enforce(tmp_path):
    with pytest.raises(SandboxUnavailable, match="limit on memory is required"):
        await HostSandbox().run(_command(tmp_path, "true", required=frozenset({"memory"})), Said())


def test_a_backend_is_chosen_by_its_name_with_its_options():
    assert isinstance(open_sandbox("bubblewrap", give_workspace=True), BubblewrapSandbox)
    assert isinstance(open_sandbox("host"), HostSandbox)


@pytest.mark.parametrize(
    ("sandbox", "options"), [(BubblewrapSandbox, BubblewrapOptions), (OciSandbox, OciOptions)]
)
def test_type_checkers_know_the_options_of_each_backend(sandbox, options):
    taken = inspect.signature(sandbox).parameters
    assert set(options.__annotations__) == set(taken)
    assert options.__required_keys__ == {name for name, one in taken.items() if one.default is one.empty}


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("bubblewrap", {"image": "tools:1"}, "The sandbox bubblewrap cannot be opened .* It takes: user, "),
        ("oci", {}, "missing a required argument: 'image'. It takes: image, "),
        ("oci", {"image": 3}, "Invalid argument: image: expected `str`, got `int`."),
        ("host", {"cpus": 2.0}, "It takes: none"),
        ("docker", {}, "There is no sandbox 'docker'"),
    ],
)
def test_options_that_a_backend_does_not_take_are_refused(kind, options, words):
    with pytest.raises(InvalidRequest, match=words):
        open_sandbox(kind, **options)


def test_a_missing_backend_is_an_error_and_never_another_backend(monkeypatch):
    monkeypatch.setattr(bubblewrap, "PROGRAMS", ("/nowhere/bwrap",))
    with pytest.raises(SandboxUnavailable, match="apt install bubblewrap"):
        open_sandbox("bubblewrap")
