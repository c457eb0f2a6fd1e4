"""`python -m tests.channel.killed PROGRAM ARGS…`: an arbiter that a test kills. Says when a call of its program waits."""

import asyncio
import sys

from tests.channel.judges import Judge

from codesdk.channel import Arbiter, ArbiterLimits, Descriptor, Launch, ProcessRunner


async def main() -> None:
    judge, limits = Judge(), ArbiterLimits()
    arbiter = Arbiter(ProcessRunner(Descriptor(2), Descriptor(2), limits), judge, limits)
    session = await arbiter.start_session(Launch(argv=sys.argv[1:]))
    print(vars(session)["_process"].pid, flush=True)
    serving = asyncio.create_task(arbiter.serve())
    await judge.waiting.wait()
    print("waiting", flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(main())
