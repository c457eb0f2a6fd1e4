"""A scripted program as the runtime of a session: what the engine makes of its calls."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.channel.test_arbiter import request, result

from codesdk import CodeSDK
from codesdk.channel import ArbiterLimits, Launch, PolicyDecision, ScriptedRunner, WrappedProgram
from codesdk.channel.scripted import Play, ScriptedSession
from codesdk.contract.errors import TaskFailure
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import Limits
from codesdk.policy.rules import Rule, RulePolicy

ALL = ["read", "write", "net", "exec"]


def asks(*calls: tuple[str, str, dict[str, Any]]) -> Play:
    """Return a program that makes calls, one after the other, and runs those that are allowed."""

    async def program(session: ScriptedSession) -> int:
        for number, (tool, action, args) in enumerate(calls):
            await session.say(request(f"t{number}", tool, action=action, args=args))
            decision = await session.decision(f"t{number}")
            allowed = isinstance(decision, PolicyDecision) and decision.decision == "allow"
            await session.say(result(f"t{number}", ok=allowed))
        return 0

    return program


async def play(
    folder: Path,
    program: Play,
    *,
    native: Any = ALL,
    mode: Any = "auto",
    policy: Any = None,
    audit: bool = False,
) -> list[tuple[str, ...]]:
    """Play a program in a session. Return its calls, each with its class and what became of it."""
    wrapped: Runtime = WrappedProgram(
        Launch(argv=["x"]), ScriptedRunner(program), ArbiterLimits(), audit=audit
    )
    async with CodeSDK.open(runtimes={"wrapped": wrapped}, policy=policy) as sdk:
        session = await sdk.create_session(
            runtime="wrapped",
            workspace=folder,
            permission_mode=mode,
            interaction_mode="non_interactive",
            native_tools=native,
        )
        task = await session.start("x")
        events = [event async for event in task.events()]
        await task.result()
    found: dict[str, list[str]] = {}
    for event in events:
        payload: Any = event.payload
        if event.type == "tool.call.requested":
            found[payload.tool_call_id] = [payload.name, payload.tool_class]
        elif event.type in ("tool.call.denied", "tool.call.completed"):
            found[payload.tool_call_id].append(event.type.rpartition(".")[2])
    return [tuple(words) for words in found.values()]


async def test_a_call_has_its_own_name_and_the_class_of_its_action(tmp_path: Path):
    calls = [("a", "read", {}), ("b", "write", {}), ("c", "net", {}), ("d", "exec", {}), ("e", "dance", {})]
    assert await play(tmp_path, asks(*calls)) == [
        ("a", "read_only", "completed"),
        ("b", "write", "denied"),
        ("c", "network", "denied"),
        ("d", "dangerous", "denied"),
        ("e", "dangerous", "denied"),
    ]


async def test_an_action_that_the_session_did_not_enable_is_denied(tmp_path: Path):
    assert await play(tmp_path, asks(("a", "read", {})), native=["write"]) == [("a", "read_only", "denied")]


async def test_rules_see_the_programs_names_and_what_its_arguments_touch(tmp_path: Path):
    rules = [
        Rule(id="keep-out", result="deny", path="secret/**"),
        Rule(id="docs", result="allow", tool="fs.*", path="docs/**"),
        Rule(id="host", result="allow", host="*.example.com"),
        Rule(id="git", result="allow", argv=["git", "status"]),
    ]
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("fs.write", "write", {"path": "docs/a.md"}),
        ("fs.write", "write", {"path": str(tmp_path / "docs" / "b.md")}),
        ("fs.write", "write", {"path": "docs/../secret/key"}),
        ("fs.read", "read", {"path": "secret/key"}),
        ("fs.write", "write", {"path": "docs/a.md", "target": {"file": "/etc/passwd"}}),
        ("get", "net", {"url": "https://api.example.com/x"}),
        ("get", "net", {"url": "https://example.com.evil.org/"}),
        ("sh", "exec", {"command": "git status --short"}),
        ("sh", "exec", {"command": "git push"}),
    ]
    ended = [words[-1] for words in await play(tmp_path, asks(*calls), policy=RulePolicy(rules))]
    assert ended == [
        "completed",
        "completed",
        "denied",
        "denied",
        "denied",
        "completed",
        "denied",
        "completed",
        "denied",
    ]


@pytest.mark.parametrize(
    "args",
    [
        {"paths": [["/etc/x"]]},
        {"paths": ["docs/a", [["docs/b", ["secret/key"]]]]},
        {"path": {"value": "secret/key"}},
        {"path": "docs/a", "more": {"x": {"target": [{"value": "secret/key"}]}}},
        {"paths": ["docs/a"] * 300 + ["secret/key"]},
        {"path": "docs/a", "deep": json.loads("[" * 30 + '{"path": "secret/key"}' + "]" * 30)},
    ],
    ids=["list in a list", "deep lists", "object", "object deep down", "too many", "too deep"],
)
async def test_a_path_that_cannot_be_told_is_allowed_by_no_rule_about_paths(
    tmp_path: Path, args: dict[str, Any]
):
    rules = [Rule(id="all", result="allow", path="docs/**"), Rule(id="no", result="deny")]
    assert (await play(tmp_path, asks(("w", "write", args)), policy=RulePolicy(rules)))[0][-1] == "denied"
    # And one that denies some path applies to it, whatever is allowed otherwise.
    rules = [
        Rule(id="no", result="deny", path=["secret/**", "/etc/**"]),
        Rule(id="all", result="allow", path="**"),
    ]
    assert (await play(tmp_path, asks(("w", "write", args)), policy=RulePolicy(rules)))[0][-1] == "denied"


@pytest.mark.parametrize(
    "args",
    [
        {"command": "git status", "cmd": "rm -rf x"},
        {"command": "git status", "then": {"argv": ["rm"]}},
        {"argv": ["git", "status", ["&&", "rm"]]},
        {"command": "git status 'x"},
        {"inner": {"command": "git status"}},
    ],
)
async def test_a_command_that_cannot_be_told_is_allowed_by_no_rule_about_commands(
    tmp_path: Path, args: dict[str, Any]
):
    rules = [Rule(id="git", result="allow", argv=["git", "status"]), Rule(id="no", result="deny")]
    assert (await play(tmp_path, asks(("sh", "exec", args)), policy=RulePolicy(rules)))[0][-1] == "denied"


async def test_a_program_that_makes_calls_without_end_is_stopped(tmp_path: Path):
    wrapped: Runtime = WrappedProgram(
        Launch(argv=["x"]), ScriptedRunner(asks(*[("poll", "read", {})] * 30)), ArbiterLimits(grace_s=0.01)
    )
    async with CodeSDK.open(runtimes={"wrapped": wrapped}, limits=Limits(max_calls=20)) as sdk:
        session = await sdk.create_session(
            runtime="wrapped",
            workspace=tmp_path,
            permission_mode="auto",
            interaction_mode="non_interactive",
            native_tools=ALL,
        )
        task = await session.start("x")
        with pytest.raises(TaskFailure, match=r"made more than 20 tool calls"):
            await task.result()


async def test_a_program_may_make_the_same_call_as_often_as_it_likes(tmp_path: Path):
    same = [("poll", "read", {})] * 150
    assert len(await play(tmp_path, asks(*same))) == 150


async def test_what_is_only_watched_ends_no_task(tmp_path: Path):
    assert await play(tmp_path, asks(("rm", "exec", {})), mode="ask", audit=True) == [
        ("rm", "dangerous", "completed")
    ]


async def test_a_program_that_ends_badly_is_a_task_that_failed(tmp_path: Path):
    async def program(session: ScriptedSession) -> int:
        return 3

    with pytest.raises(TaskFailure, match="ended with code 3"):
        await play(tmp_path, program)


async def test_a_stop_ends_the_program(tmp_path: Path):
    async def program(session: ScriptedSession) -> int:
        await session.decision("never")
        return 0

    runner = ScriptedRunner(program)
    wrapped = WrappedProgram(Launch(argv=["x"]), runner, ArbiterLimits(grace_s=5))
    async with CodeSDK.open(runtimes={"wrapped": wrapped}) as sdk:
        session = await sdk.create_session(
            runtime="wrapped",
            workspace=tmp_path,
            permission_mode="auto",
            interaction_mode="non_interactive",
            native_tools=ALL,
        )
        task = await session.start("x")
        async for event in task.events():
            if event.type == "model.input":
                await task.stop("enough")
        outcome = await wrapped.outcome
    assert outcome.abort is not None
    assert (outcome.abort.code, outcome.exit_code) == ("user_cancel", 130)
