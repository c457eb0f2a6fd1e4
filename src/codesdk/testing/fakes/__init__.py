"""Stand-ins that a test drives: a runtime, tools, a clock, and an SDK in memory made of them.

`FakeRuntime` plays a list of items, an async function, or what the test emits while it runs;
`FakeTools` runs nothing and lets a test hold calls; `FrozenStamper` makes the same times and ids on every run.
"""

from codesdk.testing.fakes.runtime import (
    FAKE_CAPABILITIES,
    FakeRuntime,
    FakeTask,
    Play,
    call,
    delta,
    done,
    message,
)
from codesdk.testing.fakes.sdk import memory_sdk
from codesdk.testing.fakes.stamper import FrozenStamper
from codesdk.testing.fakes.tools import READ, WRITE, FakeRun, FakeTools, tool_spec

__all__ = [
    "FAKE_CAPABILITIES",
    "READ",
    "WRITE",
    "FakeRun",
    "FakeRuntime",
    "FakeTask",
    "FakeTools",
    "FrozenStamper",
    "Play",
    "call",
    "delta",
    "done",
    "memory_sdk",
    "message",
    "tool_spec",
]
