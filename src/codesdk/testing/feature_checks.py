"""What a runtime may be able to do besides working on a task: sessions, forks, attachments, reasoning, its own tools.

The counterpart of `runtime_checks`. Each cell shows what a field of the capabilities promises.
"""

import base64

from codesdk.contract.entry import MARK
from codesdk.contract.messages import ArtifactBlock, Message, Reasoning, Text
from codesdk.contract.settings import SessionSettings
from codesdk.sdk import Task
from codesdk.testing.bench import Bench, payloads
from codesdk.testing.cells import Unsupported, holds, same
from codesdk.testing.program_checks import NATIVE, PROGRAM, RETRIES, native_calls
from codesdk.testing.runtime_checks import REASON, Check, make_check, says

FILE = b"The captain's parrot is called Xanthippe.\n"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
INSTRUCTIONS = "Always call the user captain."


async def _session_create(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        first, second = await bench.session(sdk), await bench.session(sdk)
        holds(first.id != second.id, "each session has an id of its own")
        same("the first answer", (await (await first.start("I am Ada.")).result()).text, "Hello.")
        task = await second.start("Who am I?")
        same("the second answer", (await task.result()).text, "Hello.")
        told = await bench.told(task)
        [created] = payloads(await bench.history(second), "session.created")
    holds("Who am I?" in told and "Ada" not in told, "a session knows nothing of another")
    capabilities = bench.capabilities
    same("how it is hosted", created.isolation.mode, capabilities.recommended_isolation_mode)
    holds(
        created.isolation.mode in capabilities.supported_isolation_modes,
        "the recommended mode is a supported one",
    )


async def _fork(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        same("the first answer", (await (await session.start("Say one.")).result()).text, "One.")
        before = await bench.history(session)
        fork = await bench.again(sdk, await session.fork())
        task = await fork.start("Say two.")
        same("the answer in the fork", (await task.result()).text, "Two.")
        told = await bench.told(task)
        same("the events of the forked session", await bench.history(session), before)
    holds("Say one." in told and "One." in told, "the model is told what was said before the fork")


async def _image(bench: Bench) -> None:
    task = await _attach(bench, PIXEL, "image/png", "pixel.png")
    if bench.capabilities.input_capture == "exact":
        sent = base64.b64encode(PIXEL).decode()
        holds(sent in await bench.told(task), "the request has the picture")


async def _file(bench: Bench) -> None:
    task = await _attach(bench, FILE, "text/plain", "parrot.txt")
    if bench.capabilities.input_capture == "exact":
        holds(FILE.decode().strip() in await bench.told(task), "the request has the text of the file")


async def _attach(bench: Bench, data: bytes, content_type: str, name: str) -> Task:
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        ref = await sdk.put_artifact(data, content_type, name)
        block = ArtifactBlock(artifact_id=ref.artifact_id, content_type=content_type, name=name)
        task = await session.start([Message(role="user", content=[Text(text="What is this?"), block])])
        same("the answer", (await task.result()).text, "I see.")
    return task


async def _reasoning(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        session = await bench.session(sdk)
        task = await session.start("Think.")
        same("the answer", (await task.result()).text, "Hello.")
        said = (await session.transcript())[-1].content
    deltas = payloads(await bench.events(task), "model.output.delta")
    thought = "".join(p.delta for p in deltas if p.kind == "reasoning_delta")
    same("what streamed as reasoning", thought, "Let me think.")
    kept = [block.text for block in said if isinstance(block, Reasoning)]
    same("the reasoning in the transcript", kept, ["Let me think."])


async def _native_asks(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        enabled = sorted(native_calls().keys() & bench.capabilities.native_tools.keys())
        if not enabled:
            raise Unsupported("native_tools names none that could be called")
        session = await bench.session(sdk, native_tools=enabled)
        task = await session.start("Leave a mark.")
        asked: list[str] = []
        async for event in task.events():
            if event.type == "approval.requested":
                asked.append(event.payload.summary)
                await task.deny(event.payload.tool_call_id or "", REASON)
        await task.result()
    holds(bool(asked), "an enabled tool of the program's own is asked about")
    holds(not (bench.workspace / MARK).exists(), "a denied tool of the program's own does not run")
    events = await bench.events(task)
    denied = [p for p in payloads(events, "tool.call.denied") if p.by.kind == "user"]
    same("the denials", [(p.name in enabled, p.reason) for p in denied], [(True, REASON)] * len(asked))
    same("calls that started", payloads(events, "tool.call.started"), [])


async def _instructions(bench: Bench) -> None:
    async with bench.sdk() as sdk:
        names = bench.capabilities.instruction_files
        if not names:
            raise Unsupported("instruction_files is empty")
        for name in names:
            (bench.workspace / name).write_text(f"{INSTRUCTIONS} ({name})\n")
        settings = SessionSettings(implicit_sources="capture")
        task = await (await bench.session(sdk, settings=settings)).start("Say hello.")
        same("the answer", (await task.result()).text, "Hello.")
        told = await bench.told(task)
    for name in names:
        holds(f"{INSTRUCTIONS} ({name})" in told, f"the model is told what {name} says")


FEATURE_CHECKS: tuple[Check, ...] = (
    make_check(
        "session create",
        _session_create,
        says("Hello."),
        says("Hello."),
        needs=("supports_session_create",),
        shows=("supported_isolation_modes", "recommended_isolation_mode"),
    ),
    make_check("fork", _fork, says("One."), says("Two."), needs=("supports_fork",)),
    make_check("images", _image, says("I see."), needs=("supports_images",), shares=True),
    make_check("artifacts", _file, says("I see."), needs=("supports_artifacts",), shares=True),
    make_check(
        "reasoning",
        _reasoning,
        {"steps": [{"reasoning": ["Let me ", "think."]}, {"text": "Hello."}]},
        needs=("supports_reasoning",),
        shares=True,
    ),
)
OWN_CHECKS: tuple[Check, ...] = (
    make_check(
        "native tool asks first",
        _native_asks,
        {"steps": [{"text": "My own way."}, *NATIVE]},
        *[says("Then not.")] * RETRIES,
        where=PROGRAM,
        shows=("native_tools",),
    ),
    make_check(
        "instruction file captured",
        _instructions,
        says("Hello."),
        where=PROGRAM,
        shows=("instruction_files",),
    ),
)
"""Those that only a program can show: the gateway says what its model was told."""
