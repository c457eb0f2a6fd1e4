"""Experiments on the way to the model: as given, by `providers/set`, by common variables; with a key chosen if that is asked for."""

import contextlib
from collections.abc import Mapping
from typing import Any

from codesdk.contract.errors import TaskFailure
from codesdk.contract.models import STAND_IN
from codesdk.runtimes import RequestFailed, as_dict, as_list
from codesdk.testing.probe.candidates import MODELS, Family, Variable, chosen, model_for
from codesdk.testing.probe.deduce import Way, way_of
from codesdk.testing.probe.seen import Observation
from codesdk.testing.probe.state import Probe, with_variables
from codesdk.testing.probe.talk import Talk, started
from codesdk.testing.probe.world import World, say

WORDS = "Say hello, please."
AUTH_REQUIRED = -32000
_PROMPT_S = 25.0


async def introduction(world: World, probe: Probe) -> None:
    """Find out that it is an agent. Raise `TaskFailure` if not."""
    probe.row = with_variables(probe.row, {})
    async with started(world, probe.row, probe.command, probe.places) as talk:
        about = probe.about = await talk.introduce()
        name = about.name or "an agent without a name"
        probe.note("agent", f"{name} {about.version or 'without a version'}, version 1 of the protocol")
        declared = _declared(about.capabilities)
        probe.note("declares", declared or "nothing")
        if about.logins:
            probe.note("logins", ", ".join(str(login.get("id")) for login in about.logins))
        if not probe.given:
            probe.has_way = await _by_protocol(world, probe, talk)


async def way_to_the_model(world: World, probe: Probe) -> None:
    """Find the way to the model: the first of several that leads a request to us."""
    for attempt in (_as_given, _by_variables):
        probe.has_way = probe.has_way or await attempt(world, probe)
    if probe.has_way:
        return
    probe.miss(
        "model",
        "The wire format is not known: no request reached the gateway, neither by providers/set nor by common variables."
        + (f" The last attempt: {probe.problem}" if probe.problem else ""),
        "Sessions are refused. If you know how the agent is told its model's address, say it with --env NAME=VALUE"
        " (`${model_url}` stands for the address) or with --row FILE, and probe again.",
    )


async def _as_given(world: World, probe: Probe) -> bool:
    """Try what the user said, if anything."""
    if not probe.given:
        return False
    try:
        async with started(world, probe.row, probe.command, probe.places) as talk:
            await talk.introduce()
            await talk.greet()
            seen, greets = await _hello(world, talk, probe)
    except (TaskFailure, RequestFailed) as error:
        probe.note("model", f"no request came by what was given: {error.message}")
        return False
    way = way_of(seen, ())
    if way is None:
        probe.note(
            "model", f"no request came by what was given ({seen.problem or 'the turn ended without one'})"
        )
        return False
    _take(probe, way, {}, {**probe.row.greets, **greets}, "as given")
    return True


async def _by_protocol(world: World, probe: Probe, talk: Talk) -> bool:
    """Try `providers/set`, where it is offered."""
    try:
        found = await talk.request("providers/list", {})
    except RequestFailed:
        return False
    for params in _settings(found):
        real = {**params, "baseUrl": world.address("providers/set") + params["baseUrl"]}
        with contextlib.suppress(RequestFailed):
            await talk.request("providers/set", real)
            seen, greets = await _hello(world, talk, probe)
            way = way_of(seen, ())
            if way is not None:
                kept = {**params, "baseUrl": "${model_url}" + params["baseUrl"]}
                _take(probe, way, {}, {"providers/set": kept, **greets}, "by providers/set")
                return True
    return False


async def _by_variables(world: World, probe: Probe) -> bool:
    """Try all common variables at once, each with an address of its own; then those of one provider after the other."""
    every: tuple[tuple[Family, ...], ...] = (
        ("openai", "anthropic", "gemini", "any"),
        ("openai", "any"),
        ("anthropic",),
        ("gemini",),
    )
    for families in every:
        tried = chosen(families)
        values = {variable.name: _value(world, variable) for variable in tried}
        try:
            async with started(world, probe.row, probe.command, probe.places, values) as talk:
                await talk.introduce()
                seen, greets = await _hello(world, talk, probe)
        except TaskFailure as error:
            probe.problem = error.message
            continue
        probe.problem = seen.problem or "The turn ended without a model request."
        way = way_of(seen, tried)
        if way is not None:
            used = next((a.address for a in seen.asked if a.path == way.path), "")
            _take(probe, way, way.environment, greets, f"by {used}")
            return True
    return False


async def _hello(world: World, talk: Talk, probe: Probe) -> tuple[Observation, dict[str, Mapping[str, Any]]]:
    """Begin a session and say hello; choose a key before that if the agent asks for it. Return what had to be said."""
    world.turn(WORDS, say("Hello."))
    greets: dict[str, Mapping[str, Any]] = {}
    try:
        await talk.begin()
    except RequestFailed as error:
        chosen_key = await _choose_key(talk)
        if chosen_key is None:
            world.seen.problem = error.message
            return world.seen, {}
        greets = {"authenticate": chosen_key}
    await talk.prompt(timeout_s=_PROMPT_S)
    probe.seen["hello"] = world.seen
    return world.seen, greets


async def _choose_key(talk: Talk) -> Mapping[str, Any] | None:
    """Choose the first of the agent's logins with which a session begins: those by a key first."""
    logins = sorted(talk.about.logins, key=lambda login: not _is_by_key(login))
    for login in logins:
        params = {"methodId": login.get("id")}
        # A login that opens a browser would wait for ever.
        if not _is_by_key(login):
            continue
        with contextlib.suppress(RequestFailed):
            await talk.request("authenticate", params)
            await talk.begin()
            return params
    return None


def _is_by_key(login: Mapping[str, Any]) -> bool:
    words = f"{login.get('id')} {login.get('name')}".lower()
    return any(word in words for word in ("key", "openai", "api", "gateway", "custom"))


def _settings(found: Any) -> list[dict[str, Any]]:
    """Return what to set, for each provider and each of its types that an agent lists."""
    settings: list[dict[str, Any]] = []
    for provider in map(as_dict, as_list(as_dict(found).get("providers"))):
        types = as_list(provider.get("supported")) or [as_dict(provider.get("current")).get("apiType")]
        for kind in types:
            if isinstance(kind, str):
                base = "/v1" if kind.startswith("openai") else ""
                name = provider.get("providerId") or provider.get("id")
                settings.append({"providerId": name, "apiType": kind, "baseUrl": base, "headers": {}})
    return settings


def _value(world: World, variable: Variable) -> str:
    if variable.kind == "address":
        return world.address(variable.name) + variable.suffix
    return STAND_IN if variable.kind == "key" else model_for(variable)


def _take(
    probe: Probe, way: Way, environment: Mapping[str, str], greets: Mapping[str, Any], how: str
) -> None:
    probe.row = with_variables(probe.row, environment)
    model = MODELS[way.wire] if way.takes_model else way.model
    if probe.given and probe.row.model:
        model = probe.row.model
    probe.learn(
        "model",
        f"the wire format is {way.wire} ({way.path}), the address is taken {how}",
        wire=way.wire,
        greets=greets,
        model=model,
    )
    if greets.get("authenticate"):
        probe.note("key", f"it is chosen by the login {greets['authenticate'].get('methodId')}")
    by_variable = [name for name, value in environment.items() if value == "${model}"]
    if by_variable:
        probe.note("model name", f"taken from {', '.join(by_variable)}")


def _declared(capabilities: Mapping[str, Any]) -> str:
    words: list[str] = []
    for key, value in sorted(capabilities.items()):
        if isinstance(value, dict):
            inner = ", ".join(name for name, on in sorted(as_dict(value).items()) if on not in (False, None))
            words.append(f"{key} ({inner})" if inner else key)
        elif value not in (False, None):
            words.append(key)
    return ", ".join(words)
