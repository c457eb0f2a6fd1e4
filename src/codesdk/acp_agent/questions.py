"""What waits for an answer in a session: asked in the editor, and withdrawn as soon as anybody has answered.

`asking` says how each is shown; here they are asked, side by side, and what the editor answers is carried out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS
from acp.schema import ToolCallStart

from codesdk.acp_agent.asking import Open, form, form_answer, permission, permission_answer
from codesdk.acp_agent.peer import Peer
from codesdk.contract.actions import Action, ResumeSession
from codesdk.contract.errors import Busy, CodeSDKError, Conflict, InvalidRequest, NotFound
from codesdk.contract.records import SessionRow
from codesdk.contract.service import SessionService

_log = logging.getLogger(__name__)


class Questions:
    """The open questions of one session, in one editor. `calls` are those that it shows, `say` tells it something."""

    def __init__(
        self,
        session_id: str,
        service: SessionService,
        peer: Peer,
        calls: Mapping[str, ToolCallStart],
        say: Callable[[str], Awaitable[None]],
        *,
        has_forms: bool,
    ) -> None:
        self._session_id = session_id
        self._service = service
        self._peer = peer
        self._calls = calls
        self._say = say
        self._has_forms = has_forms
        self._open: dict[str, Open] = {}
        self._carried: set[str] = set()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._requests: dict[str, asyncio.Task[Action[None]]] = {}

    @property
    def for_words(self) -> Open | None:
        """The question that the next prompt answers, if there is one."""
        return next((asked for asked in self._open.values() if self._needs_prompt(asked)), None)

    @property
    def asked(self) -> list[str]:
        """What waits for an answer and was asked here: an editor that cancels answers all of it."""
        return list(self._open)

    async def read(self) -> None:
        """Find out what waits."""
        for row in await self._service.approvals(session_id=self._session_id):
            if row.state in ("waiting", "carried"):
                self.note(Open.of_row(row))

    def note(self, asked: Open) -> None:
        """Take note of a question, without asking it."""
        self._open[asked.approval_id] = asked
        if asked.carried:  # it may be asked already; its answer then also has to resume the session
            self._carried.add(asked.approval_id)

    def settle(self, approval_id: str) -> None:
        """Withdraw a question: somebody has answered."""
        self._open.pop(approval_id, None)
        request = self._requests.get(approval_id)
        if request is not None:
            request.cancel()

    async def ask_all(self) -> bool:
        """Ask what waits. Return whether any of it was asked in words."""
        return any([await self.ask(asked) for asked in list(self._open.values())])

    async def ask(self, asked: Open) -> bool:
        """Ask in the editor; its answer comes later. Return whether it was asked in words, for a prompt to answer."""
        if self._needs_prompt(asked):
            assert asked.question is not None, "only questions need words"
            await self._say(f"\n\n{asked.question.text}\n\n(Your next message is the answer.)")
            return True
        if asked.approval_id not in self._asking:
            task = asyncio.create_task(self._ask_until_answered(asked))
            self._asking[asked.approval_id] = task
            task.add_done_callback(lambda _: self._asking.pop(asked.approval_id, None))
        return False

    async def close(self) -> None:
        """Ask no more. What is open stays so, for others."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def resume(self) -> SessionRow | None:
        """Go on with an interrupted task, once all that it waited for is answered. Return the session, if it may."""
        rows = await self._service.approvals(session_id=self._session_id)
        if any(row.state == "carried" for row in rows):
            return None
        with suppress(Busy, Conflict):  # it went on by itself, or somebody else resumed it
            await self._service.execute(ResumeSession(session_id=self._session_id))
        return await self._service.session(self._session_id)

    def _needs_prompt(self, asked: Open) -> bool:
        return asked.needs_words and not self._has_forms

    async def _ask_until_answered(self, asked: Open) -> None:
        """Ask the editor, and pass its answer on. Must not raise: the question stays open for others."""
        try:
            while asked.approval_id in self._open:
                action = await self._request(asked)
                if action is None:
                    return
                try:
                    await self._service.execute(action)
                    break
                except InvalidRequest as error:  # not a number, or not one of the options
                    await self._say(f"\n\n({error.message})")
            if asked.carried or asked.approval_id in self._carried:
                await self.resume()
        except (Conflict, NotFound, ConnectionError):
            return  # somebody else was faster, or the editor is gone
        except RequestError as error:
            _log.warning("The editor could not ask %s: %s", asked.approval_id, error)
        except CodeSDKError as error:
            with suppress(ConnectionError):
                await self._say(f"\n\n(The answer did not count: {error.message})")

    async def _request(self, asked: Open) -> Action[None] | None:
        """Ask once. Return what the editor wants done, or None if somebody else answers meanwhile."""
        request = asyncio.create_task(self._answer_of(asked))
        self._requests[asked.approval_id] = request
        try:
            await asyncio.wait([request])
            return None if request.cancelled() else request.result()
        finally:
            request.cancel()  # if we are no longer wanted ourselves
            del self._requests[asked.approval_id]

    async def _answer_of(self, asked: Open) -> Action[None]:
        if asked.question is not None and self._has_forms:
            request = form(self._session_id, asked)
            result = await self._peer.request(CLIENT_METHODS["elicitation_create"], request)
            return form_answer(self._session_id, asked, result)
        request = permission(self._session_id, asked, self._calls.get(asked.tool_call_id or ""))
        result = await self._peer.request(CLIENT_METHODS["session_request_permission"], request)
        return permission_answer(self._session_id, asked, result)
