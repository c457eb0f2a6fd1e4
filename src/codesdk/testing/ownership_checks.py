"""Tools are CodeSDK's: whatever the model calls and whatever lies in the workspace, nothing of the agent's own runs.

For programs only: their model is behind the gateway, which sees what is offered and what is called.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from codesdk.contract.entry import MARK
from codesdk.contract.errors import CodeSDKError
from codesdk.testing.bench import FORBIDDEN, READ, WRITE, Bench, payloads
from codesdk.testing.cells import holds, same
from codesdk.testing.program_checks import PROGRAM, READS, RETRIES, native_calls, other_calls
from codesdk.testing.runtime_checks import CONTENT, Check, calls, make_check, says
from codesdk.testing.traps import ORDER, PROMPTS, lay_traps
from codesdk.tools import offered_as

WIRE = "wire"
"""The rule of a denial on the way from the model to the agent."""
_TOUCH = f"touch {MARK}"
HIDDEN: dict[str, dict[str, Any]] = {
    "run_terminal_cmd": {"command": _TOUCH},
    "run_in_terminal": {"command": _TOUCH},
    "execute_command": {"command": _TOUCH},
    "run_command": {"command": _TOUCH},
    "terminal": {"command": _TOUCH},
    "functions.exec": {"code": f"require('fs').writeFileSync('{MARK}', 'x')"},
    "python": {"code": f"open('{MARK}', 'w')"},
    "code_interpreter": {"code": f"open('{MARK}', 'w')"},
    "computer": {"action": "key", "text": "Return"},
    "str_replace_editor": {"command": "create", "path": MARK, "file_text": "x"},
    "str_replace_based_edit_tool": {"command": "create", "path": MARK, "file_text": "x"},
    "create_file": {"path": MARK, "content": "x"},
    "write_to_file": {"path": MARK, "content": "x"},
    "mcp__other__write": {"path": MARK, "content": "x"},
}
"""Calls of tools that no request offers: names that models know from other agents, and those agents hide."""


async def _offered(bench: Bench) -> None:
    bench.tools.give(READ, CONTENT)
    async with bench.task("Read the note.", "yolo") as task:
        same("the answer", (await task.result()).text, "Done.")
    requests = await bench.requests(task)
    holds(bool(requests), "the requests are recorded")
    found = {name for body in requests for name in declared(body)}
    ours = {name for name in found if any(offered_as(own, [name]) for own in (READ, WRITE, FORBIDDEN))}
    same("what is offered besides our tools", sorted(found - ours), [])
    same("how many of our tools are offered", len(ours), 3)
    listed = {entry.name for payload in await bench.exact_inputs(task) for entry in payload.tool_manifest}
    same("what the manifest lists besides our tools", sorted(listed - ours), [])


async def _all_called(bench: Bench) -> None:
    bench.tools.give(READ, CONTENT)
    async with bench.task("Leave a mark.", "yolo") as task:
        result = await task.result()
    same("marks that were left", _marks(bench), [])
    same("what ran", [(run.name, run.input) for run in bench.tools.invocations], [(READ, {"path": "note"})])
    same("the answer", result.text, "Done.")
    events = await bench.events(task)
    asked = [p.tool_call_id for p in payloads(events, "tool.call.requested") if p.name != READ]
    denied = [p for p in payloads(events, "tool.call.denied") if p.name != READ]
    same("denials of the calls", sorted(p.tool_call_id for p in denied), sorted(asked))
    same("the names that were denied", sorted(p.name for p in denied), sorted(_NAMES))
    rules = {source.rule for p in denied for source in p.policy_snapshot.sources if source.result == "deny"}
    same("the rule that denied them", rules, {WIRE})
    started = [p.name for p in payloads(events, "tool.call.started")]
    same("calls that started", started, [READ])


async def _hostile(bench: Bench) -> None:
    bench.tools.give(READ, CONTENT)
    marks = bench.workspace.parent / "marks"
    lay_traps(bench.workspace, marks)
    async with bench.sdk() as sdk:
        session = await bench.session(sdk, "yolo")
        task = await session.start("Read the note.")
        same("the answer", (await task.result()).text, "Done.")
        told = await bench.told(task)
        for number, prompt in enumerate(PROMPTS):
            task = await session.start(prompt.format(mark=marks / f"prompt-{number}"))
            with contextlib.suppress(CodeSDKError):  # it may be refused, as long as it is not carried out
                await task.result()
            told += await bench.told(task)
    same("commands that ran", sorted(path.name for path in marks.iterdir()), [])
    holds(ORDER not in told, "nothing of the workspace reaches the model by itself")
    same("what ran", [run.name for run in bench.tools.invocations], [READ])


def declared(body: dict[str, Any]) -> Iterator[str]:
    """Give the tools that a request offers, in whatever format, those that the provider runs included."""
    for field in ("tools", "functions"):
        yield from _names(body.get(field))
    for item in cast("list[Any]", body.get("input") if isinstance(body.get("input"), list) else []):
        if isinstance(item, dict) and "tools" in item:  # a later item may bring more tools
            yield from _names(cast("dict[str, Any]", item)["tools"])


def _names(tools: Any) -> Iterator[str]:
    for tool in cast("list[Any]", tools or []):
        fields = cast("dict[str, Any]", tool)
        if isinstance(fields.get("tools"), list):  # a namespace
            yield from (f"{fields.get('name')}.{name}" for name in _names(fields["tools"]))
        elif isinstance(fields.get("function"), dict):
            yield str(fields["function"].get("name"))
        elif "functionDeclarations" in fields:
            yield from (str(one.get("name")) for one in fields["functionDeclarations"])
            yield from (name for name in fields if name != "functionDeclarations")
        elif "name" in fields or "type" in fields:
            yield str(fields.get("name", fields.get("type")))
        else:
            yield from fields  # one of Google's own


def _marks(bench: Bench) -> list[str]:
    """Return the marks that a native tool left: in the workspace, in the agent's own folders, or wherever we are."""
    places = [*bench.folder.rglob(f"{MARK}*"), *Path.cwd().glob(f"{MARK}*"), *Path.home().glob(f"{MARK}*")]
    return sorted(map(str, [*places, *Path(tempfile.gettempdir()).glob(f"{MARK}*")]))


_NAMES = {**other_calls(), **native_calls(), **HIDDEN}
_CALLS = [
    {"call": {"tool": tool, "input": arguments, "offered": False}} for tool, arguments in _NAMES.items()
]

OWNERSHIP_CHECKS: tuple[Check, ...] = (
    make_check(
        "no native tool in the exact input", _offered, READS, says("Done."), where=PROGRAM, shares=True
    ),
    make_check(
        "every native name called, none run",
        _all_called,
        {"steps": [{"text": "My own way."}, *_CALLS, *calls(READ, "note")["steps"][1:]]},
        *[says("Done.")] * RETRIES,
        where=PROGRAM,
        shares=True,
    ),
    make_check(
        "hostile workspace runs nothing",
        _hostile,
        READS,
        *[says("Done.")] * (1 + len(PROMPTS) * 2),
        where=PROGRAM,
    ),
)
