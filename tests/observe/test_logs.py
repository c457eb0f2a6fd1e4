"""Log lines: one a record, JSON or text, with what is known of the session, and without secrets."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.observe.happened import answered, ended, event, said, started

from codesdk import CodeSDK
from codesdk.contract import events as ev
from codesdk.contract.errors import ErrorInfo, StorageFailure
from codesdk.contract.tools import Actor
from codesdk.observe import LogObserver, configure_logging, log_fields
from codesdk.testing.fakes import FakeRuntime, done, message

SECRET = "hunter2-of-the-house"
KEY = "sk-ant-0123456789abcdefghij"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    level, before = root.level, list(root.handlers)
    yield io.StringIO()
    root.setLevel(level)
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


def test_a_record_is_one_json_object(stream: io.StringIO):
    configure_logging("info", "json", stream)
    record = logging.makeLogRecord(
        {"name": "codesdk.x", "levelno": 20, "levelname": "INFO", "msg": "Two\nlines %d", "args": (7,)}
    )
    record.created = 1_800_000_000.5
    record.session_id, record.size, record.task_id = "ses_1", 3, None
    logging.getLogger("codesdk.x").handle(record)
    assert lines(stream) == [
        {
            "time": "2027-01-15T08:00:00.500Z",
            "level": "info",
            "logger": "codesdk.x",
            "message": "Two\nlines 7",
            "session_id": "ses_1",
            "size": 3,
        }
    ]


def test_text_is_one_line_that_cannot_steer_a_terminal(stream: io.StringIO):
    configure_logging("info", "text", stream)
    logging.getLogger("codesdk.x").warning("a\nb\x1b[31m", extra={"session_id": "ses_1"})
    (line,) = stream.getvalue().split("\n")[:-1]
    assert line[24:] == " warning codesdk.x a\\nb\\x1b[31m session_id=ses_1"


def test_fields_go_on_everything_that_is_logged_inside(stream: io.StringIO):
    configure_logging("info", "json", stream)
    log = logging.getLogger("codesdk.x")
    with log_fields(request_id="req_1"), log_fields(session_id="ses_1"):
        log.info("in", extra={"task_id": "task_1"})
    log.info("out")
    inside, outside = lines(stream)
    assert list(inside)[4:] == ["session_id", "task_id", "request_id"]
    assert list(outside) == ["time", "level", "logger", "message"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_secret_gets_into_a_line_by_any_way(stream: io.StringIO, form: Any):
    known = [SECRET]
    handler = configure_logging("debug", form, stream, secrets=lambda: known)
    log = logging.getLogger("codesdk.x")
    log.info("%s and %s", SECRET, KEY)
    handler.handle(logging.makeLogRecord({"msg": "%d", "args": (SECRET,)}))
    handler.handle(logging.makeLogRecord({"msg": f"{SECRET} %d %d", "args": (1,)}))
    log.info({"password": SECRET, KEY: 1})
    log.info("extra", extra={"given": [SECRET, {"deep": KEY}], SECRET: "name", "object": Exception(SECRET)})
    with log_fields(request_id=SECRET):
        log.info("field")
    try:
        raise ValueError(f"{SECRET} {KEY}")
    except ValueError:
        log.exception("failed", stack_info=True)
    known.append("learned-later")
    log.info("learned-later")
    text = stream.getvalue()
    assert len(text.split("\n")[:-1]) == 8
    assert SECRET not in text
    assert KEY not in text
    assert "learned-later" not in text
    assert text.count("[redacted]") >= 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "depth", [800, 5_000, 100_000]
)  # how deep is too deep depends on the Python and on the reader
def test_what_cannot_be_written_leaves_a_line_that_says_so(stream: io.StringIO, depth: int):
    handler = configure_logging("info", "json", stream)
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    handler.handle(logging.makeLogRecord({"msg": "deep", "deep": deep}))
    handler.handle(logging.makeLogRecord({"msg": "odd \udce4 text", "set": {1}}))
    first, second = lines(stream)
    assert "could not be written (" in first["message"]
    assert (second["message"], second["set"]) == ("odd ? text", [1])


def test_configuring_again_replaces_what_was_there_and_nothing_else(stream: io.StringIO):
    foreign = logging.NullHandler()
    logging.getLogger().addHandler(foreign)
    configure_logging("info", "json", io.StringIO())
    configure_logging("error", "json", stream)
    log = logging.getLogger("codesdk.x")
    log.warning("not this")
    log.error("this")
    assert [line["message"] for line in lines(stream)] == ["this"]
    assert foreign in logging.getLogger().handlers


def test_an_operator_reads_how_tasks_end_and_what_goes_wrong(stream: io.StringIO):
    configure_logging("info", "json", stream)
    failure = ev.TaskFailed(
        error=ErrorInfo(code="RATE_LIMITED", message="Too many requests.", retryable=True),
        usage=ev.UsageTotals(),
        duration_ms=5,
    )
    stop = ev.TaskStopped(reason="enough", by=Actor(kind="user"), usage=ev.UsageTotals(), duration_ms=6)
    notice = ev.RuntimeNotice(kind="violation", message="It said something else.", details={"a": 1})
    quiet = ev.RuntimeNotice(kind="hidden_request", message="It asked for a title.", details={})
    observer = LogObserver()
    observer.committed(
        "ann",
        [
            event(0, started()),
            event(1, said()),
            event(2, answered("req_1")),
            event(3, answered("req_2", status="failed", http_status=429)),
            event(4, notice),
            event(4, quiet),
            event(5, failure),
            event(6, stop),
            event(7, ended()),
        ],
    )
    observer.failed("ann", "ses_1", StorageFailure("The disk is full."))
    own = {"session_id": "ses_1", "task_id": "task_1", "runtime": "codex-sdk", "seq": 1}
    base = {"logger": "codesdk.sessions"}
    found = [{name: value for name, value in line.items() if name != "time"} for line in lines(stream)]
    assert found == [
        {
            **base,
            **own,
            "level": "warning",
            "message": "A model request failed.",
            "model_request_id": "req_2",
            "http_status": 429,
            "duration_ms": 100,
        },
        {**base, **own, "level": "warning", "message": "It said something else.", "kind": "violation"},
        {
            **base,
            **own,
            "level": "error",
            "message": "The task failed: Too many requests.",
            "code": "RATE_LIMITED",
            "duration_ms": 5,
            "tokens": 0,
        },
        {
            **base,
            **own,
            "level": "info",
            "message": "The task was stopped: enough",
            "by": "user",
            "duration_ms": 6,
            "tokens": 0,
        },
        {
            **base,
            **own,
            "level": "info",
            "message": "The task is done.",
            "stop_reason": "end_turn",
            "duration_ms": 900,
            "tokens": 146,
            "cost_usd": 0.5,
        },
        {
            **base,
            "level": "error",
            "message": "Events could not be stored: The disk is full.",
            "session_id": "ses_1",
            "code": "STORAGE_FAILED",
        },
    ]


async def test_a_program_that_embeds_an_engine_gets_a_line_a_task(stream: io.StringIO, tmp_path: Any):
    configure_logging("info", "json", stream)
    runtime = FakeRuntime([message("Hello."), done()])
    async with CodeSDK.open(runtimes={"fake": runtime}, observers=[LogObserver()]) as sdk:
        session = await sdk.create_session(runtime="fake", workspace=tmp_path)
        task = await session.start("Hi")
        await task.result()
    (line,) = [line for line in lines(stream) if line["logger"] == "codesdk.sessions"]
    assert (line["message"], line["session_id"], line["task_id"]) == (
        "The task is done.",
        session.id,
        task.id,
    )
