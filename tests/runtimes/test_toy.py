"""A new runtime is one folder and one line: all that knows of runtimes finds this one."""

import json
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.bundle.unpacked import bundled

from codesdk import CodeSDK
from codesdk.cli.app import run
from codesdk.observe import Traces
from codesdk.runtimes import create_runtime, registry, resolve, runtime_table
from codesdk.script import parse_object
from codesdk.testing.program_checks import instruction_paths, native_calls
from codesdk.testing.traps import traps

ENTRY = """
from codesdk.contract.entry import MARK, InstructionFiles, ProgramEntry, PythonPackage, RuntimeEntry

ENTRY = RuntimeEntry(
    name="toy-agent",
    alias="toy",
    adapter="toy_agent.adapter:ToyRuntime",
    docs="runtimes/toy-agent.md",
    program=ProgramEntry(
        command="toy",
        version="1.2.3",
        source=PythonPackage(name="toy-agent-bin", extra="toy", bundled="toy_agent.adapter:bundled"),
    ),
    wires=("anthropic",),
    provider="toymaker",
    instructions=InstructionFiles(captured=("TOY.md",), folders=(".toy",)),
    state_folder="toybox",
    own_tools={"Play": {"with": MARK}},
)
"""
ADAPTER = """
from tests.gateway.agent import claude_like

from codesdk.contract.access import AuthStatus, Availability
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.program.finding import Program
from codesdk.testing.fakes import FakeRuntime


class ToyRuntime(FakeRuntime):
    def __init__(self, program: str | None = None) -> None:
        capabilities = Capabilities(input_capture="exact", instruction_files=["TOY.md"])
        super().__init__(claude_like, name="toy-agent", capabilities=capabilities)

    async def auth_status(self, env: RuntimeEnv) -> AuthStatus:
        return AuthStatus(
            ok=bool(env.models), logged_in=False, auth_model="both", problem="No key.", to_do="Get one."
        )

    async def check_available(self, env: RuntimeEnv) -> Availability:
        return Availability(ok=True, program="/opt/toy", version="1.2.3", state="tested")


def bundled() -> Program:
    return Program("/opt/toy", "1.2.3")
"""
LINE = "toy_agent"


@pytest.fixture(autouse=True)
def _toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides the scripted one, so that no real program is started."""
    folder = tmp_path / "packages" / "toy_agent"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(ENTRY)
    (folder / "adapter.py").write_text(ADAPTER)
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setattr(registry, "RUNTIMES", ("codesdk.runtimes.scripted", LINE))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def test_the_registry_has_it():
    assert resolve("toy") == create_runtime("toy").name == "toy-agent"


def test_it_is_listed(capfd: pytest.CaptureFixture[str]):
    assert run(["runtimes", "list"]) == 0
    lines = [line.split()[:3] for line in capfd.readouterr().out.splitlines()]
    assert lines == [["✓", "scripted", "no"], ["✗", "toy-agent", "(toy)"]]


def test_the_doctor_looks_at_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    assert run(["--data-dir", str(tmp_path), "runtimes", "doctor", "toy"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[:4] == [
        "✗ toy-agent (toy)",
        "  ✓ program    /opt/toy, version 1.2.3, the tested one",
        "  ✗ login      No key.",
        "               → Get one.",
    ]


def test_the_conformance_run_plays_the_matrix_with_it(capfd: pytest.CaptureFixture[str]):
    assert run(["conformance", "--only", "streaming", "--only", "exact input captured", "--json"]) == 0
    cells = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(cell["runtime"], cell["name"], cell["outcome"]) for cell in cells] == [
        ("toy-agent", "streaming", "pass"),
        ("toy-agent", "exact input captured", "pass"),
    ]


def test_the_conformance_run_sets_its_traps():
    files = {"TOY.md", ".toy/TOY.md", ".toy/skills/evil/SKILL.md"}
    assert files <= instruction_paths()
    assert files <= traps(str).keys()
    assert "Play" in native_calls()


async def test_bundles_and_traces_tell_of_it(tmp_path: Path):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    script = parse_object({"turns": [{"steps": [{"text": "Hello."}]}]}, "a test")
    async with CodeSDK.open(tmp_path / "data", observers=[Traces(provider)]) as sdk:
        session = await sdk.create_session(runtime="toy", workspace=tmp_path, model="its-own", plays=script)
        assert (await (await session.start("Hello")).result()).text == "Hello."
        _, bundle = await bundled(sdk, session.id)
    spans = {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}
    assert spans["invoke_agent toy-agent"]["gen_ai.provider.name"] == "toymaker"
    assert spans["chat its-own"]["gen_ai.provider.name"] == "toymaker"
    assert bundle.json("versions.json")["runtimes"]["toy-agent"]["program"] == {
        "name": "toy",
        "tested_version": "1.2.3",
        "package": "toy-agent-bin",
        "package_version": None,
        "on_search_path": None,
    }
    assert "toy-agent-bin" in bundle.json("versions.json")["packages"]
    assert bundle.json("capabilities.json")["toy-agent"]["instruction_files"] == ["TOY.md"]
    assert "toy-agent" in bundle.json("mcp.json")["runtimes"]


def test_the_table_of_the_documentation_has_a_row_for_it():
    assert runtime_table().splitlines()[-1] == (
        "| [`toy-agent`](runtimes/toy-agent.md) | `toy` | toy 1.2.3 | `pip install 'codesdk[toy]'` | anthropic | `TOY.md` |"
    )
