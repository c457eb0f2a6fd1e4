"""A conversation over a real engine in memory, with a sheet of paper in place of a terminal."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from tests.cli.conftest import EDIT

from codesdk import CodeSDK
from codesdk.cli.chat.commands import COMMANDS, command_in, summaries
from codesdk.cli.chat.complete import ChatCompleter
from codesdk.cli.chat.conversation import Conversation, New
from codesdk.cli.chat.message import MAX_IMAGE_BYTES
from codesdk.cli.chat.paint import Painter
from codesdk.cli.chat.pastes import Pastes
from codesdk.contract.actions import Caller
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.messages import ArtifactBlock
from codesdk.contract.settings import SessionSettings
from codesdk.runtimes import ScriptedRuntime
from codesdk.script import Script, parse_script

PATIENCE_S = 30.0
UNSTEERED = "gemini-cli-core"
MORE = "▌   … there is more: s shows all of it"
ANSWERS = "loop: true\nturns: [{steps: [{text: An answer.}]}]"
TWO = "turns: [{steps: [{text: First.}, {await_steer: true}, {text: Heard.}]}, {steps: [{text: Second.}]}]"
ASKS = """
turns:
  - steps: [{call: {tool: workspace.write, input: {path: a.txt, content: x}}}]
  - steps: [{text: First.}]
  - steps: [{text: Second.}]
"""


class Paper:
    """Takes down what is shown."""

    columns = 80

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.given_back: list[str] = []
        self.left = False
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds: it is looked at whenever something was shown."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await self._changed.wait()
                self._changed.clear()

    def show(self, lines: list[str]) -> None:
        self.lines += lines
        self._changed.set()

    def refresh(self) -> None:
        self._changed.set()

    def put(self, text: str) -> None:
        self.given_back.append(text)
        self._changed.set()

    def leave(self) -> None:
        self.left = True

    def fail(self, error: BaseException) -> None:
        self.lines.append(f"a bug: {error!r}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Unsteered(ScriptedRuntime):
    """A runtime that takes nothing while it works."""

    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities(), supports_steer=False)


def read(text: str) -> Script:
    return parse_script(text, "test")


@asynccontextmanager
async def talking(
    root: Path, script: str, runtime: type[ScriptedRuntime] = ScriptedRuntime
) -> AsyncIterator[tuple[Conversation, Paper, CodeSDK]]:
    async with CodeSDK.open(runtimes={"scripted": runtime(read(script))}) as sdk:
        mine = sdk.as_caller(Caller().called("chat-1", "chat"))
        paper = Paper()
        new = New(workspace=str(root), runtime="scripted", mode="auto")
        talk = Conversation(mine, "chat-1", paper, new, Painter(80, styled=False), Pastes())
        try:
            yield talk, paper, sdk
        finally:
            await talk.close()


def do(talk: Conversation, line: str) -> None:
    command = command_in(line, talk)
    talk.spawn(talk.send(line) if command is None else command, line)


async def test_where_a_runtime_cannot_be_steered_a_message_is_queued(tmp_path: Path):
    async with talking(tmp_path, ASKS, Unsteered) as (talk, paper, _):
        do(talk, "One")
        await paper.until(lambda: talk.desk.front is not None)
        do(talk, "Two")
        await paper.until(lambda: "queued" in paper.text)
        talk.answers.press("y")
        await paper.until(lambda: paper.text.count("✓ completed") == 2)
        assert talk.steers is False
        assert "▌ ❯ queued: Two" in paper.text
        assert "steered" not in paper.text


async def test_where_it_can_be_it_is_and_a_queue_is_asked_for(tmp_path: Path):
    async with talking(tmp_path, TWO) as (talk, paper, _):
        do(talk, "One")
        await paper.until(lambda: "First." in "".join(talk.story.live(9)))
        do(talk, "/queue Later")
        await paper.until(lambda: "queued: Later" in paper.text)
        do(talk, "Now")
        await paper.until(lambda: paper.text.count("✓ completed") == 2)
        assert "▌ ❯ steered: Now" in paper.text


async def test_a_change_is_approved_shown_and_undone(tmp_path: Path):
    file = tmp_path / "hello.txt"
    file.write_text("Helo, world\n")
    async with talking(tmp_path, EDIT) as (talk, paper, _):
        do(talk, "Fix it")
        await paper.until(lambda: talk.desk.front is not None)
        panel = talk.answers.panel(20, "")
        assert panel[1:3] == ["  - Helo", "  + Hello"]
        short = talk.answers.panel(4, "")
        assert short[1:] == [MORE, panel[-1]]
        talk.answers.press("y")
        await paper.until(lambda: "✓ completed" in paper.text)
        assert file.read_text() == "Hello, world\n"
        assert "    +Hello, world" in paper.lines
        do(talk, "/undo")
        await paper.until(lambda: "files.undone hello.txt by user chat" in paper.text)
        assert file.read_text() == "Helo, world\n"
        do(talk, "/tools")
        await paper.until(lambda: "  workspace.edit" in paper.lines)
        do(talk, "/cost")
        await paper.until(lambda: "310 tokens" in paper.text)


async def test_who_comes_later_is_asked_with_what_it_is_about_in_view(tmp_path: Path):
    async with talking(tmp_path, ASKS) as (talk, paper, _):
        do(talk, "One")
        await paper.until(lambda: talk.desk.front is not None)
        panel = talk.answers.panel(20, "")
        session_id = talk.required().id
        talk.start_new()
        assert talk.answers.panel(20, "") == []
        seen: list[list[str]] = []

        def asked() -> bool:
            seen.append(talk.answers.panel(20, ""))
            return bool(seen[-1])

        do(talk, f"/sessions {session_id}")
        await paper.until(asked)
        assert [lines[1:2] for lines in seen if lines] == [["  + x"]] == [panel[1:2]]


@pytest.mark.parametrize("content", ["x" * 5_000, "x\n" * 1_000, "x" * 70 + "\n" * 30])
async def test_a_panel_never_hides_that_there_is_more_to_a_call(tmp_path: Path, content: str):
    call = {"tool": "workspace.write", "input": {"path": "a.txt", "content": content}}
    script = json.dumps({"turns": [{"steps": [{"call": call}]}, {"steps": [{"text": "Done."}]}]})
    async with talking(tmp_path, script) as (talk, paper, _):
        do(talk, "Write")
        await paper.until(lambda: talk.desk.front is not None)
        for most in (5, 12, 25):
            panel = talk.answers.panel(most, "")
            assert len(panel) <= most
            assert panel[-2] == MORE
        assert MORE not in talk.answers.panel(100_000, "")
        talk.answers.press("s")
        assert "".join(paper.lines).count("x") >= content.count("x")


async def test_what_another_client_does_is_shown_with_its_name(tmp_path: Path):
    async with talking(tmp_path, TWO) as (talk, paper, sdk):
        do(talk, "One")
        await paper.until(lambda: "First." in "".join(talk.story.live(9)))
        other = sdk.as_caller(Caller().called("zed-7", "zed"))
        session = await other.session(talk.required().id)
        await session.steer("From an editor")
        await paper.until(lambda: "✓ completed" in paper.text)
        assert "▌ zed-7 ❯ steered: From an editor" in paper.text


async def test_an_error_gives_back_what_was_typed(tmp_path: Path):
    async with talking(tmp_path, TWO) as (talk, paper, _):
        for line in ("/undo", "/nonsense", "/policy wild", "/compact wildly", "/rewind 5", "/queue"):
            do(talk, line)
        await paper.until(lambda: len(paper.given_back) == 6)
        assert paper.given_back == [
            "/undo",
            "/nonsense",
            "/policy wild",
            "/compact wildly",
            "/rewind 5",
            "/queue",
        ]
        assert "There is no command /nonsense." in paper.text
        assert talk.session is None


@pytest.mark.parametrize("line", ["/etc/hosts is wrong", " /help", "/ no", "plain"])
async def test_what_is_no_command_is_a_message(tmp_path: Path, line: str):
    async with talking(tmp_path, TWO) as (talk, _, _):
        assert command_in(line, talk) is None


@pytest.fixture
def greeter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin with an action, in the configuration of whoever runs the chat."""
    plugin = tmp_path / "greeter.py"
    plugin.write_text(
        "from codesdk.minicode.plugins import Action, Contribution, Plugin\n"
        "async def greet(context):\n    return f'\\x1b[31m▌ ❯ {context.arguments}'\n"
        "def plugin(config):\n"
        "    action = Action(id='greet', title='Greet somebody', run=greet, aliases=('hi',))\n"
        "    return Plugin(id='greeter', setup=lambda context: Contribution(actions=[action]))\n"
    )
    folder = tmp_path / "config" / "minicode"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"plugins": {plugin.as_uri(): {}}}))
    (folder / "config.json").chmod(0o600)
    monkeypatch.setitem(os.environ, "XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.usefixtures("greeter")
async def test_actions_of_plugins_are_commands_and_what_they_say_is_cleaned(tmp_path: Path):
    async with talking(tmp_path, TWO) as (talk, paper, _):
        await talk.actions.load(COMMANDS)
        assert summaries(talk)["greet"] == "Greet somebody"
        do(talk, "/hi you")
        await paper.until(lambda: "you" in paper.text)
        assert paper.lines[-1] == "  ␛[31m| ❯ you"


@pytest.mark.usefixtures("greeter")
async def test_actions_of_plugins_come_with_minicode_whenever_that_is_chosen(tmp_path: Path):
    async with talking(tmp_path, TWO) as (talk, paper, _):
        await talk.learn()
        assert "greet" not in summaries(talk)
        do(talk, "/runtime minicode")
        await paper.until(lambda: "will begin on minicode" in paper.text)
        await paper.until(lambda: talk.sending == 0)
        assert summaries(talk)["greet"] == "Greet somebody"


@pytest.mark.usefixtures("greeter")
async def test_actions_of_plugins_come_when_a_session_moves_to_minicode_whoever_moves_it(tmp_path: Path):
    script = "turns: [{steps: [{text: An answer.}]}]"
    async with talking(tmp_path, script) as (talk, paper, sdk):
        do(talk, "One")
        await paper.until(lambda: "✓ completed" in paper.text)
        other = sdk.as_caller(Caller().called("zed-7", "zed"))
        await (await other.session(talk.required().id)).move("minicode")
        await paper.until(lambda: "greet" in summaries(talk))


class Elsewhere(Unsteered):
    """One that a chat knows by its name to take nothing while it works."""

    @property
    def name(self) -> str:
        return UNSTEERED


async def test_whether_enter_steers_is_found_out_for_each_session(tmp_path: Path):
    given = {"scripted": ScriptedRuntime(read(ANSWERS)), UNSTEERED: Elsewhere(read(ANSWERS))}
    async with CodeSDK.open(runtimes=given) as sdk:
        paper = Paper()
        new = New(workspace=str(tmp_path), runtime="scripted", mode="auto")
        talk = Conversation(sdk, "chat-1", paper, new, Painter(80, styled=False), Pastes())
        sessions = [await sdk.create_session(runtime=runtime, workspace=str(tmp_path)) for runtime in given]
        for session, steers in zip([*sessions, sessions[0]], (True, False, True), strict=True):
            do(talk, f"/sessions {session.id}")
            await paper.until(
                lambda session=session: talk.session is not None and talk.session.id == session.id
            )
            await paper.until(lambda: talk.sending == 0)
            assert talk.steers is steers
        await sessions[0].move(UNSTEERED)
        await paper.until(lambda: not talk.steers)
        do(talk, "/new")
        await paper.until(lambda: talk.steers)
        await talk.close()


async def test_files_are_those_of_the_workspace_of_the_session_one_is_in(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "notes.md").write_text(f"Notes from {folder.name}.")
    (there / "only.md").write_text("")
    async with talking(here, ANSWERS) as (talk, paper, sdk):
        session = await sdk.create_session(runtime="scripted", workspace=str(there))
        completer = ChatCompleter(here)
        completer.talk = talk
        do(talk, f"/sessions {session.id}")
        do(talk, "Read @notes.md")
        await paper.until(lambda: "✓ completed" in paper.text)
        said = await session.transcript()
        assert "Notes from there." in msgspec.json.encode(said).decode()
        found = completer.get_completions(Document("see @on"), CompleteEvent())
        assert [completion.text for completion in found] == ["only.md"]
        do(talk, "/new")
        do(talk, "Read @notes.md")
        await paper.until(lambda: paper.text.count("✓ completed") == 2)
        said = await talk.required().transcript()
        assert "Notes from here." in msgspec.json.encode(said).decode()


async def test_a_stored_session_is_shown_from_its_last_tasks_on(tmp_path: Path):
    async with talking(tmp_path, ANSWERS) as (talk, paper, _):
        for number in range(5):
            do(talk, f"Message {number}")
            await paper.until(lambda number=number: paper.text.count("✓ completed") == number + 1)
        session = talk.required()
        talk.start_new()
        paper.lines.clear()
        do(talk, "/sessions 1")
        await paper.until(lambda: paper.text.count("✓ completed") == 3)
        assert "Message 1" not in paper.text.partition("\n")[2]
        assert "▌ ❯ Message 2" in paper.text
        assert talk.required().id == session.id
        do(talk, "/rewind 2")
        await paper.until(lambda: paper.given_back == ["Message 1"])
        assert len(await talk.required().transcript()) == 2


async def test_what_stands_beside_a_conversation_is_shown_and_exported(tmp_path: Path):
    async with talking(tmp_path, ANSWERS) as (talk, paper, _):
        do(talk, "Hello")
        await paper.until(lambda: "✓ completed" in paper.text)
        await talk.required().supplement("review", "It is\x1b[31m fine.", data={"score": 1})
        await paper.until(lambda: "transcript.supplemented review by user" in paper.text)
        assert "\x1b[31m" not in paper.text
        file = tmp_path / "talk.md"
        do(talk, f"/export {file}")
        await paper.until(lambda: "Written to" in paper.text)
        text = file.read_text()
    assert text.index("An answer.") < text.index("## beside it: review, by user")
    assert '"score": 1' in text
    assert "\x1b" not in text


async def test_a_copy_a_new_session_and_a_shorter_conversation(tmp_path: Path):
    async with talking(tmp_path, ANSWERS) as (talk, paper, sdk):
        for number in range(3):
            do(talk, f"Message {number}")
            await paper.until(lambda number=number: paper.text.count("✓ completed") == number + 1)
        first = talk.required().id
        do(talk, "/compact")
        await paper.until(lambda: "session.compacted window" in paper.text)
        do(talk, "/fork The copy")
        await paper.until(lambda: "This is a copy." in paper.text)
        copy = await talk.required().info()
        assert (copy.parent_session_id, copy.title) == (first, "The copy")
        do(talk, "/model other")
        await paper.until(lambda: talk.facts.model == "other")
        do(talk, "/new")
        await paper.until(lambda: talk.session is None)
        assert len(await sdk.sessions()) == 2
        do(talk, "/quit")
        await paper.until(lambda: paper.left)


async def test_commands_their_arguments_and_files_are_completed(tmp_path: Path):
    (tmp_path / "notes.md").write_text("")
    async with talking(tmp_path, TWO) as (talk, _, _):
        completer = ChatCompleter(tmp_path)

        def after(typed: str) -> list[str]:
            found = completer.get_completions(Document(typed), CompleteEvent())
            return [completion.text for completion in found]

        assert after("/") == [], "there is no conversation yet"
        completer.talk = talk
        assert after("/") == [f"/{name} " for name in COMMANDS]
        assert after("/co") == ["/compact ", "/cost "]
        assert after("/policy a") == ["ask", "auto"]
        assert "minicode" in after("/runtime m")
        assert after("see @not") == ["notes.md"]
        assert after("mail me@not") == []
        assert after("plain") == []


IMAGES = {
    "dot.png": (b"\x89PNG\r\n\x1a\n and the rest", "image/png"),
    "dot.jpg": (b"\xff\xd8\xff and the rest", "image/jpeg"),
    "dot.gif": (b"GIF89a and the rest", "image/gif"),
    "dot.webp": (b"RIFF\0\0\0\0WEBP and the rest", "image/webp"),
}


class Seeing(ScriptedRuntime):
    """A runtime that takes images."""

    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities(), supports_artifacts=True, supports_images=True)


async def test_images_are_attached_as_what_they_are(tmp_path: Path):
    for name, (data, _) in IMAGES.items():
        (tmp_path / name).write_bytes(data)
    async with talking(tmp_path, ANSWERS, Seeing) as (talk, paper, _):
        do(talk, "Look at " + " ".join(f"@{name}" for name in IMAGES))
        await paper.until(lambda: "✓ completed" in paper.text)
        [said, *_] = await talk.required().transcript()
        attached = [block for block in said.content if isinstance(block, ArtifactBlock)]
        assert {block.name: block.content_type for block in attached} == {
            name: kind for name, (_, kind) in IMAGES.items()
        }
        for block in attached:
            assert await talk.sdk.read_artifact(block.artifact_id) == IMAGES[block.name or ""][0]


async def test_a_runtime_that_takes_no_images_is_named_and_the_line_given_back(tmp_path: Path):
    (tmp_path / "dot.png").write_bytes(IMAGES["dot.png"][0])
    async with talking(tmp_path, ANSWERS) as (talk, paper, _):
        do(talk, "Look at @dot.png")
        await paper.until(lambda: paper.given_back == ["Look at @dot.png"])
        assert "The runtime scripted cannot take images." in paper.text


async def test_an_image_that_is_too_large_is_named_and_the_line_given_back(tmp_path: Path):
    (tmp_path / "big.png").write_bytes(IMAGES["dot.png"][0] + bytes(MAX_IMAGE_BYTES))
    async with talking(tmp_path, ANSWERS) as (talk, paper, _):
        do(talk, "Look at @big.png")
        await paper.until(lambda: bool(paper.given_back))
        assert "big.png is too large: at most 20.0 MB can be attached" in paper.text
        assert await talk.required().transcript() == []


async def test_what_was_allowed_for_the_session_is_listed_and_taken_back(tmp_path: Path):
    write = {"call": {"tool": "workspace.write", "input": {"path": "a.txt", "content": "x"}}}
    script = json.dumps({"turns": [{"steps": [write]}, {"steps": [{"text": "Done."}]}], "loop": True})
    async with talking(tmp_path, script) as (talk, paper, _):
        do(talk, "One")
        await paper.until(lambda: talk.desk.front is not None)
        talk.answers.press("a")
        await paper.until(lambda: paper.text.count("✓ completed") == 1)
        do(talk, "/policy")
        await paper.until(lambda: "always in this session: workspace.write, by user" in paper.text)
        do(talk, "Two")
        await paper.until(lambda: paper.text.count("✓ completed") == 2)
        do(talk, "/policy revoke workspace.write")
        await paper.until(lambda: "grant.revoked workspace.write" in paper.text)
        assert await talk.required().grants() == []
        do(talk, "Three")
        await paper.until(lambda: talk.desk.front is not None)
        do(talk, "/policy revoke workspace.write")
        await paper.until(lambda: bool(paper.given_back))


async def test_a_conversation_is_summed_up_where_that_is_asked(tmp_path: Path):
    async with talking(tmp_path, ANSWERS) as (talk, paper, _):
        for number in range(3):
            do(talk, f"Message {number}")
            await paper.until(lambda number=number: paper.text.count("✓ completed") == number + 1)
        do(talk, "/compact summary")
        await paper.until(lambda: "session.compacted summary" in paper.text)


async def test_the_status_line_says_how_full_the_context_is(tmp_path: Path):
    async with talking(tmp_path, ANSWERS) as (talk, paper, _):
        talk.new.settings = SessionSettings(context_budget_tokens=1_000)
        do(talk, "word " * 200)
        await paper.until(lambda: "✓ completed" in paper.text)
        [part] = [part for part in talk.facts.parts() if part.startswith("context ")]
        assert 20 < int(part.removeprefix("context ").removesuffix("%")) < 60
