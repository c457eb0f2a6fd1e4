"""Experiments on a running agent, one function each: a turn is scripted, what was seen goes to `deduce`, and the row grows.

A new experiment is one function in `IN_ONE_SESSION`, or one in `restarts`, for what needs another process.
"""

import asyncio
import base64
import contextlib
import struct
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from codesdk.contract.entry import MARK
from codesdk.contract.errors import TaskFailure
from codesdk.contract.ownership import ToolNaming
from codesdk.contract.tools import PermissionMode
from codesdk.runtimes import RequestFailed, as_dict, as_list, working_folder
from codesdk.testing.probe import deduce
from codesdk.testing.probe.candidates import MODES
from codesdk.testing.probe.seen import Asked, Made, Observation
from codesdk.testing.probe.state import Probe
from codesdk.testing.probe.talk import Talk, started
from codesdk.testing.probe.world import OWN, Answer, Play, World

LISTED_S = 15.0
EXIT_S = 6.0
CANCEL_S = 5.0
ASKED_S = 20.0
STEERING = "_session/steering"
TOLD = "word 4711"
"""What a model must know of that is told of the session later."""
_REASON = "Let me think about it."
_MODES: tuple[PermissionMode, ...] = ("ask", "auto", "yolo")
_EACH = (OWN[0], OWN[0], OWN[1], OWN[2])
"""A call of each of our tools, and two of the first: they may run side by side."""
Experiment = Callable[[World, Probe, Talk], Awaitable[None]]


# --- in one session -------------------------------------------------------------------------------------


async def transports(world: World, probe: Probe, talk: Talk) -> None:
    """See whether the list of our tools is read before the first prompt, over HTTP."""
    try:
        async with asyncio.timeout(LISTED_S):
            await world.listed.wait()
    except TimeoutError:
        probe.learn("list", "our tools are not listed before the first prompt", lists_tools=False)
        return
    probe.lists = True
    probe.learn("list", f"our tools are listed when a session begins, over {probe.row.transports[0]}")


async def own_tools(world: World, probe: Probe, talk: Talk) -> None:
    """Have the model call our tools: under the names that are declared, else under all common ones."""
    seen = await _own_turn(world, talk, None)
    naming = deduce.naming_of(seen.main[0]) if seen.main else None
    if not seen.main:
        words = seen.problem or "the turn ended without one"
        probe.miss(
            "tools", f"No request of the conversation came ({words}).", "Nothing is known of its tools."
        )
        return
    if naming is None:
        naming = deduce.naming_that_worked(seen)
        if naming is not None:
            probe.note(
                "deferred", "its requests do not declare our tools; a call by the full name reaches us"
            )
            seen = await _own_turn(world, talk, naming)
    if naming is not None and not _is_plain(seen):
        seen = await _in_other_modes(world, probe, talk, naming, seen)
    _take_tools(probe, seen, naming)
    _take_wording(probe, seen)


async def model_choice(world: World, probe: Probe, talk: Talk) -> None:
    """See whether the model can be chosen: by a variable, or in the session."""
    if "${model}" in str(msgspec.to_builtins(probe.row.launch)) or "${model}" in str(probe.row.begins):
        return
    for method, params in _choices(talk, probe.row.model):
        try:
            await talk.request(method, {"sessionId": talk.session_id, **params})
        except RequestFailed:
            continue
        world.turn("Say hello again.", lambda asked: Answer(text="Hello."))
        await talk.prompt()
        if any(asked.model != probe.row.model for asked in world.seen.main):
            name = next(key for key in ("modelId", "value") if key in params)
            begins = {**probe.row.begins, method: {**params, name: "${model}"}}
            # Agents have names of their own for models: only what they list is taken.
            words = f"chosen by {method}, by the agent's own names, such as {params[name]}"
            probe.learn("model name", words, begins=begins, model=params[name])
            return
    probe.miss(
        "model name",
        f"No way was found to choose the model; it asks {probe.row.model}.",
        "A session's choice of another model has no effect on the agent.",
    )


async def native_tools(world: World, probe: Probe, talk: Talk) -> None:
    """List the agent's own tools, and see whether one that runs a command is asked about."""
    natives = [tool for seen in world.past for tool in deduce.natives_of(seen)]
    names = sorted({tool.name for tool in natives})
    probe.note("own tools", f"{len(names)}: {', '.join(names)}" if names else "none")
    probe.own_tools = dict(deduce.marking_calls(natives))
    if not probe.own_tools:
        return
    name, given = next(iter(probe.own_tools.items()))
    world.turn("Leave a mark.", _once([Made(id="call_native", name=name, input=dict(given))]))
    talk.consent = "reject"
    await talk.prompt()
    talk.consent = "allow"
    ran = (working_folder(talk.places) / MARK).exists()
    asked = "asks first" if world.seen.questions else "asks nobody"
    ended = "ran, although it was denied" if ran and world.seen.questions else "ran" if ran else "did not run"
    probe.note(
        "own tools", f"before {name} it {asked}; the command {ended} (in sessions the gateway stops it)"
    )


async def images(world: World, probe: Probe, talk: Talk) -> None:
    """Send an image, and see whether it reaches the model."""
    declared = as_dict(talk.about.capabilities.get("promptCapabilities"))
    if declared.get("image") is not True:
        probe.learn("images", "it takes none", images=False)
        return
    data = base64.b64encode(_pixel()).decode()
    world.turn("What is in this image?", lambda asked: Answer(text="A pixel."), wanted=(data[-40:],))
    await talk.prompt({"type": "image", "mimeType": "image/png", "data": data})
    reached = any(asked.held for asked in world.seen.asked)
    words = (
        "they reach the model" if reached else "it says that it takes them, but they do not reach the model"
    )
    probe.learn("images", words, images=reached)


async def steering(world: World, probe: Probe, talk: Talk) -> None:
    """Give the agent more input while it works."""
    more = [{"type": "text", "text": "And a dragon."}]
    idle = {"steering": {"idleBehavior": "promptRequired"}}
    params = {"sessionId": talk.session_id, "prompt": more, "_meta": idle}
    async with _working(world, talk):
        with contextlib.suppress(RequestFailed, TimeoutError, TaskFailure):
            await talk.connection.request(STEERING, params, timeout_s=CANCEL_S)
            probe.learn("steering", f"it takes more input while it works, by {STEERING}", steers=True)


async def cancelling(world: World, probe: Probe, talk: Talk) -> None:
    """Stop a turn in the middle of the model's answer."""
    async with _working(world, talk):
        pass
    reason = as_dict(world.seen.answer).get("stopReason")
    if reason is not None:
        probe.note("stop", f"a stopped turn ends ({reason})")
        return
    means = "Its process is killed at each stop, and the conversation continues in a new one."
    probe.miss("stop", f"A stopped turn did not end within {CANCEL_S:g} s.", means)


@asynccontextmanager
async def _working(world: World, talk: Talk) -> AsyncGenerator[None]:
    """Have the agent wait for its model, and stop it afterwards."""
    world.turn("Tell a story.", lambda asked: Answer(text="Once upon a time", stalls=True))
    prompt = asyncio.create_task(talk.prompt(timeout_s=60))
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASKED_S):
                await world.asked.wait()
        yield
        await talk.notify("session/cancel", {"sessionId": talk.session_id})
        await asyncio.wait([prompt], timeout=CANCEL_S)
    finally:
        prompt.cancel()
        await asyncio.wait([prompt])


IN_ONE_SESSION: tuple[Experiment, ...] = (
    transports,
    own_tools,
    model_choice,
    native_tools,
    images,
    steering,
    cancelling,
)


async def in_one_session(world: World, probe: Probe) -> None:
    """Start the agent once and do all experiments that a session allows; then see how it ends."""
    async with started(world, probe.row, probe.command, probe.places) as talk:
        await talk.introduce()
        await talk.greet()
        await talk.begin()
        probe.session_id = talk.session_id
        world.turn("", lambda asked: Answer())
        for experiment in IN_ONE_SESSION:
            await experiment(world, probe, talk)
            probe.seen[experiment.__name__] = world.seen
            if experiment is own_tools and not probe.has_names:
                break
        took_s = await talk.ends_by_itself(EXIT_S)
        if took_s is None:
            probe.learn("exit", "it does not end with its input, so it gets SIGTERM", exit="term")
        else:
            words = f"it ends when its input does, after {took_s:.1f} s"
            probe.learn("exit", words, exit="eof", exit_s=max(2.0, float(round(2 * took_s))))


# --- inside ---------------------------------------------------------------------------------------------


async def _own_turn(world: World, talk: Talk, naming: ToolNaming | None) -> Observation:
    def play(asked: Asked) -> Answer:
        if world.seen.made:
            return Answer(reasoning=_REASON, text="Done.")
        spelled = naming or deduce.naming_of(asked)
        if spelled is None:
            return Answer(calls=deduce.guesses(asked.wire))
        return Answer(calls=deduce.own_calls(spelled, turn, _EACH))

    turn = len(world.past)
    held = deduce.path_in(turn)
    world.turn(f"Read the note, then change it, please ({TOLD}).", play, (held,), holds=True)
    await talk.prompt()
    return world.seen


async def _in_other_modes(
    world: World, probe: Probe, talk: Talk, naming: ToolNaming, before: Observation
) -> Observation:
    """Try the agent's modes until our calls reach us."""
    told = as_list(as_dict(talk.session.get("modes")).get("availableModes"))
    modes = sorted((str(as_dict(mode).get("id")) for mode in told), key=_rank)
    for mode in modes:
        with contextlib.suppress(RequestFailed):
            await talk.request("session/set_mode", {"sessionId": talk.session_id, "modeId": mode})
            seen = await _own_turn(world, talk, naming)
            if _is_plain(seen):
                probe.learn(
                    "modes",
                    f"its mode {mode} has all our tools called, without a model that is asked about it first",
                    modes=dict.fromkeys(_MODES, mode),
                )
                return seen
    return before


def _take_tools(probe: Probe, seen: Observation, naming: ToolNaming | None) -> None:
    if naming is None or not seen.called:
        probe.miss(
            "tools",
            "How it calls our tools is not known: none of the common spellings reached our server.",
            "Sessions would have no tools, so they are refused.",
        )
        return
    probe.has_names = True
    where = f"in the namespace {naming.namespace}" if naming.namespace else f"as {naming.prefix}NAME"
    probe.learn("tools", f"our tools are called {where}", naming=naming)
    if not _reached(seen):
        means = "Such calls do not run; look at the agent's modes."
        probe.miss(
            "tools", f"Only {', '.join(sorted({c.name for c in seen.called}))} reached our server.", means
        )
    reading = deduce.reading_of(seen)
    if reading is None:
        means = "A call is announced only by our MCP server; and what it tells of calls counts as its own doing, which ends a task."
        probe.miss("updates", "It does not say which of our tools a call is of.", means)
    else:
        probe.learn("updates", f"the tool's name is at {', '.join(reading.names)}", reading=reading)
    rule = deduce.id_rule(seen)
    if rule is not None:
        probe.learn("ids", f"its ids of calls: {rule}", call_id=rule)
    key = deduce.id_key(seen)
    if key is not None:
        probe.learn("ids", f"our server gets the model's id of a call as {key}", call_id_key=key)
    beside = any(call.beside for call in seen.called)
    probe.learn("calls", "side by side" if beside else "one after another", parallel=beside)
    thought = deduce.thoughts_in(seen)
    shown = (
        "shown" if thought == _REASON else "shown, but not as the model said it" if thought else "not shown"
    )
    probe.learn("reasoning", shown, reasoning=thought == _REASON)


def _take_wording(probe: Probe, seen: Observation) -> None:
    """Learn what the agent writes behind what users say: by that its conversation is known again."""
    appends = deduce.appended(seen)
    if appends:
        probe.learn("wording", f"behind what users say it writes {appends[0][:60]!r}", appends=appends)
    elif any(asked.rest for asked in seen.main):
        means = "Its conversation would not be recognized, and each task would fail for want of tools."
        probe.miss("wording", "What it writes behind the words of users is not always the same.", means)


def _is_plain(seen: Observation) -> bool:
    """Return whether our tools were called, and no model was asked whether they may be."""
    return _reached(seen) and not deduce.is_reviewed(seen)


def _reached(seen: Observation) -> bool:
    return {call.name for call in seen.called} >= set(OWN)


def _once(calls: list[Made]) -> Play:
    played: list[bool] = []

    def play(asked: Asked) -> Answer:
        if played:
            return Answer(text="Done.")
        played.append(True)
        return Answer(calls=calls)

    return play


def _rank(mode: str) -> int:
    return next((number for number, word in enumerate(MODES) if word in mode.lower()), len(MODES))


def _choices(talk: Talk, model: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the ways to choose a model in a session, with another model than the one that is asked."""
    ways: list[tuple[str, dict[str, Any]]] = []
    for option in map(as_dict, as_list(talk.session.get("configOptions"))):
        if option.get("category") == "model":
            other = _other([as_dict(o).get("value") for o in as_list(option.get("options"))], model)
            if other is not None:
                ways.append(("session/set_config_option", {"configId": option.get("id"), "value": other}))
    models = as_list(as_dict(talk.session.get("models")).get("availableModels"))
    other = _other([as_dict(entry).get("modelId") for entry in models], model)
    if other is not None:
        ways.append(("session/set_model", {"modelId": other}))
    return ways


def _other(names: Sequence[Any], model: str) -> str | None:
    """Return a model that is not the one that is asked, nor the agent's word for it."""
    plain = [name for name in names if isinstance(name, str) and name not in (model, "default")]
    return next(iter(plain), None)


def _pixel() -> bytes:
    """Return the smallest image of the format PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
