"""JSON-RPC 2.0 in both directions over a channel: requests in → handlers, requests out → their answers.

The library's own connection drops a line that it cannot read, ends at one that is no object, and cannot take back
a request. An editor must get an error for each of these, and its question must end when somebody else has
answered it. So this is ours; the library has the types of the protocol.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeGuard, cast

import msgspec
from acp.exceptions import RequestError
from pydantic import BaseModel, ValidationError

from codesdk.acp_agent.channel import Channel, TooLong
from codesdk.acp_agent.errors import error_of
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.json_values import has_too_many_values

_log = logging.getLogger(__name__)

CANCEL = "$/cancel_request"
CANCELLED = -32800
MAX_REQUESTS = 64
"""How many requests of an editor may be worked on at once; one more is refused."""

Id = str | int
Params = BaseModel | Mapping[str, Any]


class Reply(NamedTuple):
    """A result, and what to do once it has been sent: an editor must know a session before it hears of it."""

    result: Params
    then: Callable[[], None] | None = None


class Route(NamedTuple):
    """What a method takes, and who answers it."""

    model: type[BaseModel]
    handle: Callable[[Any], Awaitable[Reply | None]]


class Peer:
    """One connection to an editor. `requests` and `notifications` say what it may ask for."""

    def __init__(
        self, channel: Channel, requests: Mapping[str, Route], notifications: Mapping[str, Route]
    ) -> None:
        self._channel = channel
        self._requests = requests
        self._notifications = notifications
        self._running: dict[Id, asyncio.Task[None]] = {}
        self._told: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._writing = asyncio.Lock()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the editor is gone."""
        return self._closed

    async def run(self) -> None:
        """Answer until the editor hangs up. Must not raise for what it sends."""
        try:
            while not self._closed:
                try:
                    data = await self._channel.receive()
                except TooLong:
                    await self._refuse(
                        None, RequestError(-32600, "The message is too long, and was dropped.")
                    )
                    continue
                if data is None:
                    return
                await self._take(data)
        except ConnectionError:
            return
        finally:
            await self._close()

    async def request(self, method: str, params: Params) -> Any:
        """Ask the editor and return its result. Raise `RequestError` for its error, `ConnectionError` if it is gone.

        If this is cancelled, the editor is told that nobody waits for the answer any more.
        """
        if self._closed:
            raise ConnectionResetError("The editor is gone.")
        number = self._next_id
        self._next_id += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": _plain(params)})
            return await answer
        except asyncio.CancelledError:
            if not self._closed:
                await self.notify(CANCEL, {"requestId": number})
            raise
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str, params: Params) -> None:
        """Tell the editor something. Raise `ConnectionError` if it is gone."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": _plain(params)})

    async def _take(self, data: bytes) -> None:
        if has_too_many_values(data):
            await self._refuse(None, RequestError(-32600, "The message holds too many values."))
            return
        try:
            message: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            await self._refuse(None, RequestError(-32700, "The message is not JSON."))
            return
        if not isinstance(message, dict):
            what = (
                "Batches are not supported." if isinstance(message, list) else "A message is a JSON object."
            )
            await self._refuse(None, RequestError(-32600, what))
            return
        await self._dispatch(cast("dict[str, Any]", message))

    async def _dispatch(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if method is None and ("result" in message or "error" in message):
            self._answered(message)
        elif not isinstance(method, str):
            known = number if _is_id(number) else None
            await self._refuse(known, RequestError(-32600, "A request has a method, which is a text."))
        elif "id" not in message:
            self._notified(method, message.get("params"))
        elif not _is_id(number):
            await self._refuse(None, RequestError(-32600, "The id of a request is a text or a whole number."))
        elif number in self._running:
            await self._refuse(
                number, RequestError(-32600, "This id belongs to a request that is still open.")
            )
        elif len(self._running) >= MAX_REQUESTS:
            await self._refuse(number, RequestError(-32600, f"{MAX_REQUESTS} requests are open already."))
        else:
            work = self._work(number, method, message.get("params"))
            self._running[number] = asyncio.create_task(work)

    def _answered(self, message: dict[str, Any]) -> None:
        """Take the answer to a request of ours. One that nobody waits for is dropped: its question is settled."""
        number = message.get("id")
        waiting = self._waiting.pop(number, None) if isinstance(number, int) else None
        if waiting is None or waiting.done():
            return
        if "result" in message:
            waiting.set_result(message["result"])
            return
        given: Any = message["error"]
        error = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        code, text = error.get("code"), error.get("message")
        waiting.set_exception(
            RequestError(
                code if isinstance(code, int) else -32603, text if isinstance(text, str) else "Error"
            )
        )

    def _notified(self, method: str, params: Any) -> None:
        if method == CANCEL:
            number: Any = (
                cast("dict[str, Any]", params).get("requestId") if isinstance(params, dict) else None
            )
            if _is_id(number) and number in self._running:
                self._running[number].cancel()
            return
        route = self._notifications.get(method)
        if route is None or len(self._told) >= MAX_REQUESTS:
            return  # nobody can be told: a notification has no answer
        # In an asyncio task, like requests, so that it begins after all that came before it, and holds up nothing.
        task = asyncio.create_task(self._tell(method, route, params))
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    async def _tell(self, method: str, route: Route, params: Any) -> None:
        try:
            await route.handle(route.model.model_validate(params if params is not None else {}))
        except (ValidationError, RequestError, CodeSDKError) as error:
            _log.warning("The editor's %s failed: %s", method[:80], _brief(error))

    async def _work(self, number: Id, method: str, params: Any) -> None:
        """See one request through to its answer."""
        then: Callable[[], None] | None = None
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        try:
            reply = await self._result(method, params)
            answer["result"] = _plain(reply.result)
            then = reply.then
        except asyncio.CancelledError:
            if self._closed:
                raise
            answer["error"] = {"code": CANCELLED, "message": "The request was cancelled."}
        except RequestError as error:
            answer["error"] = _wire_error(error)
        except CodeSDKError as error:
            answer["error"] = _wire_error(error_of(error))
        except ConnectionError:
            return
        except Exception as error:  # noqa: BLE001 - a bug of ours: the editor is told, and goes on
            _log.exception("A request of the editor failed: %s", method[:80])
            answer["error"] = {"code": -32603, "message": f"CodeSDK failed ({type(error).__name__})."}
        finally:
            self._running.pop(number, None)
        try:
            await self._send(answer)
        except ConnectionError:
            return
        if then is not None:
            then()

    async def _result(self, method: str, params: Any) -> Reply:
        route = self._requests.get(method)
        if route is None:
            raise RequestError(-32601, f"There is no method {method[:80]!r}.")
        try:
            request = route.model.model_validate(params if params is not None else {})
        except ValidationError as error:
            raise RequestError(-32602, f"Invalid params: {_brief(error)}") from None
        return await route.handle(request) or Reply({})

    async def _refuse(self, number: Id | None, error: RequestError) -> None:
        await self._send({"jsonrpc": "2.0", "id": number, "error": _wire_error(error)})

    async def _send(self, message: Mapping[str, Any]) -> None:
        data = msgspec.json.encode(message)
        async with self._writing:
            await self._channel.send(data)

    async def _close(self) -> None:
        """End what was being done for the editor. What it started goes on without it."""
        self._closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("The editor is gone."))
        running = [*self._running.values(), *self._told]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


def _is_id(value: Any) -> TypeGuard[Id]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _plain(params: Params) -> Any:
    if isinstance(params, BaseModel):
        return msgspec.Raw(params.model_dump_json(by_alias=True, exclude_none=True).encode())
    return params


def _brief(error: Exception) -> str:
    """Return what is wrong, and where, without what was given: it may be long or a secret."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where or 'params'}: {first['msg']}."


def _wire_error(error: RequestError) -> dict[str, Any]:
    found: dict[str, Any] = {"code": error.code, "message": str(error)}
    return found if error.data is None else found | {"data": error.data}
