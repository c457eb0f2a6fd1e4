"""What was seen → fields of a row. Pure: each function takes what one experiment saw, and says what follows or None."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from codesdk.contract.entry import MARK
from codesdk.contract.models import Wire
from codesdk.contract.ownership import SideMark, ToolNaming
from codesdk.runtimes import AgentRow, Reading
from codesdk.testing.probe.candidates import FAMILY, PREFIXES, SHELLS, Variable, model_for
from codesdk.testing.probe.seen import Asked, Made, Observation, Offered
from codesdk.testing.probe.world import OWN
from codesdk.tools import NAMESPACE, SERVER

_MARK_CHARS = 60
_WORDS = re.compile(r"\D*[a-z]{2,}\W+[a-z]{2,}\W+[a-z]{2,}\D*")
"""Some words, and no number: those change."""
_GUESS = "call_guess_"
_NO_NAMES = ("rawInput", "rawOutput", "content", "locations", "sessionUpdate")
"""Parts of an update that say what a call is given, not what it is called."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent asks its model."""

    wire: Wire
    path: str
    model: str
    environment: dict[str, str] = {}
    """The variables that it takes, as a row has them."""
    takes_model: bool = False


def way_of(seen: Observation, tried: Sequence[Variable]) -> Way | None:
    """Return how an agent asks, from its first request, given the variables that it was started with."""
    if not seen.asked:
        return None
    asked = _first(seen)
    by_name = {variable.name: variable for variable in tried}
    used = by_name.get(asked.address)
    found: dict[str, str] = {}
    naming: list[str] = []
    if used is not None:
        found[used.name] = f"${{model_url}}{used.suffix}"
        keys = [v for v in tried if v.kind == "key"]
        found.update({v.name: "${key}" for v in _beside(used, keys, asked.wire)})
        models = [v for v in tried if v.kind == "model" and model_for(v) == asked.model]
        naming = [v.name for v in _beside(used, models, asked.wire)]
        found.update(dict.fromkeys(naming, "${model}"))
    return Way(
        wire=asked.wire,
        path=asked.path,
        model=asked.model,
        environment=found,
        takes_model=bool(naming),
    )


def naming_of(asked: Asked) -> ToolNaming | None:
    """Return how a request that declares our tools spells them."""
    for tool in asked.tools:
        for own in OWN:
            if tool.name.endswith(own):
                prefix = tool.name.removesuffix(own)
                spelled = {(other.namespace, other.name) for other in asked.tools}
                if all((tool.namespace, prefix + name) in spelled for name in OWN):
                    return ToolNaming(prefix=prefix, namespace=tool.namespace)
    return None


def guesses(wire: Wire) -> list[Made]:
    """Return calls of our first tool under every common spelling, for an agent that declares none of ours."""
    prefixes = [prefix.format(server=SERVER) for prefix in PREFIXES]
    made = [
        Made(id=f"{_GUESS}{number}", name=prefix + OWN[0], own=OWN[0], input={"path": f"guess-{number}"})
        for number, prefix in enumerate(prefixes)
    ]
    if wire == "responses":
        space = Made(id=f"{_GUESS}n", name=OWN[0], namespace=NAMESPACE, own=OWN[0], input={"path": "guess-n"})
        made.insert(0, space)
    return made


def naming_that_worked(seen: Observation) -> ToolNaming | None:
    """Return the spelling of the call that reached our server, of those that were tried."""
    reached = {call.arguments.get("path") for call in seen.called}
    for made in seen.made:
        if made.own is not None and made.input.get("path") in reached:
            return ToolNaming(prefix=made.name.removesuffix(made.own), namespace=made.namespace)
    return None


def own_calls(naming: ToolNaming, turn: int, wanted: Sequence[str]) -> list[Made]:
    """Return calls of our tools as the agent spells them, by their wire names. Ids and inputs differ from turn to turn."""
    return [
        Made(
            id=f"call_{turn}_{number}",
            name=naming.prefix + own,
            namespace=naming.namespace,
            own=own,
            input={"path": f"{path_in(turn)}{number}"},
        )
        for number, own in enumerate(wanted)
    ]


def path_in(turn: int) -> str:
    """Return how the inputs of a turn's calls begin."""
    return f"note-{turn}-"


def is_reviewed(seen: Observation) -> bool:
    """Return whether a model was asked about a call of the conversation before its result was there."""
    main = [number for number, asked in enumerate(seen.asked) if asked.main]
    between = seen.asked[main[0] : main[-1]] if main else []
    return any(asked.held and not asked.main for asked in between)


# --- what an agent says of our calls --------------------------------------------------------------------


def told_of(seen: Observation) -> dict[str, dict[str, Any]]:
    """Return all that was said of each call, by the agent's id of it."""
    told: dict[str, dict[str, Any]] = {}
    for part in [*seen.updates, *seen.questions]:
        own_id = part.get("toolCallId")
        if isinstance(own_id, str):
            new = {key: value for key, value in part.items() if value not in (None, [], {}, "")}
            told[own_id] = {**told.get(own_id, {}), **new}
    return told


def matched(seen: Observation) -> list[tuple[Made, str, dict[str, Any]]]:
    """Return the calls of ours with the agent's id of each, and what it said of it."""
    found: list[tuple[Made, str, dict[str, Any]]] = []
    for made in seen.made:
        for own_id, told in told_of(seen).items():
            hint = made.input.get("path")
            if made.own and (own_id.endswith(made.id) or (hint and json.dumps(hint) in _text(told))):
                found.append((made, own_id, told))
                break
    return found


def id_rule(seen: Observation) -> str | None:
    """Return what the agent's ids of calls are, or None if it told of no call."""
    rules = {
        "model" if own_id == made.id else "after_name" if own_id.endswith(f"__{made.id}") else "own"
        for made, own_id, _ in matched(seen)
    }
    return None if not rules else rules.pop() if len(rules) == 1 else "own"


def id_key(seen: Observation) -> str | None:
    """Return the key under which the model's id of a call reaches our server."""
    for call in seen.called:
        for made in seen.made:
            if made.input.get("path") == call.arguments.get("path"):
                for key, value in call.marks.items():
                    if value == made.id:
                        return key
    return None


def reading_of(seen: Observation) -> Reading | None:
    """Return where an agent says the name and the input of a call of ours. None if it says neither anywhere."""
    calls = matched(seen)
    if not calls:
        return None
    spelled = [dict(_spellings(made, own_id, told)) for made, own_id, told in calls]
    names = [place for place in spelled[0] if all(s.get(place) == spelled[0][place] for s in spelled)]
    names.sort(key=lambda place: (not place.startswith("_meta"), place != "title", place))
    shared = [place for place in _input_places(*calls[0]) if all(place in _input_places(*c) for c in calls)]
    shared.sort(key=lambda place: (place.count("."), place))
    if not names:
        return None
    return Reading(
        names=tuple(names),
        spelled=tuple(dict.fromkeys(spelled[0][place] for place in names)),
        # The protocol's own place comes last: it may be empty while an agent asks.
        inputs=tuple(dict.fromkeys((*shared, "rawInput"))),
        quiet=quiet_titles(seen),
        dropped=own_words(seen),
    )


def quiet_titles(seen: Observation) -> tuple[str, ...]:
    """Return the titles of calls that the model did not make, although it made only calls of ours."""
    ours = {own_id for _, own_id, _ in matched(seen)}
    others = [told for own_id, told in told_of(seen).items() if own_id not in ours and _GUESS not in own_id]
    return tuple(dict.fromkeys(str(told["title"]) for told in others if told.get("title")))


def own_words(seen: Observation) -> tuple[str, ...]:
    """Return how texts begin that the agent says in the place of its model: each first word that no model said."""
    chunks = [
        str(update.get("content", {}).get("text") or "")
        for update in seen.updates
        if update.get("sessionUpdate") == "agent_message_chunk"
    ]
    said = seen.said
    strange = [chunk.strip() for chunk in chunks if chunk.strip() and chunk.strip() not in said]
    return tuple(dict.fromkeys(chunk.split()[0] for chunk in strange if chunk.startswith("[")))


def thoughts_in(seen: Observation) -> str:
    """Return the reasoning that the agent showed."""
    chunks = [u for u in seen.updates if u.get("sessionUpdate") == "agent_thought_chunk"]
    return "".join(str(chunk.get("content", {}).get("text") or "") for chunk in chunks).strip()


# --- requests -------------------------------------------------------------------------------------------


def natives_of(seen: Observation) -> tuple[Offered, ...]:
    """Return the tools in requests of the conversation that are not ours."""
    found = {
        (tool.namespace, tool.name): tool
        for asked in seen.main
        for tool in asked.tools
        if not tool.name.endswith(OWN)
    }
    return tuple(found[key] for key in sorted(found, key=lambda key: (key[0] or "", key[1])))


def marking_calls(natives: Iterable[Offered]) -> dict[str, dict[str, Any]]:
    """Return calls of tools of the agent's own that would write the file `MARK`: of those that run a command."""
    found: dict[str, dict[str, Any]] = {}
    for tool in natives:
        if tool.namespace is None and tool.name.lower() in SHELLS:
            given = {key: _filler(key, tool.arguments[key]) for key in tool.required if key in tool.arguments}
            command = next((key for key in ("command", "cmd", "script") if key in tool.arguments), None)
            if command is not None:
                words = f"touch {MARK}"
                is_list = tool.arguments[command] == "array"
                found[tool.name] = {**given, command: ["bash", "-c", words] if is_list else words}
    return found


def appended(seen: Observation) -> tuple[str, ...]:
    """Return what an agent writes behind what users say. Empty if that is nothing, or not always the same."""
    found = {asked.rest for asked in seen.main}
    return tuple(found) if len(found) == 1 and "" not in found else ()


def side_marks(seen: Observation) -> tuple[SideMark, ...]:
    """Return a mark for each kind of request that was not part of the conversation."""
    main = seen.main
    marks: list[SideMark] = []
    for asked in seen.asked:
        if asked.main or not main:
            continue
        mark = _mark(asked, main)
        if mark is not None and mark not in marks:
            marks.append(mark)
    return tuple(marks)


def _mark(asked: Asked, main: Sequence[Asked]) -> SideMark | None:
    offered = {tool.name for request in main for tool in request.tools}
    others = [tool.name for tool in asked.tools if not tool.name.endswith(OWN)]
    only = next((name for name in others if name not in offered), None)
    if only is not None:
        return SideMark(tool=only)
    if asked.model not in {request.model for request in main}:
        return SideMark(model=asked.model)
    known = "\n".join(f"{request.system}\n{request.user}" for request in main).lower()
    for line in f"{asked.system}\n{asked.user}".lower().split("\n"):
        words = line.strip()[:_MARK_CHARS].rsplit(" ", 1)[0]
        if _WORDS.fullmatch(words) and words not in known:
            return SideMark(text=words)
    return None


def differences(probed: AgentRow, known: AgentRow) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two rows differ: what was found out, and what is known. Names are not compared."""
    found, wanted = msgspec.to_builtins(probed), msgspec.to_builtins(known)
    return {key: (found[key], wanted[key]) for key in wanted if key != "name" and found[key] != wanted[key]}


# --- inside ---------------------------------------------------------------------------------------------


def _first(seen: Observation) -> Asked:
    """Return the first request of the conversation, else the first with tools, else the first."""
    ranked = sorted(seen.asked, key=lambda asked: (not asked.main, asked.wrapped, not asked.tools))
    return ranked[0]


def _beside(used: Variable, others: Sequence[Variable], wire: Wire) -> list[Variable]:
    """Return the variables that go with an address: those of its name, else those of its provider."""
    same = [v for v in others if v.name.partition("_")[0] == used.name.partition("_")[0]]
    return same or [v for v in others if v.family in (used.family, FAMILY[wire])]


def _spellings(made: Made, own_id: str, told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the places where our name of a tool is, and how it is spelled there."""
    for place, value in _leaves(told):
        if not isinstance(value, str) or made.own is None or place.split(".")[0] in _NO_NAMES:
            continue
        if place == "toolCallId":
            head, found, rest = value.partition(f"__{made.id}")
            value = head if found and not rest else ""
        if value.count(made.own) == 1 and json.dumps(made.input.get("path")) not in value:
            yield place, value.replace(made.own, "${name}")


def _input_places(made: Made, own_id: str, told: Mapping[str, Any]) -> list[str]:
    return [place for place, value in _leaves(told) if _is(value, made.input)]


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value in a document with its place, objects included."""
    if place:
        yield place, value
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _leaves(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value)):
            yield from _leaves(inner, f"{place}.{number}" if place else str(number))


def _is(value: Any, given: Mapping[str, Any]) -> bool:
    """Return whether a value is the input of a call, perhaps written as JSON."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return False
    return isinstance(value, dict) and bool(given) and value == given


def _filler(name: str, kind: str) -> Any:
    fillers: dict[str, Any] = {"boolean": False, "number": 1, "integer": 1, "array": [], "object": {}}
    return fillers.get(kind, "Leave a mark")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
