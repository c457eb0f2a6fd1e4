"""A real agent behind an editor: Codex, in a network that has only loopback, with a scripted model."""

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.acp_agent.approved import answered
from tests.acp_agent.editor import ALLOW, call, connected, local
from tests.acp_agent.judged import judging, load, stdio, websocket
from tests.daemon.rig import daemon

from codesdk import CodeSDK
from codesdk.acp_agent.place import Offer
from codesdk.testing.network import alone, tried_outside

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(autouse=True)
def only_loopback() -> Iterator[None]:
    with alone():
        yield
        assert tried_outside() == 0


@pytest.mark.slow
async def test_codex_in_an_editor_sees_an_image_and_asks_before_it_writes(tmp_path: Path):
    write = call("workspace.write", path="made.txt", content="x")
    script = {"turns": [{"steps": [{"text": "Now. "}, write]}, {"steps": [{"text": "Done."}]}]}
    offer = Offer(runtimes=("codex-sdk",), script=script)
    async with CodeSDK.open(tmp_path / "data", providers={}) as sdk, connected(local(sdk), offer) as editor:
        await editor.hello("Zed")
        (tmp_path / "workspace").mkdir()
        session = await editor.new(tmp_path / "workspace")
        image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PIXEL).decode()}
        prompt = [{"type": "text", "text": "Look."}, image]
        ending = editor.begin("session/prompt", sessionId=session, prompt=prompt)
        asked = await editor.asked()
        assert asked["params"]["toolCall"]["title"] == "workspace.write made.txt"
        editor.answer(asked, ALLOW)
        assert (await ending)["stopReason"] == "end_turn"
        assert editor.said() == "Now. Done."
        assert (tmp_path / "workspace" / "made.txt").read_text() == "x"
        assert await answered(sdk, session) == [("approve", None, "Zed")]
        # What the model was sent is stored in parts; one of them is the user's message.
        stored = await sdk.service.artifacts(session)
        parts = [await sdk.read_artifact(row.ref.artifact_id) for row in stored]
        assert any(b"input_image" in part for part in parts)
        await editor.request(
            "session/load", sessionId=session, cwd=str(tmp_path / "workspace"), mcpServers=[]
        )
        assert editor.of("user_message_chunk")[1]["content"]["mimeType"] == "image/png"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stdio", "daemon"])
async def test_the_sdk_of_others_gives_codex_an_image(tmp_path: Path, way: str):
    wishes = {"runtime": "codex", "script": {"turns": [{"steps": [{"text": "A pixel."}]}]}}
    image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PIXEL).decode()}
    given = {"cwd": str(tmp_path), "mcpServers": [], "_meta": {"codesdk": wishes}}
    with ExitStack() as stack:
        where = stdio(tmp_path / "data")
        if way == "daemon":
            where = websocket(stack.enter_context(daemon(tmp_path / "data")).url)
        async with judging("judge", where) as judge:
            session = (await judge.request("session/new", **given))["sessionId"]
            ended = await judge.request("session/prompt", sessionId=session, prompt=[image])
            assert (ended["stopReason"], judge.said()) == ("end_turn", "A pixel.")
        async with judging("judge", where) as judge:
            await load(judge, session, tmp_path)
            assert [update["content"] for update in judge.of("user_message_chunk")] == [image]
