"""Gemini generateContent: requests with our tools and no others, and the history as the model made it.

Google takes each field in two spellings, `functionCall` and `function_call`; what an agent wrote stays as it is.
"""

from typing import Any

from codesdk.contract.tools import ToolSpec
from codesdk.gateway.ownership.acts import AnswerActs, DeniedCall, Plan
from codesdk.gateway.ownership.gemini_answer import GeminiAnswer
from codesdk.gateway.ownership.marks import Marks, Step, steps_of
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.values import input_object
from codesdk.gateway.wires.fields import items, mapping, string

_Object = dict[str, Any]
_DECLARATIONS = ("functionDeclarations", "function_declarations")
_CALLS = ("functionCall", "function_call")
_RESULTS = ("functionResponse", "function_response")
_CONFIGS = ("toolConfig", "tool_config")
_CALLING = ("functionCallingConfig", "function_calling_config")
_ALLOWED = ("allowedFunctionNames", "allowed_function_names")
_WRAPPED = ("generateContentRequest", "generate_content_request")
_SIGNATURES = ("thoughtSignature", "thought_signature")


class GeminiActs:
    """The acts of this format."""

    def request(self, body: _Object, plan: Plan) -> _Object:
        """Return a request as the model gets it. A count of tokens may wrap the request that it counts."""
        if (key := _key(body, _WRAPPED)) is not None:
            body = {**body, key: self._request(mapping(body[key]), plan)}
        return self._request(body, plan)

    def answer(self, plan: Plan, body: _Object) -> GeminiAnswer:
        """Return what rewrites the answer to a request."""
        return GeminiAnswer(plan, Names(plan, _declared(body)))

    def again(self, body: _Object, answer: AnswerActs) -> _Object:
        """Return the request that asks once more."""
        assert isinstance(answer, GeminiAnswer)
        said = [part for part in answer.content() if isinstance(part, DeniedCall) or _is_said(part)]
        step = Step(said)
        told = [_model({}, step), {"role": "user", "parts": [_result(call) for call in step.denied]}]
        return {**body, "contents": [*items(body.get("contents")), *told]}

    def _request(self, body: _Object, plan: Plan) -> _Object:
        names = Names(plan, _declared(body))
        sent = _with_tools(body, plan, names)
        if isinstance(sent.get("contents"), list):
            sent["contents"] = _History(names, Marks(plan.denied)).contents(sent["contents"])
        return sent


ACTS = GeminiActs()


def _key(value: _Object, spellings: tuple[str, ...]) -> str | None:
    """Return the spelling that an object uses for a field, or None if it does not have it."""
    return next((key for key in spellings if key in value), None)


def _declared(body: _Object) -> list[str]:
    return [string(mapping(function).get("name")) for function in _functions(body.get("tools"))]


def _functions(tools: object) -> list[Any]:
    return [
        function
        for tool in map(mapping, items(tools))
        for key in _DECLARATIONS
        for function in items(tool.get(key))
    ]


# --- tools ------------------------------------------------------------------------------------------


def _with_tools(body: _Object, plan: Plan, names: Names) -> _Object:
    sent = dict(body)
    tools = [left for tool in items(body.get("tools")) if (left := _left(mapping(tool), plan, names))]
    if plan.naming is not None and plan.tools:
        ours = [_function(name, spec) for name, spec in plan.tools.items()]
        tools.append({"functionDeclarations": ours})
    if tools:
        sent["tools"] = tools
    else:
        sent.pop("tools", None)
    offered = {string(mapping(function).get("name")) for function in _functions(tools)}
    for key in _CONFIGS:
        if key in sent:
            config = _config(mapping(sent.pop(key)), offered, names)
            sent |= {key: config} if config and tools else {}
    return sent


def _left(tool: _Object, plan: Plan, names: Names) -> _Object:
    """Return what stays of a tool: enabled functions, and Google's own by the names of their fields."""
    left = {key: value for key, value in tool.items() if names.is_native(key)}
    for key in _DECLARATIONS:
        kept = [f for f in items(tool.get(key)) if _stays(string(mapping(f).get("name")), plan, names)]
        left |= {key: kept} if kept else {}
    return left


def _stays(name: str, plan: Plan, names: Names) -> bool:
    return plan.naming is None if names.ours(name) is not None else names.is_native(name)


def _function(name: str, spec: ToolSpec) -> _Object:
    return {"name": name, "description": spec.description, "parametersJsonSchema": spec.input_schema}


def _config(config: _Object, offered: set[str], names: Names) -> _Object:
    """Return how tools are to be called, with none that is gone."""
    new = dict(config)
    for key in _CALLING:
        if key in config:
            calling = _calling(mapping(new.pop(key)), offered, names)
            new |= {key: calling} if calling and offered else {}
    return new


def _calling(calling: _Object, offered: set[str], names: Names) -> _Object:
    key = _key(calling, _ALLOWED)
    if key is None:
        return calling
    wanted = [names.ours(string(name)) or string(name) for name in items(calling[key])]
    left = [name for name in wanted if name in offered]
    if left or not wanted:
        return {**calling, key: left}
    # None that may be called is left. A list may only stand beside a mode that forces a call.
    return {field: value for field, value in calling.items() if field != key} | {"mode": "AUTO"}


# --- history ----------------------------------------------------------------------------------------


class _History:
    """The contents of a request, turned into what the model said and was told."""

    def __init__(self, names: Names, marks: Marks) -> None:
        self._names = names
        self._marks = marks
        self._coded: dict[str, str] = {}  # calls that were written as code: ids → names

    def contents(self, contents: list[Any]) -> list[Any]:
        found: list[Any] = []
        pending: list[DeniedCall] = []
        at = 0
        while at < len(contents):
            run = _run(contents, at)
            at += len(run)
            if any(map(self._has_mark, run)):
                for step in self._steps(run):
                    found += _told(pending)
                    if step.content:
                        found.append(_model(mapping(run[-1]), step))
                    pending = step.denied
                continue
            mapped = [self._content(content) for content in run]
            if pending and mapping(mapped[0]).get("role") in (None, "user", "function"):
                results = [_result(call) for call in pending]
                mapped[0] = {**mapped[0], "parts": [*results, *items(mapping(mapped[0]).get("parts"))]}
            else:
                found += _told(pending)
            found += mapped
            pending = []
        return [*found, *_told(pending)]

    def _has_mark(self, content: object) -> bool:
        fields = mapping(content)
        if fields.get("role") != "model" or not self._marks:
            return False
        return any(self._marks.within(mapping(part).get("text")) for part in items(fields.get("parts")))

    def _steps(self, run: list[Any]) -> list[Step]:
        parts: list[Any] = []
        for content in run:
            for part in items(mapping(content).get("parts")):
                parts += self._parts(part)
        return steps_of(parts, lambda part: _key(mapping(part), _CALLS) is not None)

    def _parts(self, part: Any) -> list[Any]:
        fields = mapping(part)
        text = fields.get("text")
        if fields.get("thought") or not self._marks.within(text):
            return [self._part(part)]
        pieces = self._marks.split(string(text))
        found = [piece if isinstance(piece, DeniedCall) else {"text": piece} for piece in pieces]
        signed = {key: fields[key] for key in _SIGNATURES if key in fields}
        last = next((part for part in reversed(found) if isinstance(part, dict)), None)
        if last is not None:  # a text may be signed, too
            last |= signed
        return list(found)

    def _content(self, content: Any) -> Any:
        parts = items(mapping(content).get("parts"))
        mapped = [self._part(part) for part in parts]
        if all(a is b for a, b in zip(mapped, parts, strict=True)):
            return content
        return {**content, "parts": mapped}

    def _part(self, part: Any) -> Any:
        fields = mapping(part)
        if (key := _key(fields, _CALLS)) is not None:
            return self._renamed(fields, key, self._call(mapping(fields[key])))
        if (key := _key(fields, _RESULTS)) is not None:
            return self._renamed(fields, key, self._result(mapping(fields[key])))
        return part

    def _renamed(self, part: _Object, key: str, new: _Object) -> _Object:
        return part if new is part[key] else {**part, key: new}

    def _call(self, call: _Object) -> _Object:
        name = string(call.get("name"))
        coded = self._names.read_code(call.get("args")) if self._names.is_code(name) else None
        if coded is not None:
            self._coded[string(call.get("id"))] = coded.name
            return {**call, "name": coded.name, "args": input_object(coded.input)}
        ours = self._names.ours(name)
        return call if ours is None or ours == name else {**call, "name": ours}

    def _result(self, result: _Object) -> _Object:
        name = string(result.get("name"))
        ours = self._names.ours(name)
        if self._names.is_code(name):
            ours = self._coded.get(string(result.get("id")))
        return result if ours is None or ours == name else {**result, "name": ours}


def _run(contents: list[Any], start: int) -> list[Any]:
    """Return the contents from `start` on that are of one turn of the model."""
    if mapping(contents[start]).get("role") != "model":
        return [contents[start]]
    end = start + 1
    while end < len(contents) and mapping(contents[end]).get("role") == "model":
        end += 1
    return contents[start:end]


def _model(content: _Object, step: Step) -> _Object:
    parts = [_call(part) if isinstance(part, DeniedCall) else part for part in step.content]
    return {**content, "role": "model", "parts": parts}


def _told(denied: list[DeniedCall]) -> list[_Object]:
    return [{"role": "user", "parts": [_result(call) for call in denied]}] if denied else []


def _call(call: DeniedCall) -> _Object:
    """Return a denied call as a part, with its signature. A call of Google's own tools would need its result."""
    if _key(call.item, _CALLS) is not None:
        return call.item
    signed = {key: call.item[key] for key in _SIGNATURES if key in call.item}
    return {"functionCall": {"name": call.name or "unknown", "args": input_object(call.input)}, **signed}


def _result(call: DeniedCall) -> _Object:
    made = mapping(call.item.get(_key(call.item, _CALLS) or ""))
    result: _Object = {"name": call.name or "unknown", "response": {"error": call.reason}}
    return {"functionResponse": {"id": made["id"], **result} if made.get("id") else result}


def _is_said(part: _Object) -> bool:
    """Return whether a part says anything."""
    return part.get("text") != "" or any(part.get(key) for key in _SIGNATURES)
