"""A backend → the same backend behind the acts of ownership: what the model gets, and what comes back to the agent.

The outermost of a session's backends, so that all behind it, the log included, see what the model was really sent.
The acts are pure; here a request gets its plan, from what the session's tap says. `turn` sees to the answer.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from codesdk.contract.ownership import WireRules, WireTap
from codesdk.contract.tools import ToolSpec
from codesdk.gateway.ownership.acts import DeniedCall, Plan
from codesdk.gateway.ownership.formats import acts_for
from codesdk.gateway.ownership.side import is_side
from codesdk.gateway.ownership.turn import Sent, Turn
from codesdk.gateway.reply import RawRequest, Reply, refuse
from codesdk.gateway.server import Backend
from codesdk.gateway.wires.exchange import Ask, Codec, Fault
from codesdk.tools import wire_name

_NAMED = 60  # of our tools, in what a model is told
_UNFIT = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What acts may raise over a request that is not as its format says."""


class OwnedBackend:
    """Answers the requests of one session from another backend, with our tools in them and no others."""

    def __init__(self, inner: Backend, tap: WireTap, rules: WireRules) -> None:
        self._inner = inner
        self._tap = tap
        self._rules = rules
        self._denied: dict[str, DeniedCall] | None = None
        self._recalling = asyncio.Lock()

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        """Answer a model request. One that cannot be rewritten is refused: nothing passes unjudged."""
        denied = await self._recall()
        told = ask if ask.kind == "generate" else msgspec.structs.replace(ask, kind="generate")
        aside = is_side(told, self._rules, ())
        main = not aside and not is_side(told, self._rules, self._tap.words())
        if main and ask.kind == "generate":
            self._tap.converse()
        plan = self._plan(main, denied)
        acts = acts_for(codec.wire)
        try:
            request = msgspec.structs.replace(request, aside=aside)
            sent = Sent(codec, request, ask, acts.request(ask.body, plan), 0)
            breaks = self._rules.tells_breaks
            turn = Turn(
                self._inner, self._tap, acts, plan, sent, denied, may_ask_again=main, tells_breaks=breaks
            )
        except _UNFIT as error:
            return _unfit(codec, error)
        reply = await turn.run()
        if ask.tools and not main and not aside and reply.request_id is not None:
            self._tap.aside(reply.request_id, ask.tools)
        return reply

    async def list_models(self, codec: Codec, request: RawRequest) -> Reply | None:
        """Forward a request for the provider's models."""
        return await self._inner.list_models(codec, request)

    def _plan(self, main: bool, denied: Mapping[str, DeniedCall]) -> Plan:
        specs = self._tap.tools() if main else ()
        tools = {wire_name(spec.name): spec for spec in specs}
        return Plan(
            tools=tools,
            naming=self._rules.naming,
            natives=frozenset(self._rules.natives if main else ()),
            denied=denied,
            new_mark=self._tap.mark,
            reason_for=lambda name: _reason(name, tools, self._rules.natives if main else ()),
        )

    async def _recall(self) -> dict[str, DeniedCall]:
        """Return the session's denied calls by mark. They are read once, from the log; later ones are added."""
        async with self._recalling:
            if self._denied is None:
                fields = DeniedCall.__struct_fields__
                calls = await self._tap.denials()
                self._denied = {
                    call.mark: DeniedCall(**{name: getattr(call, name) for name in fields}) for call in calls
                }
        return self._denied


def _reason(name: str, tools: Mapping[str, ToolSpec], natives: Sequence[str]) -> str:
    """Return what a model is told in place of the result of a call that is none of ours."""
    offered = [*tools, *natives]
    if not offered:
        return f"There is no tool {name} here, and no other. Answer without one."
    more = f" and {len(offered) - _NAMED} more" if len(offered) > _NAMED else ""
    return f"There is no tool {name} here. There are: {', '.join(offered[:_NAMED])}{more}. Use one of these, or none."


def _unfit(codec: Codec, error: Exception) -> Reply:
    message = (
        "The request is not passed on: it is not as its format says, so that the tools in it cannot be told"
        f" ({type(error).__name__})."
    )
    return refuse(codec, Fault(status=400, kind="invalid", message=message))
