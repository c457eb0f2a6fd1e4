"""Anthropic Messages: requests with our tools and no others, and the history as the model made it."""

from typing import Any

from codesdk.contract.tools import ToolSpec
from codesdk.gateway.ownership.acts import AnswerActs, DeniedCall, Plan
from codesdk.gateway.ownership.anthropic_answer import AnthropicAnswer
from codesdk.gateway.ownership.marks import Marks, Step, steps_of
from codesdk.gateway.ownership.names import Names
from codesdk.gateway.ownership.values import input_object, made_up_id
from codesdk.gateway.wires.fields import items, mapping, string

_Object = dict[str, Any]


class AnthropicActs:
    """The acts of this format."""

    def request(self, body: _Object, plan: Plan) -> _Object:
        """Return a request as the model gets it."""
        names = Names(plan, _declared(body))
        sent = _with_tools(body, plan, names)
        if isinstance(sent.get("messages"), list):
            declared = {string(mapping(tool).get("name")) for tool in items(sent.get("tools"))}
            sent["messages"] = _History(names, Marks(plan.denied), declared).messages(sent["messages"])
        return sent

    def answer(self, plan: Plan, body: _Object) -> AnthropicAnswer:
        """Return what rewrites the answer to a request."""
        return AnthropicAnswer(plan, Names(plan, _declared(body)))

    def again(self, body: _Object, answer: AnswerActs) -> _Object:
        """Return the request that asks once more."""
        assert isinstance(answer, AnthropicAnswer)
        said = [part for part in answer.content() if isinstance(part, DeniedCall) or _is_said(part)]
        step = Step(said)
        results = [_result(call) for call in step.denied]
        told = [_assistant({}, step), {"role": "user", "content": results}]
        return {**body, "messages": [*items(body.get("messages")), *told]}


ACTS = AnthropicActs()


def _declared(body: _Object) -> list[str]:
    return [string(mapping(tool).get("name")) for tool in items(body.get("tools"))]


# --- tools ------------------------------------------------------------------------------------------


def _with_tools(body: _Object, plan: Plan, names: Names) -> _Object:
    sent = dict(body)
    offered = [mapping(tool) for tool in items(body.get("tools"))]
    ours = [] if plan.naming is None else [_tool(name, spec) for name, spec in plan.tools.items()]
    kept = [tool for tool in offered if _stays(tool, plan, names)]
    if ours and len(kept) < len(offered):
        _keep_cached(offered, kept, ours)
    tools = [*kept, *ours]
    servers = [s for s in items(body.get("mcp_servers")) if names.is_native(string(mapping(s).get("name")))]
    _put(sent, "tools", tools)
    _put(sent, "mcp_servers", servers)
    if not names.is_native("code_execution"):
        sent.pop("container", None)  # where the provider would run code
    choice = _choice(body.get("tool_choice"), tools, names)
    _put(sent, "tool_choice", choice)
    return sent


def _put(sent: _Object, key: str, value: Any) -> None:
    if value:
        sent[key] = value
    else:
        sent.pop(key, None)


def _tool(name: str, spec: ToolSpec) -> _Object:
    return {"name": name, "description": spec.description, "input_schema": spec.input_schema}


def _stays(tool: _Object, plan: Plan, names: Names) -> bool:
    name = string(tool.get("name")) or string(tool.get("mcp_server_name"))
    if names.ours(name) is not None:
        return plan.naming is None
    return names.is_native(name)


def _keep_cached(offered: list[_Object], kept: list[_Object], ours: list[_Object]) -> None:
    """Move the breakpoint of a cache from a tool that is gone to the last of ours."""
    stays = {id(tool) for tool in kept}
    gone = [tool["cache_control"] for tool in offered if id(tool) not in stays and tool.get("cache_control")]
    if gone:
        ours[-1]["cache_control"] = gone[-1]


def _choice(choice: object, tools: list[_Object], names: Names) -> _Object | None:
    fields = mapping(choice)
    if not fields or not tools:
        return None
    if fields.get("type") != "tool":
        return fields
    wanted = string(fields.get("name"))
    wanted = names.ours(wanted) or wanted
    if any(tool.get("name") == wanted for tool in tools):
        return {**fields, "name": wanted}
    return {key: value for key, value in fields.items() if key != "name"} | {"type": "auto"}


# --- history ----------------------------------------------------------------------------------------


class _History:
    """The messages of a request, turned into what the model said and was told."""

    def __init__(self, names: Names, marks: Marks, declared: set[str]) -> None:
        self._names = names
        self._marks = marks
        self._declared = declared

    def messages(self, messages: list[Any]) -> list[Any]:
        found: list[Any] = []
        pending: list[DeniedCall] = []
        at = 0
        while at < len(messages):
            run = _run(messages, at)
            at += len(run)
            if any(map(self._has_mark, run)):
                found += self._told(pending)
                steps = self._steps(run)
                for step in steps:
                    found += self._told(pending)
                    if step.content:
                        found.append(_assistant(mapping(run[-1]), step))
                    pending = step.denied
                continue
            if pending and mapping(run[0]).get("role") == "user":
                found.append(_before(self._message(run[0]), pending))
            else:
                found += [*self._told(pending), *map(self._message, run)]
            pending = []
        return [*found, *self._told(pending)]

    def _told(self, denied: list[DeniedCall]) -> list[_Object]:
        return [{"role": "user", "content": [_result(call) for call in denied]}] if denied else []

    def _has_mark(self, message: object) -> bool:
        fields = mapping(message)
        if fields.get("role") != "assistant" or not self._marks:
            return False
        content = fields.get("content")
        texts = [content] if isinstance(content, str) else [mapping(b).get("text") for b in items(content)]
        return any(map(self._marks.within, texts))

    def _steps(self, run: list[Any]) -> list[Step]:
        parts: list[Any] = []
        for message in run:
            content = mapping(message).get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else items(content)
            for block in blocks:
                parts += self._parts(block)
        return steps_of(parts, lambda block: mapping(block).get("type") == "tool_use")

    def _parts(self, block: Any) -> list[Any]:
        text = mapping(block).get("text")
        if mapping(block).get("type") != "text" or not self._marks.within(text):
            return [self._block(block)]
        pieces = self._marks.split(string(text))
        return [p if isinstance(p, DeniedCall) else {"type": "text", "text": p} for p in pieces]

    def _message(self, message: Any) -> Any:
        content = items(mapping(message).get("content"))
        blocks = [self._block(block) for block in content]
        if all(a is b for a, b in zip(blocks, content, strict=True)):
            return message
        return {**message, "content": blocks}

    def _block(self, block: Any) -> Any:
        fields = mapping(block)
        match fields.get("type"):
            case "tool_use":
                return self._call(fields)
            case "tool_result":
                return self._result(fields)
            case _:
                return block

    def _call(self, block: _Object) -> _Object:
        name = string(block.get("name"))
        coded = self._names.read_code(block.get("input")) if self._names.is_code(name) else None
        if coded is not None:
            return {**block, "name": coded.name, "input": coded.input}
        ours = self._names.ours(name)
        return block if ours is None or ours == name else {**block, "name": ours}

    def _result(self, block: _Object) -> _Object:
        """Return a result without references to tools that are not declared: a provider refuses those."""
        content = items(block.get("content"))
        if not any(map(self._is_lost, content)):
            return block
        told = [
            {"type": "text", "text": string(mapping(part).get("tool_name"))} if self._is_lost(part) else part
            for part in content
        ]
        return {**block, "content": told}

    def _is_lost(self, part: Any) -> bool:
        fields = mapping(part)
        return fields.get("type") == "tool_reference" and fields.get("tool_name") not in self._declared


def _run(messages: list[Any], start: int) -> list[Any]:
    """Return the messages from `start` on that are of one turn: a provider joins those of one role."""
    if mapping(messages[start]).get("role") != "assistant":
        return [messages[start]]
    end = start + 1
    while end < len(messages) and mapping(messages[end]).get("role") == "assistant":
        end += 1
    return messages[start:end]


def _assistant(message: _Object, step: Step) -> _Object:
    content = [_call(part) if isinstance(part, DeniedCall) else part for part in step.content]
    return {**message, "role": "assistant", "content": content}


def _before(message: _Object, denied: list[DeniedCall]) -> _Object:
    """Return the message of a user with the results of denied calls before all else."""
    content = message.get("content")
    rest = [{"type": "text", "text": content}] if isinstance(content, str) else items(content)
    return {**message, "content": [*(_result(call) for call in denied), *rest]}


def _call_id(call: DeniedCall) -> str:
    return string(call.item.get("id")) or made_up_id(call.mark)


def _call(call: DeniedCall) -> _Object:
    """Return a denied call as a block. One of the provider's own kinds would need its result beside it."""
    given = input_object(call.item.get("input"))
    if call.item.get("type") == "tool_use":
        return {**call.item, "id": _call_id(call), "input": given}
    return {"type": "tool_use", "id": _call_id(call), "name": call.name or "unknown", "input": given}


def _result(call: DeniedCall) -> _Object:
    return {"type": "tool_result", "tool_use_id": _call_id(call), "content": call.reason, "is_error": True}


def _is_said(block: _Object) -> bool:
    """Return whether a block says anything: providers refuse empty texts."""
    return block.get("type") != "text" or bool(string(block.get("text")).strip())
