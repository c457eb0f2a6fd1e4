"""`codesdk gateway` as a process of its own, and the examples of its document."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cli.shell import MODULE, Shell, environment
from tests.gateway.peers import PATHS, PATIENCE_S, WIRES, ask, body_of, error_text, peer, post, say, stream

from codesdk.gateway.cassettes.cassette import dump_cassette, load_cassette
from codesdk.gateway.reply import RawRequest, Reply
from codesdk.gateway.scripted import ScriptedModel
from codesdk.gateway.server import Gateway
from codesdk.gateway.wires.exchange import Ask, Codec
from codesdk.script import parse_script

DOCUMENT = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
HELLO = "turns:\n  - steps:\n      - text: [Hel, lo]\n"
KEYS = {
    "ANTHROPIC_API_KEY": "canary-of-anthropic-01",
    "OPENAI_API_KEY": "canary-of-openai-02",
    "GEMINI_API_KEY": "canary-of-gemini-03",
}


class Running:
    """A gateway in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, first: bytes) -> None:
        self.process = process
        self.first = json.loads(first)
        self.base_url: str = self.first["base_url"]
        self.out = ""
        self.err = ""

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and return the exit code."""
        self.process.send_signal(number)
        out, err = await asyncio.wait_for(self.process.communicate(), PATIENCE_S)
        self.out, self.err = out.decode(), err.decode()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def running(home: Path, *args: str, **env: str) -> AsyncIterator[Running]:
    """Start a gateway and wait until it says where it is."""
    process = await asyncio.create_subprocess_exec(
        *MODULE,
        "gateway",
        *args,
        cwd=home,
        env=clean(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        first = await asyncio.wait_for(process.stdout.readline(), 2 * PATIENCE_S)
        assert first, await process.communicate()
        yield Running(process, first)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def clean(extra: dict[str, str]) -> dict[str, str]:
    """Return an environment without anybody's keys."""
    return {name: value for name, value in environment({}).items() if name not in KEYS} | extra


class Provider(ScriptedModel):
    """A scripted provider that keeps the logins it was sent."""

    def __init__(self, script: str = f"loop: true\n{HELLO}") -> None:
        super().__init__(parse_script(script, "provider.yaml"))
        self.logins: list[str] = []

    async def answer(self, codec: Codec, ask: Ask, request: RawRequest) -> Reply:
        names = ("x-api-key", "x-goog-api-key", "authorization")
        self.logins += [value for name, value in request.headers if name in names]
        return await super().answer(codec, ask, request)


def origins(url: str) -> list[str]:
    return [f"--anthropic-origin={url}", f"--openai-origin={url}/", f"--gemini-origin={url}"]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_a_script_answers_every_official_client_and_a_clean_end_is_a_success(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(f"loop: true\n{HELLO}")
    async with running(tmp_path, "--script", "s.yaml") as gateway:
        assert [await ask(gateway.base_url, wire) for wire in WIRES] == ["Hello"] * 4
        assert await gateway.end() == 0
    url = gateway.first["url"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    assert re.fullmatch(rf"{url}/g/[\w-]{{32}}", gateway.base_url)
    assert gateway.out == ""
    assert gateway.err == (
        "A scripted model. Any key works. Point a client at it:\n"
        f"  export ANTHROPIC_BASE_URL={gateway.base_url}\n"
        f"  export OPENAI_BASE_URL={gateway.base_url}/v1\n"
        f"  export GOOGLE_GEMINI_BASE_URL={gateway.base_url}\n"
        "Ctrl-C ends it.\n"
        "4 of 1 turns in the script were played.\n"
    )


async def test_a_script_that_ran_out_and_requests_without_the_token_are_told_at_the_end(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(HELLO)
    async with running(tmp_path, "--script", "s.yaml") as gateway:
        assert (await post(gateway.first["url"], "chat")).status_code == 401
        assert (await post(gateway.base_url, "chat")).status_code == 200
        assert (await post(gateway.base_url, "chat")).status_code == 400
        assert await gateway.end(signal.SIGINT) == 1
    assert gateway.err.endswith(
        "1 of 1 turns in the script were played.\n"
        "Requests refused because they lacked the token: 1.\n"
        "problem: The script has 1 turns; request 2 asks for another.\n"
    )


async def test_what_was_recorded_is_replayed_with_the_provider_gone_and_no_key_is_anywhere(tmp_path: Path):
    provider = Provider()
    async with Gateway() as upstream:
        options = ["--record", "c.jsonl", *origins(upstream.admit(provider))]
        async with running(tmp_path, *options, **KEYS) as gateway:
            recorded = [(await post(gateway.base_url, wire)).content for wire in WIRES]
            assert await gateway.end() == 0
    openai = f"Bearer {KEYS['OPENAI_API_KEY']}"
    assert provider.logins == [KEYS["ANTHROPIC_API_KEY"], openai, openai, KEYS["GEMINI_API_KEY"]]
    assert "Keys added: ANTHROPIC_API_KEY, GEMINI_API_KEY, OPENAI_API_KEY." in gateway.err
    assert "4 exchanges written to c.jsonl." in gateway.err
    said = gateway.out + gateway.err + (tmp_path / "c.jsonl").read_text()
    assert not [key for key in KEYS.values() if key in said]
    async with running(tmp_path, "--replay", "c.jsonl") as gateway:
        assert [(await post(gateway.base_url, wire)).content for wire in WIRES] == recorded
        assert await gateway.end() == 0
    assert gateway.err.endswith("4 answers played, 0 not asked for.\n")
    assert provider.played == 4


async def test_a_request_that_replay_does_not_find_is_told_at_the_end(tmp_path: Path):
    (tmp_path / "c.jsonl").write_bytes(dump_cassette([]))
    async with running(tmp_path, "--replay", "c.jsonl", "--pace") as gateway:
        refused = await post(gateway.base_url, "anthropic")
        assert await gateway.end() == 1
    problem = "POST /v1/messages is not in the cassette, which is empty."
    assert error_text("anthropic", refused.content) == f"replay: {problem}"
    assert gateway.err.endswith(f"0 answers played, 0 not asked for.\nproblem: {problem}\n")


async def test_requests_pass_with_the_login_of_the_client_where_there_is_no_key(tmp_path: Path):
    provider = Provider()
    async with Gateway() as upstream, running(tmp_path, *origins(upstream.admit(provider))) as gateway:
        assert await ask(gateway.base_url, "anthropic", key="own-login") == "Hello"
        assert await gateway.end() == 0
    assert [login.removeprefix("Bearer ") for login in provider.logins] == ["own-login"]
    assert "Keys added: none, a client needs its own login." in gateway.err
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_in_mid_stream_leaves_a_whole_cassette(tmp_path: Path, number: signal.Signals):
    async with peer(stream(b"data: {}\n\n")) as provider, httpx2.AsyncClient() as client:
        async with running(tmp_path, "--record", "c.jsonl", *origins(provider.url)) as gateway:
            sent = client.stream("POST", gateway.base_url + PATHS["chat"], json=body_of("chat"))
            answer = await sent.__aenter__()
            assert await anext(answer.aiter_raw()) == b"data: {}\n\n"
            assert await gateway.end(number) == 0
        await answer.aclose()
    assert [kept.ending for kept in load_cassette(tmp_path / "c.jsonl")] == ["abandoned"]
    assert names_in(tmp_path) == ["c.jsonl"]


async def test_what_passed_without_being_recorded_is_told_at_the_end(tmp_path: Path):
    async with (
        peer(say(b"{}")) as provider,
        httpx2.AsyncClient() as client,
        running(tmp_path, "--record", "c.jsonl", *origins(provider.url)) as gateway,
    ):
        await client.get(f"{gateway.base_url}/v1/models")
        assert await gateway.end() == 0
    assert gateway.err.endswith(
        "0 exchanges written to c.jsonl.\nPassed on and not recorded: GET /v1/models.\n"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--script", "a", "--replay", "b"], "Choose one of --script, --replay and --record."),
        (["--script", "a", "--openai-origin", "http://x"], "An origin is for requests that are passed on"),
        (["--pace"], "--pace needs --replay."),
        (["--openai-origin", "https://me:canary@host"], "An origin is http:// or https:// and a host"),
        (["--gemini-origin", "ftp://host"], "An origin is http:// or https:// and a host"),
        (["--gemini-origin", "http://host:99999"], "An origin is http:// or https:// and a host"),
        (["--anthropic-origin", "http://[host"], "An origin is http:// or https:// and a host"),
        (["--script", "none.yaml"], "none.yaml: there is no script file here"),
        (["--replay", "none.jsonl"], "none.jsonl: there is no cassette here"),
        (["--replay", "bad.jsonl"], "bad.jsonl, line 1: this is not a cassette"),
        (["--record", "."], ". is a directory"),
        (["--record", "none/c.jsonl"], "none/c.jsonl cannot be written"),
        (["--port", "70000"], "70000 is not in the range"),
    ],
)
def test_a_command_that_cannot_work_says_why_and_starts_nothing(
    tmp_path: Path, args: list[str], message: str
):
    (tmp_path / "bad.jsonl").write_text("turns: []\n")
    done = Shell(tmp_path).codesdk("gateway", *args)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err
    assert "canary" not in done.err


def test_a_port_that_is_taken_is_said_and_a_recording_of_that_name_is_kept(tmp_path: Path):
    (tmp_path / "c.jsonl").write_text("precious")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = Shell(tmp_path).codesdk("gateway", "--record", "c.jsonl", "--port", str(port))
    assert (done.code, done.out) == (2, "")
    assert f"Port {port} cannot be used" in done.err
    assert (tmp_path / "c.jsonl").read_text() == "precious"


def test_a_key_that_is_too_short_to_be_one_is_refused_without_being_shown(tmp_path: Path):
    done = subprocess.run(
        [*MODULE, "gateway"],
        env=clean({"OPENAI_API_KEY": "xyz"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "A secret must have at least 4 characters" in done.stderr
    assert "xyz" not in done.stderr


# --- the document ---


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def run_example(command: list[str], home: Path) -> str:
    (home / "hello.yaml").write_text(blocks("yaml")[0])
    own = Path(sys.executable).parent
    env = clean({"PATH": f"{own}{os.pathsep}{os.environ['PATH']}"})
    done = subprocess.run(
        command,
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def test_the_library_example_runs_as_printed(tmp_path: Path):
    *_, example = blocks("python")
    said = run_example([sys.executable, "-c", example], tmp_path)
    assert said == "Hello from a script.\nHello from a script.\n[] 0\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the example uses curl")
def test_the_shell_example_runs_as_printed(tmp_path: Path):
    said = run_example(["bash", "-c", blocks("sh")[0]], tmp_path)
    answer: dict[str, Any] = json.loads(said)
    assert answer["content"] == [{"type": "text", "text": "Hello from a script."}]


def test_every_option_and_field_is_in_the_document():
    from codesdk.cli.commands.gateway import gateway
    from codesdk.gateway.cassettes.cassette import Exchange
    from codesdk.gateway.cassettes.scrub import KEPT_HEADERS, KEPT_QUERY
    from codesdk.gateway.cassettes.volatile import SESSION_FIELDS

    place = {"--data-dir", "--url", "--token"}  # which every command takes
    options = {name for param in gateway.params for name in param.opts} - place
    words = {*options, *Exchange.__struct_fields__, *KEPT_HEADERS, *KEPT_QUERY, *SESSION_FIELDS}
    assert sorted(word for word in words if f"`{word}" not in DOCUMENT and f" {word} " not in DOCUMENT) == []


def test_every_document_it_links_to_is_there():
    linked = re.findall(r"\]\(([^)#]+)\)", DOCUMENT)
    assert [target for target in linked if not (Path(__file__).parents[2] / "docs" / target).exists()] == []
