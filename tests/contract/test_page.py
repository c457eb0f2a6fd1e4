"""The page for people who write clients: its examples are real, its code runs, and it leaves nothing out."""

import json
import re
from typing import Any, get_args

import msgspec
import pytest
from tests.contract import examples
from tests.contract.page import PAGE, fill, slots

from codesdk.contract.canonical import hash_json
from codesdk.contract.capabilities import Capabilities
from codesdk.contract.codec import decode, encode
from codesdk.contract.errors import ErrorCode, ErrorInfo, from_info
from codesdk.contract.events import EVENT_TYPES, DeltaKind, ModelInput
from codesdk.contract.messages import ContentBlock, Message
from codesdk.contract.settings import SessionSettings
from codesdk.engine.log.state import SessionState
from codesdk.engine.log.transcript import estimate_tokens, row_for

TEXT = PAGE.read_text()
ROOT = PAGE.parents[1]


def example(name: str) -> Any:
    """Return the JSON that the page shows under a name."""
    found = re.search(rf"<!-- example: {re.escape(name)} -->.*?```json\n(.*?)```", TEXT, re.DOTALL)
    assert found, name
    return json.loads(found[1])


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the tables of a section."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_is_what_the_generator_writes():
    assert fill(TEXT) == TEXT, "if meant: .venv/bin/python -m tests.contract.page"


def test_there_is_one_example_for_each_event_type():
    assert sorted(slots(TEXT)) == sorted([*EVENT_TYPES, "compiled_input", "error", "transcript"])


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_an_example_on_the_page_is_the_struct_and_reads_back_as_it(name):
    shown = example(name)
    assert shown == json.loads(encode(examples.EVENTS[name]))
    assert decode(json.dumps(shown).encode()) == examples.EVENTS[name]


def test_the_examples_of_messages_and_errors_read_back():
    assert msgspec.convert(example("transcript"), list[Message]) == examples.TRANSCRIPT
    assert msgspec.convert(example("error"), ErrorInfo) == examples.ERROR


def test_the_example_of_a_compiled_input_is_the_one_that_the_event_names():
    event = examples.EVENTS["model.input"].payload
    assert isinstance(event, ModelInput)
    assert hash_json(example("compiled_input")) == event.input_hash
    row = row_for(SessionState(session_id="ses_1", principal="local"), 2, examples.PROMPT)
    assert row.chain == example("compiled_input")["messages"]["chain_through"]
    assert estimate_tokens(examples.PROMPT) == event.context_window.estimated_tokens


def test_the_examples_tell_one_session_in_order():
    told = list(examples.EVENTS.values())
    assert [event.seq for event in told] == sorted({event.seq for event in told})
    assert [event.time for event in told] == sorted(event.time for event in told)


def test_the_code_on_the_page_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 7
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})


def test_every_event_type_has_a_row_and_a_heading():
    listed = [re.findall(r"`([\w.]+)`", row[0])[0] for row in rows("Events at a glance")[1:]]
    assert sorted(listed) == sorted(EVENT_TYPES)
    assert sorted(re.findall(r"^#### `(\S+)`$", TEXT, re.MULTILINE)) == sorted(EVENT_TYPES)


def anchors_of(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_inside_the_page_and_to_files_lead_somewhere():
    lost: list[str] = []
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        name, _, anchor = target.partition("#")
        page = PAGE.parent / name if name else PAGE
        if not page.exists() or (anchor and anchor not in anchors_of(page.read_text())):
            lost.append(target)
    assert lost == []


def test_every_error_code_is_listed_with_its_family():
    listed = {row[0].strip("`"): row[2].strip("`") for row in rows("Errors")[1:]}
    assert listed == {
        code: type(from_info(ErrorInfo(code=code, message="m", retryable=False))).__name__
        for code in get_args(ErrorCode)
    }


def test_every_setting_is_listed_with_its_default():
    listed = {row[0].strip("`"): row[1].strip("`") for row in rows("Modes and settings") if len(row) == 3}
    for name, value in msgspec.structs.asdict(SessionSettings()).items():
        assert (name, float(listed[name]) if type(value) in (int, float) else json.loads(listed[name])) == (
            name,
            value,
        )


def test_every_capability_block_and_kind_of_delta_is_listed():
    listed = {name for row in rows("Capabilities") for name in re.findall(r"`(\w+)`", row[0])}
    assert listed == set(Capabilities.__struct_fields__)
    blocks = {row[0].strip("`") for row in rows("Messages and the transcript")[1:]}
    assert blocks == {block.__struct_config__.tag for block in get_args(ContentBlock)}
    assert [kind for kind in get_args(DeltaKind) if f"`{kind}`" not in TEXT] == []
