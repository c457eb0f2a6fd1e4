"""One principal names, attaches, reads or forks with another's artifacts: it gets nothing, and learns nothing."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from codesdk import CodeSDK, CodeSDKError, InvalidRequest, NotFound, Session
from codesdk.contract import events as ev
from codesdk.contract.actions import Caller, StartTask
from codesdk.contract.messages import ArtifactBlock, ArtifactRef, Message, Text
from codesdk.contract.runtime import Draft, RuntimeItem
from codesdk.engine.checks.verify import verify_session
from codesdk.local import DataDir, TokenFile
from codesdk.local.holder import HolderService
from codesdk.testing.fakes import FakeRuntime, FakeTask, done

pytestmark = pytest.mark.anyio

NOTHING = "art_0000000000zzzzzzzzzzzzzzzz"
UNKNOWN = ArtifactRef(artifact_id=NOTHING, content_hash="sha256:0", content_type="text/plain", size_bytes=1)
PRIVATE = b"what ann wrote"


class World:
    """Ann's artifacts, and a session of Bob's whose runtime does as the test says."""

    def __init__(self, sdk: CodeSDK, root: Path) -> None:
        self.ann, self.bob = sdk.as_principal("ann"), sdk.as_principal("bob")
        self.sdk = sdk
        self.root = root
        self.refs: list[ArtifactRef] = []
        """An upload of hers, and an artifact of her session."""
        self.content: list[Any] = []
        """What the runtime says in its next message."""
        self.read: list[str] = []
        """What the runtime was told when it asked for the artifacts."""

    async def play(self, task: FakeTask) -> AsyncIterator[RuntimeItem]:
        if not self.refs:
            self.refs.append(await task.host.put_artifact(PRIVATE, "text/plain", "mine.txt"))
        for name in [*(ref.artifact_id for ref in self.refs), NOTHING]:
            try:
                self.read.append((await task.host.read_artifact(name)).decode())
            except CodeSDKError as error:
                self.read.append(f"{error.code} {error.message.replace(name, '')}")
        yield Draft(ev.OutputCompleted(message_id="m1", content=self.content or [Text(text="Hm.")]))
        yield done()

    async def session(self, sdk: CodeSDK) -> Session:
        return await sdk.create_session(runtime="fake", workspace=self.root)


@asynccontextmanager
async def world(root: Path) -> AsyncGenerator[World]:
    made: list[World] = []
    runtime = FakeRuntime(lambda task: made[0].play(task))
    async with CodeSDK.open(root / "data", runtimes={"fake": runtime}) as sdk:
        made.append(World(sdk, root))
        await (await (await made[0].session(made[0].ann)).start("Go.")).result()
        made[0].refs.append(await made[0].ann.put_artifact(PRIVATE, "text/plain", "mine.txt"))
        made[0].read.clear()
        yield made[0]


def words(content: list[Any]) -> list[Message]:
    return [Message(role="user", content=content)]


async def refusal(doing: Any, name: str) -> tuple[str, str]:
    with pytest.raises(CodeSDKError) as refused:
        await doing
    return refused.value.code, refused.value.message.replace(name, "")


@pytest.mark.parametrize("through", ["the engine", "the control socket"])
async def test_what_is_anothers_cannot_be_attached_and_does_not_seem_to_exist(tmp_path: Path, through: str):
    async with world(tmp_path) as w:
        mine = await w.session(w.bob)
        reading = await DataDir.open_reader(tmp_path / "data")
        away = HolderService(reading, Caller.of("bob"))
        service = w.bob.service if through == "the engine" else away
        found: set[tuple[str, str]] = set()
        for ref in (*w.refs, UNKNOWN):
            for stated in (None, ref.content_hash):
                block = ArtifactBlock(artifact_id=ref.artifact_id, content_hash=stated)
                action = StartTask(session_id=mine.id, message=words([block]))
                found.add(await refusal(service.execute(action), ref.artifact_id))
        await reading.close()
        assert found == {("NOT_FOUND", "There is no artifact  to attach.")}


async def test_what_is_anothers_cannot_be_read(tmp_path: Path):
    async with world(tmp_path) as w:
        found = {
            await refusal(w.bob.read_artifact(ref.artifact_id), ref.artifact_id) for ref in (*w.refs, UNKNOWN)
        }
        assert found == {("NOT_FOUND", "There is no artifact .")}
        await (await (await w.session(w.bob)).start("Go.")).result()
        assert w.read == ["NOT_FOUND There is no artifact  in this session."] * 3


async def test_a_fork_takes_nothing_that_is_anothers(tmp_path: Path):
    async with world(tmp_path) as w:
        session = await w.session(w.bob)
        w.content = [ArtifactBlock(artifact_id=ref.artifact_id) for ref in w.refs]
        await (await session.start("Name them.")).result()
        w.content = []
        w.read.clear()
        fork = await session.fork()
        names = {row.ref.name for row in await fork.artifacts(limit=100)}
        assert "mine.txt" not in names
        await (await fork.start("Read them.")).result()
        assert not [text for text in w.read if not text.startswith("NOT_FOUND")]
        for ref in w.refs:
            assert (await w.ann.read_artifact(ref.artifact_id)) == PRIVATE


async def test_a_check_says_the_same_of_what_is_anothers_and_of_what_is_not(tmp_path: Path):
    async with world(tmp_path) as w:
        session = await w.session(w.bob)
        w.content = [ArtifactBlock(artifact_id=ref.artifact_id) for ref in (*w.refs, UNKNOWN)]
        await (await session.start("Name them.")).result()
        findings = await verify_session(w.sdk.archive.log, w.sdk.archive.blobs, session.id)
        said = {finding.message.partition(", ")[2] for finding in findings}
        assert (len(findings), said) == (3, {"which is not stored"})


async def test_the_same_content_of_another_is_an_artifact_of_its_own(tmp_path: Path):
    async with world(tmp_path) as w:
        again = await w.bob.put_artifact(PRIVATE, "text/plain", "mine.txt")
        other = await w.bob.put_artifact(b"what nobody wrote", "text/plain", "mine.txt")
        assert again.artifact_id not in {ref.artifact_id for ref in w.refs}
        plain = [
            msgspec.structs.replace(ref, artifact_id="", content_hash="", size_bytes=0)
            for ref in (again, other)
        ]
        assert plain[0] == plain[1]
        assert await w.ann.read_artifact(w.refs[1].artifact_id) == PRIVATE


async def test_a_principal_named_like_a_session_is_not_that_session(tmp_path: Path):
    async with world(tmp_path) as w:
        (owner,) = await w.ann.sessions()
        with pytest.raises(InvalidRequest, match="looks like a session's id"):
            w.sdk.as_principal(owner.session_id)
        posing = w.sdk.as_caller(Caller.of(owner.session_id))  # even so
        session = await w.session(posing)
        await (await session.start("Go.")).result()
        assert {text[:9] for text in w.read} == {"NOT_FOUND"}
        block = ArtifactBlock(artifact_id=w.refs[0].artifact_id)
        with pytest.raises(NotFound):
            await session.start(words([block]))


def test_no_token_is_made_for_a_principal_named_like_a_session(tmp_path: Path):
    with pytest.raises(InvalidRequest, match="looks like a session's id"):
        TokenFile(tmp_path).add("ses_01m7gc6tgdb2qzghhhe86gdzdw", ["read"])
