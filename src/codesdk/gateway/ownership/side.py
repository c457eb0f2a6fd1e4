"""A model request → whether it is a side request: a title, a suggestion, a review, and not the conversation.

A request is the conversation's if it holds what CodeSDK said to the agent, and nothing marks it as another kind. What
is unknown is a side request, so it gets none of our tools. A text that only quotes us in its middle is unknown, too:
that is how a review or a title begins, and tools in their hands are worse than a conversation that fails for want of
them, which its task says aloud.
"""

from collections.abc import Iterable

from codesdk.contract.ownership import GO_ON, SideMark, WireRules
from codesdk.gateway.capture.purpose import purpose_of
from codesdk.gateway.wires.exchange import Ask, AskMessage, AskText


def is_side(ask: Ask, rules: WireRules, messages: Iterable[str]) -> bool:
    """Return whether a request is not part of the conversation. `messages` are what CodeSDK gave to the agent."""
    if purpose_of(ask) != "main":
        return True
    if any(_matches(mark, ask) for mark in rules.side):
        return True
    given = [message for message in messages if message.strip()]
    # Without words, as with an image alone, there is nothing to recognize the conversation by.
    return bool(given) and not _holds(ask, given, rules.appends)


def _holds(ask: Ask, given: list[str], appends: Iterable[str]) -> bool:
    """Return whether a message of the user is one of ours, whatever blanks it is written with.

    Agents may put something of their own before it, and behind it what their entry says.
    """
    endings = tuple({_plain(text + added) for text in (*given, GO_ON) for added in ("", *appends)})
    return any(
        _plain(text).endswith(endings)
        for message in reversed(ask.messages)
        if message.role == "user"
        for text in _texts(message)
    )


def _plain(text: str) -> str:
    return " ".join(text.split())


def _matches(mark: SideMark, ask: Ask) -> bool:
    if mark == SideMark():
        return False
    if mark.model is not None and mark.model != ask.model:
        return False
    if mark.tool is not None and mark.tool not in ask.tools:
        return False
    return mark.text is None or mark.text.lower() in _instructions(ask)


def _instructions(ask: Ask) -> str:
    """Return the system texts and the last message of the user, in lower case."""
    users = [message for message in ask.messages if message.role == "user"]
    told = [message for message in ask.messages if message.role == "system"] + users[-1:]
    return "\n".join(text for message in told for text in _texts(message)).lower()


def _texts(message: AskMessage) -> list[str]:
    return [block.text for block in message.blocks if isinstance(block, AskText)]
