"""Every number that a caller or an operator gives has bounds, and what is outside of them is refused with the bounds."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.engine.rig import rig

from codesdk.channel import ArbiterLimits
from codesdk.contract.actions import ACTIONS, Action, ChangeSettings, CreateSession
from codesdk.contract.api import Collecting
from codesdk.contract.bounds import NumberField, check_bounds, fields_of
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.settings import Budget, Budgets, Limits, SessionSettings
from codesdk.daemon.settings import DaemonSettings
from codesdk.runtimes.acp.row import AgentRow
from codesdk.testing.fakes import memory_sdk
from codesdk.tools.mcp_client.servers import HttpServer, StdioServer

ROOTS: tuple[type[msgspec.Struct], ...] = (
    *ACTIONS,
    Limits,
    Collecting,
    DaemonSettings,
    StdioServer,
    HttpServer,
    AgentRow,
    ArbiterLimits,
)
SAID_BY_MODELS = {"Message"}
"""What is not a setting: messages carry what was said before, and are checked when they are stored."""


def structs(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield a struct's type and those of all structs that it may hold."""
    todo, seen = [msgspec.inspect.type_info(kind)], set[type]()
    while todo:
        part: Any = todo.pop()
        if isinstance(part, msgspec.inspect.UnionType):
            todo += part.types
        elif isinstance(part, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
            todo.append(part.item_type)
        elif isinstance(part, msgspec.inspect.StructType) and part.cls not in seen:
            seen.add(part.cls)
            yield part.cls
            if part.cls.__name__ not in SAID_BY_MODELS:
                todo += [field.type for field in part.fields]


OWNERS = sorted({one for root in ROOTS for one in structs(root)}, key=lambda one: one.__name__)
NUMBERS = [
    pytest.param(owner, field, id=f"{owner.__name__}.{field.name}")
    for owner in OWNERS
    for field in fields_of(owner)[0]
    if owner.__name__ not in SAID_BY_MODELS
]
OUTSIDE = [math.nan, math.inf, -math.inf, -1, -0.5, 1e308, 10**400, -(10**400), True, False, "5"]


def made(owner: type[msgspec.Struct], **fields: Any) -> msgspec.Struct:
    """Return a struct without looking at what it needs."""
    needed = {field.name: "x" for field in msgspec.structs.fields(owner) if field.required}
    return owner(**{**needed, **fields})


def test_the_walk_finds_the_numbers():
    names = {str(found.id).partition(".")[2] for found in NUMBERS}
    assert {
        "approval_timeout_s",
        "cost_usd",
        "attempt",
        "seq",
        "max_queue",
        "heartbeat_s",
        "max_age_days",
    } <= names
    assert len(NUMBERS) > 30


@pytest.mark.parametrize(("owner", "field"), NUMBERS)
def test_every_number_has_bounds_and_its_default_is_within_them(owner: type[Any], field: NumberField):
    kind = field.kind
    assert kind.le is not None, "an upper bound"
    assert kind.ge is not None or kind.gt is not None, "a lower bound"
    (default,) = [one.default for one in msgspec.structs.fields(owner) if one.name == field.name]
    assert default in (None, msgspec.UNSET) or field.holds(default)


@pytest.mark.parametrize(("owner", "field"), NUMBERS)
def test_what_is_outside_is_refused_with_the_bounds(owner: type[Any], field: NumberField):
    for value in OUTSIDE:
        with pytest.raises(InvalidRequest) as refusal:
            check_bounds(made(owner, **{field.name: value}))
        assert f"{field.name} must be " in refusal.value.message
        assert f"at most {field.kind.le}" in refusal.value.message


def test_decoding_refuses_with_the_bounds_too():
    with pytest.raises(msgspec.ValidationError, match="<= 2592000"):
        msgspec.json.decode(b'{"approval_timeout_s": 1e308}', type=SessionSettings)


CREATE = CreateSession(runtime="fake", workspace="/workspace")


@pytest.mark.parametrize(
    "action",
    [
        msgspec.structs.replace(CREATE, settings=SessionSettings(approval_timeout_s=1e308)),
        msgspec.structs.replace(CREATE, settings=SessionSettings(idle_timeout_s=math.nan)),
        msgspec.structs.replace(CREATE, budgets=Budgets(task=Budget(tokens=-1))),
        ChangeSettings(session_id="ses_1", stop_grace_s=math.inf),
    ],
)
def test_the_engine_checks_every_action_before_anything_is_written(action: Action[Any]):
    with rig() as r:
        assert r.refused(r.sdk.service.execute(action), InvalidRequest) == "INVALID_REQUEST"
        assert r.get(r.sdk.sessions()) == []


async def test_an_engine_does_not_begin_with_limits_that_cannot_be():
    with pytest.raises(InvalidRequest, match="max_queue"):
        async with memory_sdk(limits=Limits(max_queue=-1)):
            raise AssertionError("it began")
