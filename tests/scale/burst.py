"""A program to be killed in the middle of a long task: `python burst.py DATA_DIR SESSION`, one line per event seen."""

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from codesdk import CodeSDK


async def main() -> None:
    async with CodeSDK.open(sys.argv[1]) as sdk:
        session = await sdk.session(sys.argv[2])
        task = await session.start("Go on for long")
        async for event in task.events():
            os.write(1, f"{event.seq}\n".encode())


asyncio.run(main())
