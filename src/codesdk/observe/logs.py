"""Log records → one line each, JSON or text, without secrets; and events → records for an operator.

`configure_logging` is for whoever owns the process. A program with its own logging uses just a formatter.
"""

import logging
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TextIO

import msgspec

from codesdk.contract import events as ev
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.events import Event
from codesdk.engine import iso
from codesdk.redaction import Redactor

Secrets = Iterable[str] | Callable[[], Iterable[str]]
"""Known values, or a function that returns them: more may become known over time."""

_OWN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
_FIRST = ("session_id", "task_id", "request_id")
_TELLING = frozenset({"violation", "warning", "unknown_frame", "late_event", "untested"})
_fields: ContextVar[dict[str, Any]] = ContextVar("codesdk_log_fields", default={})  # noqa: B039 - never changed in place


@contextmanager
def log_fields(**fields: Any) -> Generator[None]:
    """Add fields such as `request_id` to every record logged inside, by this task and those it starts."""
    token = _fields.set(_fields.get() | fields)
    try:
        yield
    finally:
        _fields.reset(token)


def configure_logging(
    level: str = "info",
    format: Literal["json", "text"] = "json",  # noqa: A002 - the word for it
    stream: TextIO | None = None,
    secrets: Secrets = (),
) -> logging.Handler:
    """Write everything that this process logs to a stream, one line per record. Return the handler.

    Another call replaces the handler of the one before.
    """
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _Handler):
            root.removeHandler(handler)
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(secrets) if format == "json" else TextFormatter(secrets))
    root.addHandler(handler)
    root.setLevel(level.upper())
    return handler


class _Handler(logging.StreamHandler[TextIO]):
    """A class of our own, to tell our handler from those of others."""


class _Formatter(logging.Formatter):
    def __init__(self, secrets: Secrets = ()) -> None:
        super().__init__()
        self._secrets = secrets
        self._redactor = Redactor()

    def _clean(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return a record's fields without secrets, in the order in which they are written."""
        given = _fields.get() | {name: value for name, value in vars(record).items() if name not in _OWN}
        fields: dict[str, Any] = {
            "time": iso(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        fields |= {name: given[name] for name in _FIRST if given.get(name) is not None}
        fields |= {name: value for name, value in given.items() if name not in fields and value is not None}
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        plain = msgspec.to_builtins(fields, enc_hook=repr, str_keys=True)
        return self._known().value(plain)

    def _known(self) -> Redactor:
        # A redactor compiles its secrets, so a new one is made only when they change.
        known = tuple(self._secrets() if callable(self._secrets) else self._secrets)
        if known != self._redactor.secrets:
            self._redactor = Redactor(known)
        return self._redactor


class JsonFormatter(_Formatter):
    """A record as one JSON object: time, level, logger, message, then its other fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        try:
            return msgspec.json.encode(self._clean(record)).decode()
        except (ValueError, TypeError, RecursionError) as error:
            return _unreadable(record, error)


class TextFormatter(_Formatter):
    """A record as one line for people. Characters that could end the line or steer a terminal are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        try:
            fields = self._clean(record)
        except (ValueError, TypeError, RecursionError) as error:
            return _unreadable(record, error)
        head = [str(fields.pop(name)) for name in ("time", "level", "logger", "message")]
        head[1] = f"{head[1]:7}"
        words = [*head, *(f"{name}={value}" for name, value in fields.items())]
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(words))


def _unreadable(record: logging.LogRecord, error: Exception) -> str:
    """Return a line in place of one that cannot be written, without the contents: they were not redacted."""
    problem = f"A record of {record.module}:{record.lineno} could not be written ({type(error).__name__})."
    return msgspec.json.encode({"level": "error", "logger": __name__, "message": problem}).decode()


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - a record whose arguments do not fit is still worth a line
        text = f"{record.msg} (its arguments do not fit)"
    return text.encode("utf-8", "replace").decode()


class LogObserver:
    """An observer that logs what an operator should know: ends of tasks, failures of runtimes and storage."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger("codesdk.sessions")
        self._tell: dict[type[Event], Callable[[Any], None]] = {
            ev.TaskCompletedEvent: self._completed,
            ev.TaskFailedEvent: self._failed,
            ev.TaskStoppedEvent: self._stopped,
            ev.RequestCompletedEvent: self._requested,
            ev.RuntimeNoticeEvent: self._noticed,
        }

    def committed(self, principal: str, events: Sequence[Event]) -> None:
        """Log the events that are worth a line."""
        try:
            for event in events:
                tell = self._tell.get(type(event))
                if tell is not None:
                    tell(event)
        except Exception:  # noqa: BLE001 - an observer must not raise
            self._log.exception("Events could not be logged.")

    def failed(self, principal: str, session_id: str, error: CodeSDKError) -> None:
        """Log that a session's events could not be stored."""
        extra = {"session_id": session_id, "code": error.code}
        self._log.error("Events could not be stored: %s", error.message, extra=extra)

    def _completed(self, event: ev.TaskCompletedEvent) -> None:
        ended = event.payload
        extra = _of(event) | _ending(ended) | {"stop_reason": ended.stop_reason}
        self._log.info("The task is done.", extra=extra)

    def _failed(self, event: ev.TaskFailedEvent) -> None:
        ended = event.payload
        extra = _of(event) | _ending(ended) | {"code": ended.error.code}
        self._log.error("The task failed: %s", ended.error.message, extra=extra)

    def _stopped(self, event: ev.TaskStoppedEvent) -> None:
        ended = event.payload
        extra = _of(event) | _ending(ended) | {"by": ended.by.kind}
        self._log.info("The task was stopped: %s", ended.reason, extra=extra)

    def _requested(self, event: ev.RequestCompletedEvent) -> None:
        done = event.payload
        if done.status != "failed":
            return
        extra = _of(event) | {"model_request_id": done.request_id, "http_status": done.http_status}
        self._log.warning("A model request failed.", extra=extra | {"duration_ms": done.duration_ms})

    def _noticed(self, event: ev.RuntimeNoticeEvent) -> None:
        notice = event.payload
        if notice.kind in _TELLING:
            self._log.warning("%s", notice.message, extra=_of(event) | {"kind": notice.kind})


def _of(event: Event) -> dict[str, Any]:
    trace = event.trace
    found = {"session_id": trace.session_id, "task_id": trace.task_id, "request_id": trace.request_id}
    return found | {"runtime": event.runtime.name, "seq": event.seq}


def _ending(ended: ev.TaskCompleted | ev.TaskFailed | ev.TaskStopped) -> dict[str, Any]:
    usage = ended.usage
    tokens = usage.input + usage.output + usage.cache_read + usage.cache_write + usage.reasoning
    return {"duration_ms": ended.duration_ms, "tokens": tokens, "cost_usd": usage.cost_usd}
