"""A running claude: frames in and out over its pipes, and answers to its control requests.

The reader never waits for a decision: a question about one of our tools is answered at once by its name, one about a
tool of claude's own by a separate task. It waits only while too many frames are unread, so that a slow store slows
claude down; not when claude is asked to stop, because its answer comes behind those frames.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from codesdk.contract.errors import TaskFailure
from codesdk.contract.runtime import RuntimeEnv
from codesdk.processes import Child, start_child
from codesdk.runtimes.claude import NAME
from codesdk.runtimes.claude.native import ASK, hooks, inputs_of
from codesdk.runtimes.claude.normalize import Frame
from codesdk.runtimes.program.backlog import Unread, catch_up, is_behind
from codesdk.runtimes.program.framing import TooLong, read_lines
from codesdk.sending import send, write
from codesdk.tools import PREFIX

MAX_UNREAD = 1024
NOT_OURS = "This session allows only the tools of CodeSDK."
UNDECIDED = "Nobody decided about this call."
MAX_ASKING = 256
"""How many questions about claude's own tools may wait for a decision."""
TOO_MANY = f"More than {MAX_ASKING} calls wait for a decision."
_ID_CHARS = 1_000
_CLOSE_S = 2.0


Decide = Callable[[Frame], Awaitable[str | None]]
"""A question about a tool of claude's own → why it may not run, or None."""


class ClaudeProcess:
    """One claude. Get it from `start_claude`; call `close` whatever happens."""

    def __init__(self, child: Child, natives: Sequence[str] = ()) -> None:
        self._child = child
        self._natives = frozenset(natives)
        self._given: dict[str, Any] = {}
        """The inputs that the model gave to claude's own tools. They are decided on and run, not what claude makes of them."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        self.decide: Decide | None = None
        """Decides on calls of claude's own tools while a task runs."""
        self._numbers = itertools.count(1)
        self._answers: dict[str, asyncio.Future[Frame]] = {}
        self._unread: deque[Any] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._hurry = False
        self.hangs: str | None = None
        """Why claude was ended, if it asked without end and read no answer."""
        self._reading = asyncio.create_task(self._read())

    @property
    def alive(self) -> bool:
        """Whether it still reads and writes."""
        return not self._reading.done() and self._child.exit_code is None

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self._child.pid

    async def next_frame(self) -> Any:
        """Return the next frame, or None if claude has ended and all was read. For one reader."""
        while not self._unread:
            if self._reading.done():
                return None
            self._news.clear()
            await self._news.wait()
        frame = self._unread.popleft()
        self._room.set()
        return frame

    def forget_unread(self) -> None:
        """Drop what came after the last task had ended."""
        self._unread.clear()
        self._room.set()
        self._hurry = False

    async def say(self, frame: Frame) -> None:
        """Write a frame. Raise `TaskFailure` if claude has ended."""
        try:
            await send(self._child.stdin, msgspec.json.encode(frame) + b"\n")
        except OSError as error:
            raise _crashed("claude has ended. Start the task again.") from error

    async def hand_over(self, frame: Frame, timeout_s: float) -> None:
        """Write input and wait until claude has queued it: input that is still in the pipe may miss the next request."""
        queued = self._answers[frame["uuid"]] = asyncio.get_running_loop().create_future()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self.say(frame)
                    await queued
        finally:
            del self._answers[frame["uuid"]]

    async def ask(self, subtype: str, timeout_s: float, **fields: Any) -> Frame:
        """Make a control request and return the answer. Raise `TimeoutError` or `TaskFailure` if there is none."""
        number = f"codesdk-{next(self._numbers)}"
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                request = {"subtype": subtype, **fields}
                await self.say({"type": "control_request", "request_id": number, "request": request})
                return await answer
        finally:
            del self._answers[number]

    async def interrupt(self, timeout_s: float) -> None:
        """Ask claude to end its turn. It may well answer before the turn has ended."""
        self._hurry_up()
        await self.ask("interrupt", timeout_s)

    async def withdraw(self, number: str, timeout_s: float) -> bool:
        """Take back input, or claude would begin a turn with it. Return whether claude had not taken it up yet."""
        self._hurry_up()
        answer = await self.ask("cancel_async_message", timeout_s, message_uuid=number)
        return answer.get("cancelled") is True

    def _hurry_up(self) -> None:
        self._hurry = True
        self._room.set()

    async def last_words(self) -> tuple[int | None, str]:
        """Return claude's exit code and the end of its stderr, redacted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._child.wait()
        return self._child.exit_code, self._child.stderr_tail()

    async def close(self, *, force: bool) -> None:
        """End claude. Unless forced, give it the time to write down its conversation."""
        if not force:
            with contextlib.suppress(OSError, RuntimeError, TimeoutError):
                self._child.stdin.close()
                async with asyncio.timeout(_CLOSE_S):
                    await self._child.wait()
        await self._child.stop(0.0)
        tasks = [self._reading, *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _read(self) -> None:
        try:
            async for line in read_lines(self._child.stdout):
                frame = _decode(line)
                if line and not self._control(frame):
                    await self._deliver(frame)
                elif is_behind(self._child.stdin):
                    await catch_up(self._child.stdin)
        except Unread as unread:
            self.hangs = str(unread)
            await self._child.stop(0)
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(_crashed("claude ended before it answered. Start the task again."))
            # After this task is done: `next_frame` looks at that.
            asyncio.get_running_loop().call_soon(self._news.set)

    async def _deliver(self, frame: Any) -> None:
        while len(self._unread) >= MAX_UNREAD and not self._hurry:
            self._room.clear()
            await self._room.wait()
        self._unread.append(frame)
        self._news.set()

    def _control(self, frame: Any) -> bool:
        """Handle a frame of the control protocol. Return whether it has no other meaning."""
        if not isinstance(frame, dict):
            return False
        known: Frame = frame  # pyright: ignore[reportUnknownVariableType]
        kind = known.get("type")
        try:
            if kind == "control_response":
                self._take_answer(known["response"])
            elif kind == "control_request":
                self._answer(known["request_id"], known["request"])
            elif kind == "control_cancel_request" and known["request_id"] in self._asking:
                self._asking[known["request_id"]].cancel()
            elif kind == "assistant" and self._natives:
                self._given |= inputs_of(known, self._natives)
            elif kind == "command_lifecycle":
                self._take_answer({"request_id": known["command_uuid"], "subtype": "success"})
            return kind in ("control_response", "control_request", "keep_alive")
        except (KeyError, TypeError, AttributeError):
            return False

    def _take_answer(self, response: Frame) -> None:
        answer = self._answers.get(response["request_id"])
        if answer is None or answer.done():
            return
        if response["subtype"] == "success":
            answer.set_result(response.get("response") or {})
        else:
            said = f"claude refused a request: {response.get('error')}."
            answer.set_exception(TaskFailure(said, code="RUNTIME_PROTOCOL", runtime=NAME))

    def _answer(self, number: str, request: Frame) -> None:
        """Answer a question of claude's at once, except one about a tool of its own, which is decided elsewhere."""
        kind = request["subtype"]
        if len(number) > _ID_CHARS:
            raise TypeError("no program needs such an id, and it would be sent back")
        if kind == "can_use_tool" and request["tool_name"] in self._natives and self.decide is not None:
            if len(self._asking) >= MAX_ASKING:
                self._say_yes_or_no(number, request, TOO_MANY)
                return
            request |= {"input": self._given.pop(request["tool_use_id"], request["input"])}
            asking = self._asking[number] = asyncio.create_task(self._ask(number, request, self.decide))
            asking.add_done_callback(lambda _: self._asking.pop(number, None))
        elif kind == "can_use_tool":
            self._say_yes_or_no(
                number, request, None if request["tool_name"].startswith(PREFIX) else NOT_OURS
            )
        elif kind == "hook_callback":
            self._respond({"subtype": "success", "request_id": number, "response": ASK})
        else:
            error = "CodeSDK does not serve this."
            self._respond({"subtype": "error", "request_id": number, "error": error})

    async def _ask(self, number: str, request: Frame, decide: "Decide") -> None:
        """Get a decision on a call of claude's own tool. Whatever goes wrong is a no."""
        reason: str | None = UNDECIDED
        try:
            reason = await decide(request)
        except Exception as error:  # noqa: BLE001 - claude waits for an answer
            reason = f"{UNDECIDED} ({type(error).__name__})"
        finally:
            self._say_yes_or_no(number, request, reason)

    def _say_yes_or_no(self, number: str, request: Frame, reason: str | None) -> None:
        verdict = {"behavior": "allow", "updatedInput": request["input"]}
        if reason is not None:
            verdict = {"behavior": "deny", "message": reason}
        self._respond({"subtype": "success", "request_id": number, "response": verdict})

    def _respond(self, response: Frame) -> None:
        """Write an answer, without a wait: the reader waits before the next question if claude leaves too much unread."""
        with contextlib.suppress(OSError):
            frame = {"type": "control_response", "response": response}
            write(self._child.stdin, msgspec.json.encode(frame) + b"\n")


async def start_claude(
    argv: Sequence[str],
    where: RuntimeEnv,
    *,
    env: Mapping[str, str],
    secrets: Sequence[str],
    timeout_s: float,
    natives: Sequence[str] = (),
) -> ClaudeProcess:
    """Start claude and wait until it is ready. Raise `TaskFailure` if it is not in time, or ends instead."""
    child = await start_child(argv, cwd=where.workspace, env=env, secrets=secrets)
    process = ClaudeProcess(child, natives)
    try:
        await process.ask("initialize", timeout_s, hooks=hooks(natives))
    except BaseException as error:
        code, said = await process.last_words() if isinstance(error, TaskFailure) else (None, "")
        await process.close(force=True)
        if isinstance(error, TimeoutError):
            message = f"claude did not answer within {timeout_s:g} s. Try again, or install it again."
            raise TaskFailure(message, code="RUNTIME_PROTOCOL", retryable=True, runtime=NAME) from error
        if isinstance(error, TaskFailure):
            raise _crashed(f"claude ended before it was ready (exit code {code}). {said}".rstrip()) from error
        raise
    return process


def _crashed(message: str) -> TaskFailure:
    return TaskFailure(message, code="RUNTIME_CRASHED", retryable=True, runtime=NAME)


def _decode(line: bytes | TooLong) -> Any:
    if isinstance(line, TooLong):
        return {"too_long": line.size, "start": line.start.decode("utf-8", "replace")}
    try:
        frame = msgspec.json.decode(line)
        return "null" if frame is None else frame  # None is what comes after the last frame
    except (ValueError, RecursionError):
        return {"not_json": line.decode("utf-8", "replace")[:4096]}
