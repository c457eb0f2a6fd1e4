"""An SDK in memory, made of fakes and of whatever real parts a test gives it."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from codesdk.contract.actions import Caller
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import Blobs, EventLog, Policy, Stamper, ToolRunner
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import Limits
from codesdk.engine import Engine, EngineService, Permits, Ports
from codesdk.gateway import GatewayService
from codesdk.policy import ModePolicy
from codesdk.runtimes import ScriptedRuntime
from codesdk.script import Script, parse_object
from codesdk.sdk import CodeSDK
from codesdk.store import MemoryBlobs, MemoryLog
from codesdk.testing.fakes.stamper import FrozenStamper
from codesdk.testing.fakes.tools import FakeTools
from codesdk.tools import McpHost


@asynccontextmanager
async def memory_sdk(
    script: Script | Sequence[Any] | None = None,
    *,
    runtimes: Iterable[Runtime] = (),
    tools: ToolRunner | None = None,
    policy: Policy | None = None,
    stamper: Stamper | None = None,
    limits: Limits | None = None,
    secrets: Iterable[str] = (),
    log: EventLog | None = None,
    blobs: Blobs | None = None,
    state_dir: str = "",
) -> AsyncGenerator[CodeSDK]:
    """Open an SDK that keeps everything in memory and gives the same times and ids on every run.

    `script` is what the runtime `scripted` plays: a `Script`, or turns as plain data, each a list of steps or
    a whole turn. `runtimes` are found by their names; those that are programs keep their state in `state_dir`.
    The tools are fakes unless `tools` says otherwise. The mode yolo is enabled, and so are untested programs.
    """
    found: dict[str, Runtime] = {runtime.name: runtime for runtime in runtimes}
    if script is not None:
        found.setdefault(
            "scripted", ScriptedRuntime(script if isinstance(script, Script) else _script(script))
        )
    gateway, host = GatewayService(), McpHost()
    ports = Ports(
        log=log or MemoryLog(),
        blobs=blobs or MemoryBlobs(),
        tools=tools or FakeTools(),
        policy=policy or ModePolicy(),
        stamper=stamper or FrozenStamper(),
        limits=limits or Limits(),
        models=gateway,
        mcp=host,
        state_dir=state_dir,
        identify=lambda workspace: workspace,
    )

    def find(name: str) -> Runtime:
        if name not in found:
            raise InvalidRequest(f"There is no runtime {name} here. There are: {', '.join(found) or 'none'}.")
        return found[name]

    permits = Permits(allow_yolo=True, allow_untested=True)
    engine = Engine(ports, find, runtimes=lambda: found, owner="test", secrets=secrets, permits=permits)
    await engine.open()
    try:
        yield CodeSDK(EngineService(engine, Caller()), engine, gateway=gateway)
    finally:
        await engine.close()
        await host.close()
        await gateway.aclose()


def _script(turns: Sequence[Any]) -> Script:
    whole: list[Any] = [{"steps": turn} if isinstance(turn, list) else turn for turn in turns]
    return parse_object({"turns": whole}, "script")
