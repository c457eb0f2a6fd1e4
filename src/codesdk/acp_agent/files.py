"""An editor's files → the port that tools ask: `fs/read_text_file` and `fs/write_text_file` of one session.

They are lent for the tasks that the editor starts, where its files are those of the tools (`Place.editors`).
"""

import asyncio
from pathlib import Path
from typing import Any, cast

from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS
from acp.schema import ClientCapabilities, ReadTextFileRequest, WriteTextFileRequest
from pydantic import BaseModel

from codesdk.acp_agent.peer import Peer
from codesdk.acp_agent.place import Place
from codesdk.engine import Editors

ANSWER_S = 5.0
"""How long an editor has for an answer. One that let this pass is not asked again: each call would wait for it."""


class AttachedFiles:
    """The files of one session's workspace, as one editor has them. Implements `EditorFiles`."""

    def __init__(self, session_id: str, workspace: str, peer: Peer, *, takes: bool) -> None:
        self._session_id = session_id
        self._workspace = workspace
        self._peer = peer
        self._takes = takes
        self._silent = False

    @classmethod
    def offered(
        cls, capabilities: ClientCapabilities | None, session_id: str, workspace: str, peer: Peer
    ) -> "AttachedFiles | None":
        """Return the files of an editor, None if it does not offer to read them."""
        fs = capabilities.fs if capabilities is not None else None
        if fs is None or not fs.read_text_file:
            return None
        return cls(session_id, workspace, peer, takes=bool(fs.write_text_file))

    @property
    def takes(self) -> bool:
        """Whether the editor can be given a new text."""
        return self._takes

    async def text_of(self, path: str) -> str | None:
        """Return a file as the editor has it; None if it does not say."""
        request = ReadTextFileRequest(session_id=self._session_id, path=self._named(path))
        answer = await self._ask("fs_read_text_file", request)
        found: Any = cast("dict[str, Any]", answer).get("content") if isinstance(answer, dict) else None
        return found if isinstance(found, str) else None

    async def take(self, path: str, text: str) -> bool:
        """Give the editor a file's new text. Return whether it took it."""
        named = self._named(path)
        request = WriteTextFileRequest(session_id=self._session_id, path=named, content=text)
        return await self._ask("fs_write_text_file", request) is not None

    def _named(self, path: str) -> str:
        return str(Path(self._workspace, path))

    async def _ask(self, method: str, request: BaseModel) -> Any:
        """Return the editor's answer; None if it refuses, is gone or does not answer in time."""
        if self._silent:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._peer.request(CLIENT_METHODS[method], request)
            return {} if answer is None else answer
        except TimeoutError:
            self._silent = True
        except (RequestError, ConnectionError):
            pass
        return None


class Lending:
    """The tasks that may ask an editor for files."""

    def __init__(self, place: Place, files: AttachedFiles | None) -> None:
        self._place = place
        self._files = files
        self._tasks: dict[str, Editors] = {}

    def begin(self, task_id: str) -> None:
        """Let the tools of a task ask, if they can and the editor offers it."""
        editors = self._place.editors
        if editors is not None and self._files is not None:
            editors.lend(task_id, self._files)
            self._tasks[task_id] = editors

    def end(self, task_id: str | None = None) -> None:
        """Stop letting the tools of a task ask; without a name, those of all tasks."""
        for known in [task_id] if task_id is not None else list(self._tasks):
            editors = self._tasks.pop(known, None)
            if editors is not None:
                editors.withdraw(known)
