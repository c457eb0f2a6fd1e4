"""`write_example`: a new extension that works, with a test, for somebody to start from."""

import re
from pathlib import Path

from codesdk.contract.errors import Conflict, InvalidRequest

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])?")

MANIFEST = """\
name = "{name}"
version = "0.1.0"
agent_id = "{name}"
display_name = "{name}"

[runtime]
core_api_version = 1

[entrypoints]
events = "events.py"

[capabilities]
events = ["turn.completed"]
actions = []
"""

EVENTS = '''\
"""Says in the log how each task ended. Handlers are told of events after they are stored; nobody waits for them."""


async def ended(event, tools):
    status = event.payload["data"]["status"]
    tools.logger.info("a task of %s has %s", event.payload["session"]["id"], status)
    return {"status": status}


def register(registry):
    registry.on("turn.completed", ended, priority=100, timeout_ms=1000)
'''

TEST = '''\
"""Run with pytest, in this directory."""

import asyncio
import logging
from types import SimpleNamespace

import events

from codesdk.extensions import AgentEventRegistry, AgentRuntimeEvent


def test_the_handler_says_how_a_task_ended():
    registry = AgentEventRegistry("example")
    events.register(registry)
    (registration,) = registry.registrations
    payload = {"session": {"id": "ses_1"}, "data": {"status": "completed"}}
    event = AgentRuntimeEvent(type="turn.completed", payload=payload)
    tools = SimpleNamespace(logger=logging.getLogger("test"))
    assert asyncio.run(registration.handler(event, tools)) == {"status": "completed"}
'''


def write_example(directory: Path) -> Path:
    """Write the files of an extension that is named like its directory. Raise `Conflict` if there is one already."""
    if not _NAME.fullmatch(directory.name):
        raise InvalidRequest("The name of an extension is 1 to 40 of a-z, 0-9 and . _ - between them.")
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise Conflict(f"{directory} is there already. Choose another name.") from None
    except OSError as error:
        raise InvalidRequest(f"{directory} cannot be made ({error.strerror}).") from None
    texts = {
        "extension.toml": MANIFEST.format(name=directory.name),
        "events.py": EVENTS,
        "test_events.py": TEST,
    }
    for name, text in texts.items():
        (directory / name).write_text(text)
    return directory
