"""What a bundle says of the machine: of the sandboxes, and of programs that CodeSDK installed itself."""

from collections.abc import Mapping

import msgspec
import pytest

from codesdk import ExecOptions
from codesdk.bundle import machine
from codesdk.bundle.machine import _package, health, process_facts
from codesdk.policy import ModePolicy
from codesdk.runtimes import lock_hash
from codesdk.runtimes.program.pinned import GEMINI, MISTRAL_VIBE
from codesdk.sandbox import SandboxCapabilities, SandboxKind
from codesdk.sandbox.backend import unavailable


@pytest.mark.parametrize("program", [GEMINI, MISTRAL_VIBE], ids=["npm", "pypi"])
def test_the_installed_version_and_the_lock_are_told(program, monkeypatch: pytest.MonkeyPatch, tmp_path):
    lock = lock_hash(program.source.lock)
    known = {"package": program.source.name, "lock": lock}
    assert _package(program) == {**known, "package_version": program.version}
    monkeypatch.setenv("CODESDK_PROGRAMS", str(tmp_path))
    assert _package(program) == {**known, "package_version": None}
    monkeypatch.setenv("CODESDK_PROGRAMS", "somewhere")
    assert _package(program) == {**known, "package_version": None}
    newer = msgspec.structs.replace(program, version="99.0.0")
    monkeypatch.undo()
    assert _package(newer)["package_version"] is None


class Machine:
    """A machine on which only one sandbox works. Remembers what was asked of each."""

    def __init__(self, works: SandboxKind) -> None:
        self.works = works
        self.asked: list[tuple[str, Mapping[str, object]]] = []

    async def look_at(
        self, kind: SandboxKind, options: Mapping[str, object] | None = None
    ) -> SandboxCapabilities:
        self.asked.append((kind, options or {}))
        if kind == self.works:
            return SandboxCapabilities(
                backend=kind, available=True, execution_env="codesdk_docker", filesystem=kind != "host"
            )
        return unavailable(kind, "Not here.")


async def test_the_sandbox_that_a_process_uses_is_looked_at_with_its_options_and_decides(
    monkeypatch: pytest.MonkeyPatch,
):
    only_oci = Machine("oci")
    monkeypatch.setattr(machine, "look_at", only_oci.look_at)
    run = ExecOptions(allow=[["true"]], sandbox="oci", sandbox_options={"image": "tools:1", "cpus": 1.5})
    facts = await process_facts(ModePolicy(), {"commands": run})
    assert only_oci.asked == [("oci", {"image": "tools:1", "cpus": 1.5})]
    assert facts.launch["commands"]["sandbox_options"] == {"image": "tools:1", "cpus": 1.5}
    found = await health(None, running=True, facts=facts)
    assert (found["ok"], found["sandbox"]) == (True, "oci")
    assert [(each["backend"], each["available"]) for each in found["sandboxes"]] == [
        ("bubblewrap", False),
        ("oci", True),
        ("host", False),
    ]


async def test_another_sandbox_does_not_make_up_for_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "look_at", Machine("bubblewrap").look_at)
    run = ExecOptions(allow=[["true"]], sandbox="oci", sandbox_options={"image": "tools:1"})
    facts = await process_facts(ModePolicy(), {"commands": run})
    assert (await health(None, running=True, facts=facts))["ok"] is False
    nothing_run = await process_facts(ModePolicy(), {"commands": None})
    assert (await health(None, running=True, facts=nothing_run))["ok"] is True
