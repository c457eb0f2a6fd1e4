"""An HTTP request → a `Call` → the answer, or a problem. Raw ASGI, under uvicorn.

Checked in this order: host and origin, the route, the caller, its rate, its scope, the query, the body. A
request that is not let in has no effect and learns nothing.
"""

import errno
import functools
import logging
import secrets
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote

import msgspec

from codesdk.contract.actions import Action, Caller, TokenScope
from codesdk.contract.errors import Busy, CodeSDKError, Forbidden, InvalidRequest
from codesdk.contract.ids import is_id
from codesdk.contract.json_values import MOST_VALUES, has_too_many_values
from codesdk.contract.sender import is_client_id, is_request_id, traceparent_of
from codesdk.contract.validation import check_key, explain
from codesdk.daemon.auth import Admitted, Guard, admit
from codesdk.daemon.limits import RateLimit, check_work
from codesdk.daemon.operations import accounts, actions, artifacts, audit, daemon, extensions, reading
from codesdk.daemon.operations.operation import Answer, Call, Operation, get
from codesdk.daemon.problems import no_route, render, shutting_down, slow_down, too_large, wrong_type
from codesdk.daemon.responses import Whole
from codesdk.daemon.routing import Router
from codesdk.daemon.settings import DaemonSettings
from codesdk.daemon.sockets import Entrance, Upgrade, refuse, watch
from codesdk.observe import Metrics, log_fields
from codesdk.sdk import CodeSDK
from codesdk.serving import Gone, Message, Receive, Respond, Send, read_body

_log = logging.getLogger(__name__)

JSON = (b"content-type", b"application/json")
_ALWAYS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_NOBODY = admit("", ())  # who calls what needs no scope: owns nothing, may nothing
_LENGTH_DIGITS = 18
_REFUSALS = (401, 403, 421)
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_SINGLE = frozenset(
    (
        b"host",
        b"authorization",
        b"content-type",
        b"content-length",
        b"origin",
        b"sec-fetch-site",
        b"idempotency-key",
        b"last-event-id",
        b"range",
        b"traceparent",
        b"x-client-id",
        b"x-request-id",
    )
)
"""Headers that decide something. Given twice, they could mean one thing to a proxy and another to us."""


async def openapi(call: Call) -> Whole:
    """This document."""
    from codesdk.daemon.openapi import describe

    return Whole(200, msgspec.json.encode(describe(OPERATIONS)), (JSON,))


OPERATIONS: Sequence[Operation] = (
    *daemon.OPERATIONS,
    *accounts.OPERATIONS,
    *reading.OPERATIONS,
    *actions.OPERATIONS,
    *artifacts.OPERATIONS,
    *audit.OPERATIONS,
    *extensions.OPERATIONS,
    get("/openapi.json", openapi, scope=None, answer=dict, group="daemon"),
)


class App:
    """The daemon's HTTP application."""

    def __init__(
        self,
        sdk: CodeSDK,
        guard: Guard,
        settings: DaemonSettings,
        metrics: Metrics,
        upgrades: Mapping[str, Upgrade] | None = None,
    ) -> None:
        self.draining = False
        self._upgrades = upgrades or {}
        self._sdk = sdk
        self._guard = guard
        self._settings = settings
        self._metrics = metrics
        self._router = Router(OPERATIONS)
        self._rate = RateLimit(settings.requests_per_s, settings.request_burst)
        # Even a rate below one task a minute must let the first one through.
        per_minute = settings.tasks_per_minute
        self._tasks = RateLimit(per_minute and per_minute / 60, max(1, int(per_minute or 1)))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await self._upgrade(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        seen = RequestRecord(scope["method"], f"req_{secrets.token_hex(8)}")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
                known = {name for name, _ in message["headers"]}
                extra = [pair for pair in _ALWAYS if pair[0] not in known]
                message["headers"] = [
                    *message["headers"],
                    *extra,
                    (b"x-request-id", seen.request_id.encode()),
                ]
            await send(message)

        try:
            respond = await self._respond(scope, headers, receive, seen)
            await respond(scope, receive, sending)
        except Gone:
            return
        except Exception as error:
            if seen.status:
                raise  # the server cuts the connection, so that the client does not take this for the end
            problem = error if isinstance(error, CodeSDKError) else _bug(error, seen.request_id)
            seen.code = problem.code
            self._clean(problem, seen)
            status, more, body = render(problem, seen.request_id, draining=self.draining)
            await Whole(status, body, more)(scope, receive, sending)
        finally:
            self._record(seen)

    def _record(self, seen: "RequestRecord") -> None:
        """Put a request into the audit if it changes something, exports something or is refused."""
        audit = self._sdk.audit
        if audit is None or not (seen.method != "GET" or seen.exports or seen.status in _REFUSALS):
            return
        audit.request(
            method=seen.method,
            route=seen.route,
            status=seen.status,
            principal=seen.principal,
            client_id=seen.client_id,
            request_id=seen.request_id,
            session_id=seen.session_id,
            code=seen.code,
        )

    async def _respond(
        self, scope: Message, headers: dict[bytes, bytes], receive: Receive, seen: "RequestRecord"
    ) -> Respond:
        _refuse_doubles(scope["headers"])
        self._guard.check_origin(headers)
        path = scope["raw_path"].decode("latin-1").partition("?")[0]
        operation, names = self._router.find(scope["method"], path)
        seen.route, seen.exports = operation.path, operation.exports
        if is_id("ses", names.get("session_id", "")):  # anything else may be a secret, and is not recorded
            seen.session_id = names["session_id"]
        caller = self._let_in(operation.scope, headers, seen)
        call = Call(
            operation=operation,
            request_id=seen.request_id,
            sdk=self._sdk.as_caller(self._sender(caller, headers, seen)),
            caller=caller,
            guard=self._guard,
            settings=self._settings,
            metrics=self._metrics,
            headers=headers,
            path=names,
            query=_query(operation, scope["query_string"]),
            body=await self._body(operation, headers, receive),
            key=_key(operation, headers),
            tasks=self._tasks,
            draining=self.draining,
        )
        try:
            with log_fields(request_id=seen.request_id):
                return _response(operation, await operation.run(call))
        except CodeSDKError as error:
            self._clean(error, seen, call)
            raise

    async def _upgrade(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let a WebSocket in by the same checks, and hand it to whoever serves its path."""
        await receive()  # the request to connect, which has nothing that the scope has not
        headers: dict[bytes, bytes] = dict(scope["headers"])
        seen = RequestRecord("GET", f"req_{secrets.token_hex(8)}")
        try:
            _refuse_doubles(scope["headers"])
            self._guard.check_origin(headers)
            path = scope["raw_path"].decode("latin-1")
            upgrade = self._upgrades.get(path)
            if upgrade is None:
                raise no_route()
            seen.route = path
            admitted = self._let_in("read", headers, seen)
            if self.draining:
                raise shutting_down()
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=50)
            before = functools.partial(self._before, admitted)
            seen.status = 101
            await watch(
                functools.partial(upgrade, Entrance(self._sdk, admitted.caller, before, query)),
                receive,
                send,
                welcome=lambda: self._guard.still(admitted),
                pace=lambda: self._rate.take(admitted.principal),
                heartbeat_s=self._settings.heartbeat_s,
            )
        except (CodeSDKError, ValueError) as error:  # whoever serves it raises only before it accepts
            problem = error if isinstance(error, CodeSDKError) else InvalidRequest(f"Invalid query: {error}.")
            self._clean(problem, seen)
            seen.code = problem.code
            seen.status, more, body = render(problem, seen.request_id, draining=self.draining)
            await refuse(send, seen.status, more, body)
        finally:
            self._record(seen)

    async def _before(self, admitted: Admitted, action: Action[Any]) -> None:
        """Refuse an action that comes over a WebSocket as its request would be refused."""
        service = self._sdk.as_caller(admitted.caller).service
        await check_work(action, admitted.principal, service, self._tasks, draining=self.draining)

    def _let_in(
        self, needed: TokenScope | None, headers: dict[bytes, bytes], seen: "RequestRecord"
    ) -> Admitted:
        if needed is None:
            return _NOBODY
        caller = self._guard.caller(headers)
        seen.principal, seen.client_id = caller.principal, caller.caller.client_id
        wanted = headers.get(b"x-request-id", b"").decode("latin-1")
        if is_request_id(wanted) and self._sdk.engine.clean(wanted, caller.principal) == wanted:
            seen.request_id = wanted  # it is stored, so it is first checked for secrets of this caller
        # Before the scope is checked: requests that will be refused count, too.
        wait_s = self._rate.take(caller.principal)
        if wait_s:
            raise slow_down(wait_s)
        if not caller.may(needed):
            raise Forbidden(f"This needs a token with the scope {needed}.")
        return caller

    def _sender(self, admitted: Admitted, headers: dict[bytes, bytes], seen: "RequestRecord") -> Caller:
        """Return the caller with what its request says of itself, for the events that it brings about."""
        span = traceparent_of(headers.get(b"traceparent", b"").decode("latin-1"))
        caller = self._named(admitted.caller, headers)
        seen.client_id = caller.client_id
        return msgspec.structs.replace(caller, request_id=seen.request_id, traceparent=span)

    def _named(self, caller: Caller, headers: dict[bytes, bytes]) -> Caller:
        """Return a caller with the name that it gives itself, after the label of its token if it has one."""
        given = unquote(headers.get(b"x-client-id", b"").decode("latin-1"), errors="replace")
        if not is_client_id(given) or self._sdk.engine.clean(given, caller.principal) != given:
            return caller
        return caller.called(given)

    def _clean(self, error: CodeSDKError, seen: "RequestRecord", call: Call | None = None) -> None:
        """Take secrets out of an error: it may repeat what it was given."""
        given = getattr(call.body, "secrets", ()) if call is not None else ()
        said: dict[str, Any] = {"message": error.message, "details": error.details}
        with suppress(InvalidRequest):  # a secret that is not valid: that is what the error is about
            said = self._sdk.engine.clean(said, seen.principal or None, given)
        error.message, error.details = said["message"], said["details"]

    async def _body(self, operation: Operation, headers: dict[bytes, bytes], receive: Receive) -> Any:
        if operation.body is None:
            return None
        if operation.body == "bytes":
            return await _read(headers, receive, self._sdk.engine.ports.limits.max_artifact_bytes)
        data = await _read(headers, receive, self._settings.max_body_bytes)
        if not data and b"content-type" not in headers:
            data = b"{}"  # no body at all is fine where every field has a default
        elif headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            raise wrong_type("application/json")
        if has_too_many_values(data):
            raise InvalidRequest(f"A request body may hold {MOST_VALUES:,} values.")
        try:
            return msgspec.json.decode(data, type=operation.body)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"Invalid request body: {explain(error, operation.body)}.") from None
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"Invalid request body: {error}.") from None


class RequestRecord(msgspec.Struct):
    """What the audit records of a request, once it is answered."""

    method: str
    request_id: str
    route: str = ""
    principal: str = ""
    client_id: str | None = None
    session_id: str | None = None
    status: int = 0
    code: str | None = None
    exports: bool = False


async def _read(headers: dict[bytes, bytes], receive: Receive, limit: int) -> bytes:
    # Refuse an announced length before reading anything; `read_body` counts what announces none, or less.
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and (len(announced) > _LENGTH_DIGITS or int(announced) > limit):
        raise too_large(limit)
    body = await read_body(receive, limit)
    if body is None:
        raise too_large(limit)
    return body


def _refuse_doubles(headers: Iterable[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen:
            raise InvalidRequest(f"The header {name.decode()} is given twice. Send it once.")
        if name in _SINGLE:
            seen.add(name)


def _query(operation: Operation, given: bytes) -> Any:
    try:
        pairs = parse_qsl(given.decode(), keep_blank_values=True, errors="strict", max_num_fields=50)
        values = dict(pairs)
        if len(values) != len(pairs):
            raise InvalidRequest("A parameter in the query is given twice. Send it once.")
        found = msgspec.convert(values, type=operation.query, strict=False)
        # The text `null` is read as nothing at all, and so as no filter.
        if unsaid := [name for name in values if getattr(found, name) is None]:
            raise InvalidRequest(f"Invalid query: {unsaid[0]}: null is not a value. Leave the parameter out.")
        return found
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Invalid query: {explain(error, operation.query)}.") from None
    except ValueError as error:
        raise InvalidRequest(f"Invalid query: {error}.") from None


def _key(operation: Operation, headers: dict[bytes, bytes]) -> str | None:
    given = headers.get(b"idempotency-key")
    if given is None or operation.method == "GET":
        return None
    key = given.decode("latin-1")
    check_key(key)
    return key


def _response(operation: Operation, answer: Answer) -> Respond:
    if answer is None:
        return Whole(operation.status, b"")
    if isinstance(answer, msgspec.Struct):
        return Whole(operation.status, msgspec.json.encode(answer), (JSON,))
    return answer


def _is_scarcity(error: Exception) -> bool:
    """Return whether the process was refused memory, a thread or a descriptor."""
    if isinstance(error, RuntimeError):  # Python has no type of its own for this
        return str(error) == "can't start new thread"
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SCARCE)


def _bug(error: Exception, request_id: str) -> CodeSDKError:
    """Log a bug of ours without its message and values, which may hold secrets. A lack of something is none."""
    if _is_scarcity(error):
        _log.warning("Request %s is refused: %s.", request_id, type(error).__name__)
        return Busy("The daemon has run out of memory, threads or descriptors. Try again later.")
    place = "".join(traceback.format_tb(error.__traceback__))
    _log.error("Request %s failed with %s:\n%s", request_id, type(error).__name__, place)
    return CodeSDKError(f"The daemon failed to handle this request ({type(error).__name__}). See its log.")
