"""Runs a command for each question that waits for somebody: CODESDK_NOTIFY_COMMAND, such as "notify-send CodeSDK".

The question is its last argument and, as JSON, its input. No shell is involved. After a crash of the process the last
questions may be told of again.
"""

import asyncio
import json
import os
import shlex

LIMIT_S = 8


async def asked(event, tools):
    command = shlex.split(os.environ.get("CODESDK_NOTIFY_COMMAND", ""))
    if not command:
        return {"notified": False, "reason": "CODESDK_NOTIFY_COMMAND is not set"}
    about = {"session": event.payload["session"], "question": event.payload["data"]}
    process = await asyncio.create_subprocess_exec(
        *command, event.payload["data"]["summary"], stdin=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            await process.communicate(json.dumps(about).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        tools.logger.warning("the command ended with %s", process.returncode)
    return {"notified": process.returncode == 0}


def register(registry):
    registry.on("approval.requested", asked, timeout_ms=10_000)
