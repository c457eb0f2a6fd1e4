"""Small parts of the adapter: what opencode is told, what it has of a conversation, what it is started with."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import CodeSDKError, InvalidRequest
from codesdk.contract.messages import (
    ArtifactBlock,
    Code,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    user,
)
from codesdk.contract.models import ModelAccess, Wire
from codesdk.contract.ownership import GO_ON
from codesdk.contract.runtime import RuntimeEnv
from codesdk.runtimes.opencode import OpencodeOptions, copy
from codesdk.runtimes.opencode.adapter import OpencodeRuntime, choose_dialect
from codesdk.runtimes.opencode.config import WAYS, configuration, make_folders, own_variables, working_folder
from codesdk.runtimes.opencode.copy import forget, in_copy
from codesdk.runtimes.opencode.input import parts_of, retold
from codesdk.runtimes.program.environment import make_places
from codesdk.runtimes.program.retelling import RETOLD
from codesdk.runtimes.program.unanswered import sent_of


async def stored(artifact_id: str) -> bytes:
    return f"bytes of {artifact_id}".encode()


def texts(parts: list[dict[str, Any]]) -> list[str]:
    return [part.get("text", part["type"]) for part in parts]


def env_with(*wires: Wire) -> RuntimeEnv:
    access = ModelAccess(kind="key", label="a key")
    return RuntimeEnv(
        cwd="/",
        env={},
        credential_namespace="local",
        isolation=Isolation(level="namespaced", mode="subprocess"),
        models=dict.fromkeys(wires, access),
    )


async def test_nothing_to_say_is_said_as_go_on():
    assert texts(await parts_of([], stored)) == [GO_ON]
    assert texts(await retold([], stored)) == [GO_ON]


async def test_a_conversation_that_opencode_does_not_know_is_retold_with_its_calls_and_without_reasoning():
    use = ToolUse(tool_call_id="call_1", name="workspace.read", input={"path": "a"})
    asked = Message(role="assistant", content=[Reasoning(text="Hm."), Text(text="I look."), use])
    result = Message(role="tool", content=[ToolResult(tool_call_id="call_1", result={"n": 1})])
    failed = Message(role="tool", content=[ToolResult(tool_call_id="call_2", result="no", is_error=True)])
    assert texts(await retold([user("Look."), asked, result, failed, user("And?")], stored)) == [
        RETOLD,
        "[user]\nLook.",
        "[assistant]\nI look.",
        '[assistant]\ncalled workspace.read with {"path":"a"}',
        '[tool]\n{"n":1}',
        "[tool]\nfailed: no",
        "[user]",
        "And?",
    ]


async def test_images_go_as_files_and_text_as_text():
    blocks = [
        ArtifactBlock(artifact_id="a", content_type="image/png", name="a.png"),
        ArtifactBlock(artifact_id="b", content_type="text/plain; charset=utf-8", name="b.txt"),
        Code(code="x = 1", language="python"),
    ]
    image, text, code = await parts_of([Message(role="user", content=list(blocks))], stored)
    assert (image["mime"], image["filename"]) == ("image/png", "a.png")
    assert image["url"].startswith("data:image/png;base64,")
    assert text["text"] == "b.txt:\nbytes of b"
    assert code["text"] == "```python\nx = 1\n```"


@pytest.mark.parametrize("kind", ["application/pdf", "video/mp4", None])
async def test_other_attachments_are_refused(kind: str | None):
    block = ArtifactBlock(artifact_id="a", content_type=kind)
    with pytest.raises(InvalidRequest, match="takes images and text"):
        await parts_of([Message(role="user", content=[block])], stored)


def kept(role: str, number: int, *said: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": text} for text in said]
    return {"info": {"id": f"msg_{number}", "role": role}, "parts": [{"type": "step-start"}, *parts]}


def answer(text: str, *more: Any, message_id: str = "msg_2") -> Message:
    return Message(role="assistant", content=[Text(text=text), *more], message_id=message_id)


HAS = [kept("user", 1, "One?"), kept("assistant", 2, "One."), kept("user", 3, "Two?")]
USE = ToolUse(tool_call_id="call_1", name="workspace.read", input={})


@pytest.mark.parametrize(
    ("tail", "count"),
    [
        ([answer("One.")], 1),
        ([answer("One.", message_id="msg_2.1")], 1),
        ([answer("One."), user("Two?")], 2),
        ([answer("One."), user("Two?"), user("Three?")], 2),
        ([answer("One."), user("Two?"), user("Two?")], 2),
        ([answer("One."), user("Other?")], 1),
        ([answer("Something else.")], None),
        ([answer("One.", message_id="msg_9")], None),
        ([answer("One.", USE)], None),
        ([answer("One."), Message(role="tool", content=[ToolResult(tool_call_id="c", result="x")])], None),
    ],
)
async def test_what_opencode_has_of_the_last_messages(tail: list[Message], count: int | None):
    assert in_copy(HAS, tail[0], await sent_of(tail[1:], parts_of, stored)) == count


async def test_code_and_images_are_found_as_they_were_sent():
    code = Message(role="user", content=[Code(code="x = 1", language="python")])
    image = Message(role="user", content=[ArtifactBlock(artifact_id="a", content_type="image/png")])
    file = {"info": {"id": "msg_5", "role": "user"}, "parts": [{"type": "file", "mime": "image/png"}]}
    since = await sent_of([code, image, image], parts_of, stored)
    has = [*HAS[:2], kept("user", 4, "```python\nx = 1\n```"), file]
    assert in_copy(has, answer("One."), since) == 3
    assert in_copy(HAS, answer("One."), since) == 1


@pytest.mark.parametrize("odd", [[], [{}], [{"info": None, "parts": None}], [{"info": {"id": 3}}]])
def test_a_copy_of_any_shape_is_none(odd: Any):
    assert in_copy(odd, answer("One."), []) is None


def test_the_tokens_are_only_in_the_configuration_and_the_key_is_none():
    config = configuration(
        "anthropic", "m", "http://127.0.0.1:1/g/MODELTOKEN", "http://127.0.0.1:2/m/TOOLTOKEN/mcp", [], 100
    )
    told = json.dumps(config)
    assert told.count("MODELTOKEN") == told.count("TOOLTOKEN") == 1
    assert config["mcp"]["codesdk"]["url"] == "http://127.0.0.1:2/mcp"
    assert config["provider"]["codesdk"]["options"]["apiKey"] == "held-by-the-gateway"
    variables = own_variables(config, "secret")
    assert [name for name, value in variables.items() if "TOKEN" in value] == ["OPENCODE_CONFIG_CONTENT"]


@pytest.mark.parametrize("dialect", WAYS)
def test_each_kind_of_provider_is_the_gateway(dialect: Any):
    config = configuration(dialect, "m", "http://g", "http://h/m/T/mcp", [], 100)
    assert config["enabled_providers"] == ["codesdk"]
    options = config["provider"]["codesdk"]["options"]
    assert options["baseURL"].startswith("http://g/v1")


def test_the_directory_it_works_in_is_private_and_empty_and_stays_the_same(tmp_path: Path):
    env = RuntimeEnv(
        cwd=str(tmp_path / "ws"),
        env={},
        credential_namespace="local",
        isolation=Isolation(level="namespaced", mode="subprocess"),
        state_dir=str(tmp_path / "state"),
    )
    places = make_places(env, "opencode-server", "ses_1")
    make_folders(places, "1.2.3")
    work = working_folder(places)
    assert list(work.iterdir()) == []
    assert work.stat().st_mode & 0o777 == 0o700
    assert work.is_relative_to(tmp_path / "state")


@pytest.mark.parametrize(
    ("wires", "asked", "chosen"),
    [
        (("chat", "responses", "anthropic", "gemini"), None, "openai-compatible"),
        (("anthropic",), None, "anthropic"),
        (("gemini",), None, "google"),
        (("chat", "responses"), "openai", "openai"),
        (("chat", "anthropic"), "anthropic", "anthropic"),
    ],
)
async def test_the_provider_is_the_one_that_is_asked_for_or_the_first_with_a_key(
    wires: tuple[Wire, ...], asked: Any, chosen: str
):
    env = env_with(*wires)
    assert choose_dialect(OpencodeOptions(provider=asked), env) == chosen
    assert (await OpencodeRuntime().auth_status(env)).ok


async def test_a_provider_without_a_key_is_refused_with_what_to_do():
    with pytest.raises(CodeSDKError, match="There is no key for anthropic") as raised:
        choose_dialect(OpencodeOptions(provider="anthropic"), env_with("chat"))
    assert raised.value.code == "AUTH_REQUIRED"
    status = await OpencodeRuntime().auth_status(env_with())
    assert not status.ok
    assert "OPENAI_API_KEY" in (status.to_do or "")


def test_a_token_is_taken_out_of_the_database_and_of_its_free_pages(tmp_path: Path):
    database, token = tmp_path / "opencode.db", "TOKEN-0123456789"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE message (id TEXT PRIMARY KEY, data TEXT, number INTEGER)")
        rows = [(str(number), f"url {token} " * 200, number) for number in range(200)]
        connection.executemany("INSERT INTO message VALUES (?, ?, ?)", rows)
        connection.commit()
        connection.execute("DELETE FROM message WHERE number > 100")
        connection.commit()
    forget(database, [token])
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    with closing(sqlite3.connect(database)) as connection:
        [told] = connection.execute("SELECT data FROM message WHERE id = '1'").fetchone()
    assert told.startswith("url [redacted] url")
    assert token not in told
    assert left.count(token.encode()) == 0


@pytest.mark.parametrize("content", [None, b""])
def test_where_there_is_nothing_nothing_is_changed(tmp_path: Path, content: bytes | None):
    database = tmp_path / "opencode.db"
    if content is not None:
        database.write_bytes(content)
    forget(database, ["TOKEN-0123456789"])
    assert (database.read_bytes() if content is not None else None) == content


def test_what_is_no_database_cannot_be_cleaned_and_is_removed(tmp_path: Path):
    (tmp_path / "opencode.db").write_bytes(b"no database at all" * 100)
    (tmp_path / "opencode.db-wal").write_bytes(b"TOKEN-0123456789")
    forget(tmp_path / "opencode.db", ["TOKEN-0123456789"])
    assert list(tmp_path.iterdir()) == []


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.mark.parametrize(
    "schema",
    [
        f"CREATE TRIGGER slow BEFORE UPDATE ON message BEGIN {ENDLESS}; END",
        "CREATE TRIGGER back AFTER UPDATE ON message BEGIN UPDATE kept SET data = old.data; END",
    ],
    ids=["without end", "keeps what is taken out"],
)
def test_nothing_that_a_database_brings_with_it_is_run(tmp_path: Path, schema: str):
    database = tmp_path / "opencode.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE message (data TEXT)")
        connection.execute("CREATE TABLE kept (data TEXT)")
        connection.execute("INSERT INTO message VALUES ('TOKEN-0123456789')")
        connection.execute(schema)
        connection.commit()
    forget(database, ["TOKEN-0123456789"])
    assert not database.exists()


def test_cleaning_that_takes_too_long_ends_and_the_database_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    database = tmp_path / "opencode.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE message (data TEXT)")
        connection.executemany("INSERT INTO message VALUES (?)", [("x" * 100,)] * 1000)
        connection.commit()
    monkeypatch.setattr(copy, "_STEPS", 100)
    monkeypatch.setattr(copy, "_CLEAN_S", -1.0)
    forget(database, ["TOKEN-0123456789"])
    assert not database.exists()


def test_a_link_to_another_database_is_removed_and_not_followed(tmp_path: Path):
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE message (data TEXT)")
        connection.execute("INSERT INTO message VALUES ('TOKEN-0123456789')")
        connection.commit()
    (tmp_path / "opencode.db").symlink_to(other)
    forget(tmp_path / "opencode.db", ["TOKEN-0123456789"])
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]
    assert b"TOKEN-0123456789" in other.read_bytes()
