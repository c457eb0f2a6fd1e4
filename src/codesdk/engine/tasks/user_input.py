"""What users say to a session to what may be stored: checked, and without secrets.

Messages, and the reasons given with stops and answers. What runtimes say goes through `drafts`.
"""

from collections.abc import Callable

import msgspec

from codesdk.contract.capabilities import Capabilities
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.messages import ArtifactBlock, Message
from codesdk.engine.sessions.attachments import take_attachments
from codesdk.engine.sessions.scope import SessionScope
from codesdk.engine.tasks.validation import check_size


async def take_messages(
    scope: SessionScope, messages: list[Message], capabilities: Callable[[], Capabilities]
) -> list[Message]:
    """Check and redact user messages, and copy the files that they attach into the session.

    The runtime is asked for its `capabilities` only if there are such files.
    """
    check_size(messages, "The messages", scope.ports.limits.max_message_bytes)
    if not messages:
        raise InvalidRequest("A task needs at least one message.")
    for message in messages:
        if message.role != "user" or not message.content:
            raise InvalidRequest("A task takes user messages with at least one block each.")
    if any(isinstance(block, ArtifactBlock) for message in messages for block in message.content):
        messages = await take_attachments(scope, capabilities(), messages)
    plain = msgspec.to_builtins(messages)
    clean = scope.redactor.value(plain)
    return messages if clean is plain else msgspec.convert(clean, type=list[Message])


def take_words(scope: SessionScope, text: str) -> str:
    """Return the text that somebody gave as a reason, as it may be stored."""
    check_size(text, "A reason", scope.ports.limits.max_message_bytes)
    return scope.redactor.text(text)
