"""The HTTP interface of opencode 1.x: each route that is used, as a method, and the event stream as frames.

The only module that knows routes, so that the one for 2.x can stand beside it. Nothing here reads `/config`, `/provider`
or `/config/providers`: they tell keys. Every request carries the password, since every route asks for it.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import msgspec

from codesdk import tls
from codesdk.contract.json_values import MOST_VALUES, has_too_many_values
from codesdk.redaction import MARKER
from codesdk.runtimes.program.framing import MAX_LINE_BYTES, LineSplitter, TooLong
from codesdk.runtimes.program.jsonrpc import Frame, Garbage, as_dict, as_list

USER = "opencode"
ANSWER_S = 30.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_CONNECT_S = 5.0
_SHOWN = 200
_DATA = b"data:"


class Unreachable(Exception):
    """The server does not answer, or hung up."""


class Refused(Exception):
    """The server answered with an error, or with what is no answer."""

    def __init__(self, what: str, status: int, body: Any) -> None:
        error = as_dict(body)
        told = as_dict(error.get("data")).get("message") or error.get("message") or error.get("name") or body
        self.status = status
        self.body = error
        self.message = str(told)[:1_000]
        super().__init__(f"{what}: {status} {self.message}")


class WireV1:
    """The routes of one server."""

    MAJOR = "1."
    """How the versions begin that have them."""

    def __init__(self, url: str, password: str, secrets: Sequence[str] = ()) -> None:
        """Connect to nothing yet. `secrets` are taken out of all that comes back: errors tell addresses."""
        self._secrets = [secret.encode() for secret in (password, *secrets)]
        self._client = httpx2.AsyncClient(
            base_url=url,
            auth=(USER, password),
            headers={"accept-encoding": "identity"},
            timeout=httpx2.Timeout(ANSWER_S, connect=_CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=4),
            follow_redirects=False,
            trust_env=False,
            verify=tls.trusting_nobody(),  # it is on this machine, in plain HTTP
        )

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()

    async def version(self) -> str:
        """Return the version of the program."""
        return str(as_dict(await self._ask("GET", "/global/health")).get("version"))

    async def agents(self) -> dict[str, Frame]:
        """Return the agents that it knows, by name. It has read its configuration then."""
        listed = [as_dict(agent) for agent in as_list(await self._ask("GET", "/agent"))]
        return {str(agent.get("name")): agent for agent in listed}

    async def tool_servers(self) -> dict[str, Frame]:
        """Return the MCP servers that it has, by name, with the state of the connection to each."""
        return {name: as_dict(state) for name, state in as_dict(await self._ask("GET", "/mcp")).items()}

    async def create_session(self, title: str) -> str:
        """Begin a session. With a title it does not ask a model for one."""
        return str(as_dict(await self._ask("POST", "/session", {"title": title})).get("id"))

    async def messages(self, session_id: str) -> list[Frame] | None:
        """Return what it has of a session, or None if it has none of that name."""
        try:
            return [
                as_dict(each) for each in as_list(await self._ask("GET", f"/session/{session_id}/message"))
            ]
        except Refused as error:
            if error.status in (400, 404):
                return None
            raise

    async def say(self, session_id: str, agent: str, parts: list[Frame]) -> Frame:
        """Say something in a session, and return its last message when all is done. That may take hours.

        Said to a session that works, it is taken up by what runs, and both return at the end of that.
        """
        body = {"agent": agent, "parts": parts}
        return as_dict(await self._ask("POST", f"/session/{session_id}/message", body, timeout_s=None))

    async def abort(self, session_id: str, timeout_s: float) -> None:
        """End what runs in a session. Questions that wait are left waiting."""
        await self._ask("POST", f"/session/{session_id}/abort", timeout_s=timeout_s)

    async def mark(self, session_id: str, mark: str) -> None:
        """Change a session's title: an event tells that, after all that happened in the session before."""
        await self._ask("PATCH", f"/session/{session_id}", {"title": mark})

    async def waiting(self, session_id: str, timeout_s: float) -> list[str]:
        """Return the questions of a session that wait for an answer."""
        listed = [
            as_dict(each) for each in as_list(await self._ask("GET", "/permission", timeout_s=timeout_s))
        ]
        return [str(each.get("id")) for each in listed if each.get("sessionID") == session_id]

    async def answer(self, question: str, *, allowed: bool) -> None:
        """Answer a question, for this once. One that was answered already is no error."""
        try:
            reply = {"reply": "once" if allowed else "reject"}
            await self._ask("POST", f"/permission/{question}/reply", reply)
        except Refused as error:
            if error.status != 404:
                raise

    async def events(self, max_bytes: int = MAX_LINE_BYTES) -> AsyncGenerator[Frame | Garbage]:
        """Yield what happens, from now on. Ends when the server hangs up."""
        splitter = LineSplitter(max_bytes)
        timeout = httpx2.Timeout(ANSWER_S, connect=_CONNECT_S, read=None)
        try:
            async with self._client.stream("GET", "/event", timeout=timeout) as answer:
                if not answer.is_success:
                    raise Refused("GET /event", answer.status_code, None)
                async for chunk in answer.aiter_raw():
                    for line in splitter.feed(chunk):
                        frame = _decode(line if isinstance(line, TooLong) else self._clean(line))
                        if frame is not None:
                            yield frame
        except httpx2.HTTPError:
            return

    async def _ask(
        self, method: str, path: str, body: Any = None, *, timeout_s: float | None = ANSWER_S
    ) -> Any:
        """Ask, and return the decoded answer. Raise `Refused`, `Unreachable` or `TimeoutError`."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        timeout = httpx2.Timeout(timeout_s, connect=_CONNECT_S)
        try:
            request = self._client.build_request(
                method, path, content=content, headers=headers, timeout=timeout
            )
            answer = await self._client.send(request, stream=True)
            async with aclosing(answer):
                told = self._clean(await _read(answer, f"{method} {path}"))
        except httpx2.TimeoutException:
            raise TimeoutError(f"{method} {path}") from None
        except httpx2.HTTPError as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}") from None
        try:
            decoded = msgspec.json.decode(told) if told else None
        except (ValueError, RecursionError):
            raise Refused(
                f"{method} {path}", answer.status_code, told[:_SHOWN].decode("utf-8", "replace")
            ) from None
        if not answer.is_success:
            raise Refused(f"{method} {path}", answer.status_code, decoded)
        return decoded

    def _clean(self, told: bytes) -> bytes:
        for secret in self._secrets:
            told = told.replace(secret, MARKER.encode())
        return told


async def _read(answer: httpx2.Response, what: str) -> bytes:
    told = bytearray()
    async for chunk in answer.aiter_raw():
        told += chunk
        if len(told) > MAX_ANSWER_BYTES:
            raise Refused(what, answer.status_code, f"the answer has more than {MAX_ANSWER_BYTES:,} bytes")
    if has_too_many_values(told):
        raise Refused(what, answer.status_code, f"the answer has more than {MOST_VALUES:,} values")
    return bytes(told)


def _decode(line: bytes | TooLong) -> Frame | Garbage | None:
    """Return the event of a line, or None if the line holds none: events are separated by empty ones."""
    if isinstance(line, TooLong):
        return Garbage(line.size, line.start.decode("utf-8", "replace"))
    line = line.removesuffix(b"\r")
    if not line or line.startswith(b":"):
        return None
    try:
        if line.startswith(_DATA):
            return msgspec.json.decode(line[len(_DATA) :], type=dict[str, Any])
    except (ValueError, RecursionError):
        pass
    return Garbage(len(line), line[:_SHOWN].decode("utf-8", "replace"))
