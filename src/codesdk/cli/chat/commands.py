"""Slash commands: a line that begins with / → something done to the session or to the chat, and what is said about it."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from rich.text import Text

from codesdk.cli.chat.export import export_text, write_new
from codesdk.cli.chat.keyboard import TABLE
from codesdk.cli.chat.sessions import fork, list_or_open, rewind
from codesdk.cli.target.lookup import short
from codesdk.cli.view.gist import money, plural, who
from codesdk.cli.view.safe import one_line
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.tools import PermissionMode

if TYPE_CHECKING:
    from codesdk.cli.chat.conversation import Conversation

Run = Callable[["Conversation", str], Awaitable[None]]
MODES: tuple[str, ...] = get_args(PermissionMode)


class Command(NamedTuple):
    """One command: what can follow it, what it does, and how."""

    arguments: str
    meaning: str
    run: Run
    values: Sequence[str] = ()


async def _model(chat: "Conversation", words: str) -> None:
    if not words:
        chat.say(f"The model is {chat.facts.model or 'the choice of the runtime'}. /model NAME changes it.")
        return
    if chat.session is None:
        chat.new.model = chat.facts.model = words
        chat.say(f"The session will begin with the model {words}.")
    else:
        await chat.session.set(model=words)


async def _runtime(chat: "Conversation", words: str) -> None:
    from codesdk.runtimes import resolve, runtime_names

    if not words:
        known = ", ".join(runtime_names())
        chat.say(
            f"The runtime is {chat.facts.runtime}. /runtime NAME moves the session to another one: {known}."
        )
        return
    name = words if ":" in words else resolve(words)
    if chat.session is None:
        chat.new.runtime, chat.new.model = name, None
        chat.facts.runtime, chat.facts.model = name, None
        chat.say(f"The session will begin on {name}.")
        await chat.learn()
    else:
        await chat.session.move(name)


async def _new(chat: "Conversation", _: str) -> None:
    before = chat.session
    chat.start_new()
    await chat.learn()
    stays = "" if before is None else f" {short(before.id)} stays: /sessions lists it."
    chat.say(f"The next message begins a new session.{stays}")


async def _undo(chat: "Conversation", words: str) -> None:
    session = chat.required()
    call = words or (chat.facts.changing[-1] if chat.facts.changing else "")
    if not call:
        raise InvalidRequest(
            "No call that changed files was seen here. /undo all takes back those of the whole session."
        )
    report = await session.undo(None if call == "all" else call)
    for refused in report.refused:
        chat.say(f"not undone: {refused.reason}", "yellow")


async def _compact(chat: "Conversation", words: str) -> None:
    match words:
        case "" | "window":
            await chat.required().compact("window")
        case "summary":
            await chat.required().compact("summary")
        case _:
            raise InvalidRequest(
                "/compact leaves out the oldest turns; /compact summary has them summed up first."
            )


async def _tools(chat: "Conversation", _: str) -> None:
    if not chat.facts.tools:
        chat.say("What the model is offered is known with the first message.")
        return
    chat.say(f"The model was offered {plural(len(chat.facts.tools), 'tool')}:")
    chat.show(chat.paint.others(Text(one_line(tool.name, 100)) for tool in chat.facts.tools))


async def _policy(chat: "Conversation", words: str) -> None:
    verb, _, tool = words.partition(" ")
    if verb == "revoke" and tool:
        await chat.required().revoke(tool.strip())
    elif words in MODES:
        mode: Any = words
        if chat.session is None:
            chat.new.mode = chat.facts.mode = mode
            chat.say(f"The session will begin in the mode {words}.")
        else:
            await chat.session.set(permission_mode=mode)
    elif words:
        raise InvalidRequest(f"/policy takes one of {', '.join(MODES)}, or revoke TOOL.")
    else:
        await _show_policy(chat)


async def _show_policy(chat: "Conversation") -> None:
    chat.say(f"The mode is {chat.facts.mode}. /policy MODE changes it: {', '.join(MODES)}.")
    grants = [] if chat.session is None else await chat.session.grants()
    for grant in grants:
        chat.say(
            f"always in this session: {grant.tool}, by {who(grant.by)}. /policy revoke {grant.tool} takes it back."
        )


async def _cost(chat: "Conversation", _: str) -> None:
    await chat.settle()
    facts = chat.facts
    cost = "of unknown cost" if facts.cost_usd is None else money(facts.cost_usd)
    chat.say(f"{plural(facts.requests, 'model request')}, {facts.tokens:,} tokens, {cost} in this session.")


async def _export(chat: "Conversation", words: str) -> None:
    session = chat.required()
    text = export_text(await session.info(), await session.transcript(), await session.supplements())
    chat.say(f"Written to {write_new(words or f'chat-{short(session.id)}.md', text)}.")


async def _queue(chat: "Conversation", words: str) -> None:
    if not words:
        raise InvalidRequest("/queue needs the message that is to wait.")
    await chat.send(words, queue=True)


async def _resume(chat: "Conversation", words: str) -> None:
    await chat.required().resume(words or None)


async def _help(chat: "Conversation", _: str) -> None:
    width = max(len(f"/{name} {command.arguments}") for name, command in COMMANDS.items())
    lines = [
        Text(f"{f'/{name} {command.arguments}':<{width}}  {command.meaning}")
        for name, command in COMMANDS.items()
    ]
    lines += [Text(f"{key.keys:<{width}}  {key.meaning}") for key in TABLE]
    lines += [Text(f"{'@path':<{width}}  attach a file")]
    lines += [Text(f"{'/' + name:<{width}}  {meaning}") for name, meaning in chat.actions.summaries().items()]
    chat.show([line for text in lines for line in chat.paint.ours(text)])


async def _quit(chat: "Conversation", _: str) -> None:
    chat.front.leave()


COMMANDS: dict[str, Command] = {
    "help": Command("", "show the commands and keys", _help),
    "model": Command("[NAME]", "show or change the model", _model),
    "runtime": Command("[NAME]", "move the session to another runtime", _runtime),
    "sessions": Command("[N|ID]", "list the sessions, or continue one", list_or_open),
    "new": Command("", "begin another session with the next message", _new),
    "fork": Command("[TITLE]", "continue in a copy of the session", fork),
    "rewind": Command("[N]", "list your messages, or go back to before one, in a copy", rewind),
    "undo": Command("[CALL|all]", "put files back as they were before the last change", _undo),
    "compact": Command(
        "[summary]", "give the runtime less of the conversation", _compact, ("window", "summary")
    ),
    "queue": Command("TEXT", "send a message when the task is done", _queue),
    "resume": Command("[TEXT]", "resume a task that was interrupted", _resume),
    "tools": Command("", "show what the model is offered", _tools),
    "policy": Command("[MODE]", "show or change what is asked about", _policy, (*MODES, "revoke ")),
    "cost": Command("", "show what the session has used", _cost),
    "export": Command("[FILE]", "write the conversation as Markdown", _export),
    "quit": Command("", "leave", _quit),
}


def command_in(typed: str, chat: "Conversation") -> Coroutine[Any, Any, None] | None:
    """Return what a line does if it is a command; None if it is a message. A path is none: /etc/hosts."""
    if not typed.startswith("/"):
        return None
    name, _, words = typed[1:].partition(" ")
    if "/" in name or not name.strip():
        return None
    return _run(name.strip(), words.strip(), chat)


async def _run(name: str, words: str, chat: "Conversation") -> None:
    command = COMMANDS.get(name)
    if command is not None:
        await command.run(chat, words)
    elif not await chat.actions.run(name, words):
        raise InvalidRequest(
            f"There is no command /{one_line(name, 40)}. /help lists them; a space before the / makes it a message."
        )


def summaries(chat: "Conversation") -> dict[str, str]:
    """Return all commands, those of plugins last, and what they do."""
    return {name: command.meaning for name, command in COMMANDS.items()} | chat.actions.summaries()


def arguments_of(name: str, chat: "Conversation") -> Iterable[str]:
    """Return what can follow a command."""
    if name == "runtime":
        from codesdk.runtimes import runtime_names

        return runtime_names()
    command = COMMANDS.get(name)
    return () if command is None else command.values
