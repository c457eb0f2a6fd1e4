"""Tasks with an output schema: the result with the owned tool, for every runtime, and as the model's answer for those that can.

Each row has results that are valid, mended and never valid, one after the other in one session, so that an agent
that is kept between tasks must cope with another schema each time.
"""

from typing import Any, cast

from codesdk.contract.errors import InvalidRequest, TaskFailure
from codesdk.contract.tools import ANSWER_TOOL
from codesdk.sdk import Session, Task
from codesdk.testing.bench import Bench, payloads
from codesdk.testing.cells import Unmet, holds, refused, same
from codesdk.testing.runtime_checks import Check, make_check, says
from codesdk.tools import wire_name

STARS: dict[str, Any] = {
    "type": "object",
    "properties": {"stars": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["stars"],
}
"""Not strict, so that it is answered with the tool by everybody."""
WORDS: dict[str, Any] = {
    "type": "object",
    "properties": {"words": {"type": "array", "items": {"type": "string"}, "minItems": 2}},
    "required": ["words"],
}
STRICT: dict[str, Any] = {**STARS, "additionalProperties": False}
NO_SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "array", "items": {"type": "string"}},
    {"type": "object", "properties": {"stars": {"type": "integre"}}},
    {"type": "object", "properties": {"stars": {"$ref": "https://example.com/stars.json"}}},
)


async def _by_tool(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        await _refuses_what_is_no_schema(bench, session)
        valid = await session.start("Rate it.", output_schema=STARS)
        same("the result", (await valid.result()).data, {"stars": 4})
        mended = await session.start("Describe it.", output_schema=WORDS)
        result = await mended.result()
        same("the result that was mended", result.data, {"words": ["quick", "brown"]})
        same("calls and refused ones", (result.calls, result.denied), (2, 1))
        same("times that it was asked for", await _asked(bench, mended), 2)
        never = await session.start("Rate it again.", output_schema=STARS)
        await _fails(bench, never, asked=3)
        plain = await session.start("Say hello.")
        same("the answer of a task without a schema", (await plain.result()).text, "Hello.")
        for task, wanted in ((valid, True), (mended, True), (never, True), (plain, False)):
            for names in await _offered(bench, task):
                same(f"whether {ANSWER_TOOL} is offered", wire_name(ANSWER_TOOL) in names, wanted)
        said = await bench.told(mended)
    holds(
        "words[1]" in said or "at least 2 entries" in said, "the model is told what was wrong with its result"
    )


async def _natively(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        valid = await session.start("Rate it.", output_schema=STRICT)
        same("the result", (await valid.result()).data, {"stars": 4})
        mended = await session.start("Rate it once more.", output_schema=STRICT)
        same("the result that was mended", (await mended.result()).data, {"stars": 2})
        same("times that it was asked for again", await _asked(bench, mended), 1)
        never = await session.start("Rate it again.", output_schema=STRICT)
        await _fails(bench, never, asked=2)
        for task in (valid, mended, never):
            requests = await bench.requests(task)
            holds(bool(requests), "its requests were recorded")
            for request in requests:
                holds(_has(request, STRICT), "each request has the schema")
            for names in await _offered(bench, task):
                holds(wire_name(ANSWER_TOOL) not in names, f"{ANSWER_TOOL} is not offered")


async def _refuses_what_is_no_schema(bench: Bench, session: Session) -> None:
    before = await bench.history(session)
    for schema in NO_SCHEMAS:
        starting = session.start("Rate it.", output_schema=schema)
        await refused("a task with what is no schema of an object", starting, InvalidRequest)
    same("the events of a session that refused a task", await bench.history(session), before)


async def _fails(bench: Bench, task: Task, *, asked: int) -> None:
    try:
        result = await task.result()
    except TaskFailure as error:
        same("how it fails", (error.code, error.retryable), ("MODEL_ERROR", False))
    else:
        raise Unmet(f"it fails without a result, but ended with {result.data}")
    same("times that it was asked for", await _asked(bench, task), asked)


async def _asked(bench: Bench, task: Task) -> int:
    """Return how often the engine asked a task for its result."""
    steered = payloads(await bench.events(task), "task.steered")
    return sum(1 for payload in steered if payload.by is not None and payload.by.kind == "engine")


async def _offered(bench: Bench, task: Task) -> list[list[str]]:
    """Return the names of the tools in each request of a task, or in each of its inputs if those are not seen."""
    exact = await bench.exact_inputs(task)
    inputs = exact or payloads(await bench.events(task), "model.input")
    return [[wire_name(tool.name) for tool in payload.tool_manifest] for payload in inputs]


def _has(value: Any, wanted: Any) -> bool:
    """Return whether a value is somewhere in a JSON document."""
    if value == wanted:
        return True
    if isinstance(value, dict):
        return any(_has(part, wanted) for part in cast("dict[str, Any]", value).values())
    return isinstance(value, list) and any(_has(part, wanted) for part in cast("list[Any]", value))


def _answers(value: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"steps": [{"call": {"tool": ANSWER_TOOL, "input": value}}], **rest}


_NEVER = "I would rather not."

OUTPUT_CHECKS: tuple[Check, ...] = (
    make_check(
        "output schema",
        _by_tool,
        _answers({"stars": 4}, expect={"user_contains": '"maximum":5'}),
        says("Done."),
        says("Quick and brown."),
        _answers({"words": ["quick"]}, expect={"user_contains": "no result yet"}),
        _answers({"words": ["quick", "brown"]}, expect={"tool_result_contains": "at least 2 entries"}),
        says("Done."),
        *[says(_NEVER)] * 3,
        says("Hello."),
        needs=("supports_tool_calls",),
        shows=("output_schema",),
        rewords=True,
    ),
    make_check(
        "output schema, natively",
        _natively,
        says('{"stars":', " 4}"),
        says("Two stars."),
        says('{"stars": 2}'),
        *[says(_NEVER)] * 3,
        where=(("output_schema", "native"),),
        shows=("output_schema",),
    ),
)
