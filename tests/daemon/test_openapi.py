"""The API against its own description: requests made from it, good and bad, one after the other.

What schemathesis checks of each answer: no server error, a status and a media type that are described, a body of the
described shape, bad requests refused, nothing of a deleted session left, methods that are not described refused.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import GenerationMode
from tests.daemon.rig import HELLO, Daemon, daemon

from codesdk.daemon.app import OPERATIONS
from codesdk.daemon.openapi import describe

SAME_EVERY_TIME = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    print_blob=False,
)
CONFIG = {"checks": {"positive_data_acceptance": {"enabled": False}}}
"""Not all that a request needs can be said in a schema: a workspace must be there, a script must make sense."""

IN_THE_MIDDLE = {
    "approveCall",
    "denyCall",
    "answerQuestion",
    "revokeGrant",
    "moveSession",
    "resumeSession",
    "steerTask",
    "stopTask",
}
ACCOUNTS = {"addKey", "removeKey", "beginLogin", "readLogin", "answerLogin", "cancelLogin"}
"""Need a key that could be one, or a login that is switched on: tests/daemon/test_provider_keys.py."""
SWITCHED_OFF = {
    "listExtensions",
    "reloadExtensions",
    "getJob",
    "cancelJob",
    "retryJob",
    "requestSuggestions",
    "answerSuggestRequest",
}
NEEDS_MORE_THAN_LUCK = {*IN_THE_MIDDLE, *ACCOUNTS, *SWITCHED_OFF, "compactSession", "undoChanges", "openapi"}
"""Succeed only in the middle of something or where the operator wants them, or (the description itself) are not tried:
they have tests of their own."""


class Explorer:
    """A daemon, its description, and the ids of what was made so far: requests name these more often than not."""

    def __init__(self, running: Daemon) -> None:
        self.running = running
        self.document: Any = schemathesis.openapi.from_url(
            f"{running.url}/openapi.json", config=schemathesis.Config.from_dict(CONFIG)
        )
        self.made: dict[str, list[str]] = defaultdict(list, runtime=["scripted"])
        self.succeeded: set[str] = set()

    def prepare(self, case: Any) -> None:
        """Let a request that should be good be good, and ask for no stream: it would not end."""
        if isinstance(case.query, dict) and case.query.get("stream") == "sse":
            case.query["stream"] = "page"
        if not is_good(case):
            return
        if not self.made["session_id"]:
            self.made["session_id"].append(self.running.session())
        for name, value in (case.path_parameters or {}).items():
            if self.made[name] and value not in self.made[name] and len(str(value)) % 8:
                case.path_parameters[name] = self.made[name][-1]
        if name_of(case) == "createSession":
            self._make_possible(case.body)
        if name_of(case) == "collectGarbage" and isinstance(case.body, dict):  # none at all removes nothing
            case.body["dry_run"] = True

    def _make_possible(self, body: Any) -> None:
        body |= {"runtime": "scripted", "workspace": str(self.running.data_dir.parent), "native_tools": "off"}
        body["settings"] = {"runtime_config": {"script": HELLO}}
        body["permission_mode"] = "ask"
        for name in ("script", "secrets", "mcp_servers"):
            body.pop(name, None)

    def learn(self, case: Any, answer: Any) -> None:
        """Remember what was made."""
        name = name_of(case)
        if not 200 <= answer.status_code < 300:
            return
        self.succeeded.add(name)
        if name in ("deleteSession", "closeSession"):
            self.made["session_id"].remove(case.path_parameters["session_id"])
        elif case.method == "POST" and answer.content:
            body = answer.json()
            made = (
                "artifact_id"
                if name == "uploadArtifact"
                else "task_id"
                if "task_id" in body
                else "session_id"
            )
            if made in body and body[made] not in self.made[made]:
                self.made[made].append(body[made])


def name_of(case: Any) -> str:
    return case.operation.definition.raw["operationId"]


def is_good(case: Any) -> bool:
    return case.meta is None or case.meta.generation.mode.is_positive


def can_be_bad(raw: Any) -> bool:
    """Return whether a request can break the description at all: any text is a name in a path."""
    return "requestBody" in raw or any(parameter["in"] != "path" for parameter in raw.get("parameters", ()))


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    data_dir = tmp_path_factory.mktemp("openapi") / "data"
    with daemon(data_dir, "--runtimes", "scripted", "--requests-per-second", "none") as running:
        yield Explorer(running)


def test_the_description_is_that_of_the_table(explorer: Explorer):
    assert explorer.running.get("/openapi.json") == describe(OPERATIONS)


def test_what_is_made_can_be_used_as_the_description_says(explorer: Explorer):
    class Walk(explorer.document.as_state_machine()):
        def before_call(self, case: Any) -> None:
            explorer.prepare(case)

        def after_call(self, response: Any, case: Any) -> None:
            explorer.learn(case, response)

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"timeout": 60}

        def validate_response(self, response: Any, case: Any, *given: Any, **named: Any) -> None:
            try:
                super().validate_response(response, case, *given, **named)
            except BaseException as error:
                broken.append(error)
                raise

    broken: list[BaseException] = []
    # What a step can be depends on what the daemon answered, and that on what runs there: hypothesis may find that a walk
    # with the same beginning goes on in another way, and gives up. That is no fault of the daemon's.
    with contextlib.suppress(FlakyStrategyDefinition):
        run_state_machine_as_test(
            Walk, settings=settings(SAME_EVERY_TIME, max_examples=12, stateful_step_count=8)
        )
    assert broken == []
    _try_all(explorer, GenerationMode.POSITIVE, max_examples=6)
    names = {operation.name for operation in OPERATIONS}
    assert explorer.succeeded | NEEDS_MORE_THAN_LUCK == names


def test_what_breaks_the_description_is_refused(explorer: Explorer):
    _try_all(explorer, GenerationMode.NEGATIVE, max_examples=5)
    assert explorer.running.http.get("/v1/ready").status_code == 200


def _try_all(explorer: Explorer, mode: GenerationMode, max_examples: int) -> None:
    for found in explorer.document.get_all_operations():
        operation = found.ok()
        if mode.is_negative and not can_be_bad(operation.definition.raw):
            continue

        @settings(SAME_EVERY_TIME, max_examples=max_examples)
        @given(case=operation.as_strategy(generation_mode=mode))
        def attempt(case: Any) -> None:
            explorer.prepare(case)
            explorer.learn(case, case.call_and_validate(timeout=60))

        attempt()
