"""Chat Completions: requests with our tools and no others, and the history as the model made it."""

from typing import Any, cast

from codesdk.contract.tools import ToolSpec
from codesdk.gateway.ownership.acts import AnswerActs, DeniedCall, Plan
from codesdk.gateway.ownership.chat_answer import ChatAnswer
from codesdk.gateway.ownership.marks import Marks, Step, steps_of
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.values import made_up_id, write_json
from codesdk.gateway.wires.fields import input_of, items, mapping, string

_Object = dict[str, Any]
_SEARCHES = ("web_search_options", "search_parameters", "enable_search", "search_options", "plugins")
"""Fields that let a provider search the web, or run what else it has, without a tool in the list."""


class ChatActs:
    """The acts of this format."""

    def request(self, body: _Object, plan: Plan) -> _Object:
        """Return a request as the model gets it."""
        names = Names(plan, _declared(body))
        sent = _with_tools(body, plan, names)
        if isinstance(sent.get("messages"), list):
            sent["messages"] = _History(names, Marks(plan.denied)).messages(sent["messages"])
        return sent

    def answer(self, plan: Plan, body: _Object) -> ChatAnswer:
        """Return what rewrites the answer to a request."""
        return ChatAnswer(plan, Names(plan, _declared(body)))

    def again(self, body: _Object, answer: AnswerActs) -> _Object:
        """Return the request that asks once more."""
        assert isinstance(answer, ChatAnswer)
        said, denied = answer.message()
        message = {**said, "tool_calls": [_call(call) for call in denied]} if denied else said
        told = [message, *(_result(call) for call in denied)]
        return {**body, "messages": [*items(body.get("messages")), *told]}


ACTS = ChatActs()


def _declared(body: _Object) -> list[str]:
    return [_name(mapping(tool)) for tool in (*items(body.get("tools")), *items(body.get("functions")))]


def _name(tool: _Object) -> str:
    """Return the name of a tool, of a legacy function, or the type of a provider's own."""
    inner = mapping(tool.get("function")) or mapping(tool.get("custom")) or tool
    return string(inner.get("name")) or string(tool.get("type"))


# --- tools ------------------------------------------------------------------------------------------


def _with_tools(body: _Object, plan: Plan, names: Names) -> _Object:
    sent = dict(body)
    tools = _kept(body.get("tools"), plan, names)
    functions = _kept(body.get("functions"), plan, names)
    if plan.naming is not None:
        tools += [_tool(name, spec) for name, spec in plan.tools.items()]
    _put(sent, "tools", tools)
    _put(sent, "functions", functions)
    for key in _SEARCHES:
        if not names.is_native("web_search") and not names.is_native(key):
            sent.pop(key, None)
    offered = {_name(tool) for tool in (*tools, *functions)}
    _put(sent, "tool_choice", _choice(body.get("tool_choice"), offered, names))
    _put(sent, "function_call", _choice(body.get("function_call"), {_name(f) for f in functions}, names))
    if not tools:
        sent.pop("parallel_tool_calls", None)  # refused where there are no tools
    return sent


def _kept(tools: object, plan: Plan, names: Names) -> list[_Object]:
    found: list[_Object] = []
    for tool in map(mapping, items(tools)):
        name = _name(tool)
        stays = plan.naming is None if names.ours(name) is not None else names.is_native(name)
        found += [tool] if stays else []
    return found


def _put(sent: _Object, key: str, value: Any) -> None:
    if value:
        sent[key] = value
    else:
        sent.pop(key, None)


def _tool(name: str, spec: ToolSpec) -> _Object:
    function = {"name": name, "description": spec.description, "parameters": spec.input_schema}
    return {"type": "function", "function": function}


def _choice(choice: Any, offered: set[str], names: Names) -> Any:
    """Return a choice of a tool that can be made among those that are offered."""
    if not offered or choice is None:
        return None
    if not isinstance(choice, dict):
        return choice
    fields = mapping(cast("object", choice))
    if allowed := mapping(fields.get("allowed_tools")):
        left = [
            tool for tool in map(mapping, items(allowed.get("tools"))) if _is_offered(tool, offered, names)
        ]
        if not left:
            return "auto"
        return {**fields, "allowed_tools": {**allowed, "tools": [_renamed(tool, names) for tool in left]}}
    return _renamed(fields, names) if _is_offered(fields, offered, names) else "auto"


def _is_offered(tool: _Object, offered: set[str], names: Names) -> bool:
    name = _name(tool)
    return (names.ours(name) or name) in offered


def _renamed(tool: _Object, names: Names) -> _Object:
    """Return a tool or a call by the name that the model knows."""
    for key in ("function", "custom"):
        if inner := mapping(tool.get(key)):
            ours = names.ours(string(inner.get("name")))
            is_same = ours is None or ours == inner.get("name")
            return tool if is_same else {**tool, key: {**inner, "name": ours}}
    ours = names.ours(string(tool.get("name")))
    return tool if ours is None else {**tool, "name": ours}


# --- history ----------------------------------------------------------------------------------------


class _History:
    """The messages of a request, turned into what the model said and was told."""

    def __init__(self, names: Names, marks: Marks) -> None:
        self._names = names
        self._marks = marks

    def messages(self, messages: list[Any]) -> list[Any]:
        found: list[Any] = []
        for message in messages:
            fields = mapping(message)
            match fields.get("role"):
                case "assistant" if self._has_mark(fields.get("content")):
                    found += self._split(self._said(fields))
                case "assistant":
                    found.append(self._said(fields))
                case "tool" | "function" if fields.get("name"):
                    found.append(_renamed(fields, self._names))
                case _:
                    found.append(message)
        return found

    def _has_mark(self, content: object) -> bool:
        if not self._marks:
            return False
        texts = [content] if isinstance(content, str) else [mapping(p).get("text") for p in items(content)]
        return any(map(self._marks.within, texts))

    def _said(self, message: _Object) -> _Object:
        """Return a message with its calls as the model made them."""
        new = message
        if calls := items(message.get("tool_calls")):
            mapped = [self._call(call) for call in calls]
            if any(a is not b for a, b in zip(mapped, calls, strict=True)):
                new = {**new, "tool_calls": mapped}
        if legacy := mapping(message.get("function_call")):
            new = {**new, "function_call": _renamed(legacy, self._names)}
        return new

    def _call(self, call: Any) -> Any:
        function = mapping(mapping(call).get("function"))
        if not self._names.is_code(string(function.get("name"))):
            return _renamed(mapping(call), self._names) if mapping(call) else call
        coded = self._names.read_code(input_of(string(function.get("arguments"))))
        if coded is None:
            return call
        written = {"name": coded.name, "arguments": write_json(coded.input).decode()}
        return {**call, "function": {**function, **written}}

    def _split(self, message: _Object) -> list[_Object]:
        """Return the messages of the steps that an agent keeps as one, each with what was denied in it."""
        calls = items(message.get("tool_calls"))
        has_calls = bool(calls or message.get("function_call"))
        steps = steps_of(self._parts(message.get("content")), lambda part: False, keeps_calls=has_calls)
        rest = {key: message[key] for key in message if key not in ("content", "tool_calls", "function_call")}
        own = {key: message[key] for key in ("tool_calls", "function_call") if message.get(key)}
        found: list[_Object] = []
        for number, step in enumerate(steps):
            is_last = number == len(steps) - 1
            # Reasoning is joined in one field: it stays where the first of it was.
            said = {"role": "assistant"} if number else rest
            found += _step_messages(said, step, own if is_last else {})
        return found

    def _parts(self, content: object) -> list[Any]:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else items(content)
        found: list[Any] = []
        for part in parts:
            text = mapping(part).get("text")
            if self._marks.within(text):
                pieces = self._marks.split(string(text))
                found += [p if isinstance(p, DeniedCall) else {"type": "text", "text": p} for p in pieces]
            else:
                found.append(part)
        return found


def _step_messages(said: _Object, step: Step, own: _Object) -> list[_Object]:
    parts = [part for part in step.content if not isinstance(part, DeniedCall)]
    if all(mapping(part).get("type") == "text" and len(part) == 2 for part in parts):
        content: Any = "".join(string(part["text"]) for part in parts) or None
    else:
        content = parts
    calls = [*(_call(call) for call in step.denied), *items(own.get("tool_calls"))]
    message = {**said, "content": content, **own} | ({"tool_calls": calls} if calls else {})
    return [message, *(_result(call) for call in step.denied)]


def _call_id(call: DeniedCall) -> str:
    return string(call.item.get("id")) or made_up_id(call.mark)


def _call(call: DeniedCall) -> _Object:
    return {**call.item, "id": _call_id(call)}


def _result(call: DeniedCall) -> _Object:
    return {"role": "tool", "tool_call_id": _call_id(call), "content": call.reason}
