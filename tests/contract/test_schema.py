"""The exported schemas: equal to what the code gives, and in agreement with the codec."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from tests.contract.examples import ERROR, EVENTS, TRANSCRIPT
from tests.contract.strategies import events, required_fields, structs, without
from tests.counts import COUNTS

from codesdk.contract.codec import encode
from codesdk.contract.errors import ErrorInfo
from codesdk.contract.events import CONTRACT_VERSION, EVENT_TYPES, SCHEMA_VERSION
from codesdk.contract.messages import Message
from codesdk.contract.schema import event_schemas, schema_files
from codesdk.runtimes import adapter_schema_files

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "schema"
SCRIPT = ROOT / "scripts" / "export-schema"
SCHEMAS = event_schemas()
TYPES = list(EVENT_TYPES)


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(schema)


def plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def export(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def all_files() -> dict[str, str]:
    """Return the exported files: those of the contract, and that of the adapter protocol."""
    return schema_files() | adapter_schema_files()


def nodes(schema: Any) -> list[dict[str, Any]]:
    """Return every object in a schema, however deep."""
    if isinstance(schema, list):
        return [found for item in schema for found in nodes(item)]
    if isinstance(schema, dict):
        return [schema, *(found for item in schema.values() for found in nodes(item))]
    return []


def test_the_stored_files_are_what_the_code_gives_and_there_are_no_others():
    stored = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert stored == all_files(), "if meant: .venv/bin/python scripts/export-schema"


def test_every_event_type_has_a_file_and_the_index_names_them():
    index = json.loads(schema_files()["index.json"])
    assert index == {
        "contract_version": CONTRACT_VERSION,
        "schema_version": SCHEMA_VERSION,
        "events": {name: f"{name}.json" for name in TYPES},
        "terminal": ["task.completed", "task.failed", "task.stopped"],
        "error": "error.json",
        "message": "message.json",
    }
    assert set(schema_files()) == {*index["events"].values(), "error.json", "message.json", "index.json"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in schema_files() if name != "index.json"])
def test_a_file_is_a_valid_schema_that_needs_no_other_file(name):
    schema = json.loads(schema_files()[name])
    Draft202012Validator.check_schema(schema)
    references = {node["$ref"] for node in nodes(schema) if isinstance(node.get("$ref"), str)}
    assert references <= {f"#/$defs/{definition}" for definition in schema["$defs"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in schema_files() if name != "index.json"])
def test_a_schema_lets_fields_pass_that_it_does_not_know(name):
    schema = json.loads(schema_files()[name])
    assert [node for node in nodes(schema) if node.get("additionalProperties") is False] == []


@pytest.mark.parametrize("name", TYPES)
def test_an_example_is_valid_and_stays_so_with_fields_added(name):
    event = plain(EVENTS[name])
    for part in (event, event["trace"], event["runtime"], event["payload"]):
        part["added_later"] = 1
    validator(SCHEMAS[name]).validate(event)


@pytest.mark.parametrize("name", TYPES)
def test_an_event_without_a_required_field_is_not_valid(name):
    event = plain(EVENTS[name])
    check = validator(SCHEMAS[name])
    paths = [(field,) for field in event] + [("trace", "session_id"), ("runtime", "name")]
    paths += [("payload", field) for field in required_fields(EVENT_TYPES[name])]
    assert [path for path in paths if check.is_valid(without(event, *path))] == []


@pytest.mark.parametrize("name", TYPES)
def test_an_event_of_another_type_or_version_is_not_valid(name):
    event = plain(EVENTS[name])
    check = validator(SCHEMAS[name])
    assert check.is_valid(event)
    wrong = [{"type": "other"}, {"schema_version": SCHEMA_VERSION + 1}, {"seq": 0}, {"time": "2026-01-15"}]
    assert [change for change in wrong if check.is_valid(event | change)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_whatever_the_codec_writes_is_valid(name):
    check = validator(SCHEMAS[name])

    @given(events(name))
    @settings(max_examples=COUNTS.examples // 4)
    def agree(event):
        check.validate(json.loads(encode(event)))

    agree()


@given(structs(ErrorInfo))
@settings(max_examples=COUNTS.examples // 4)
def test_every_error_is_valid(error):
    validator(json.loads(schema_files()["error.json"])).validate(plain(error))


@pytest.mark.slow
@given(structs(Message))
@settings(max_examples=COUNTS.examples // 4)
def test_every_message_is_valid(message):
    validator(json.loads(schema_files()["message.json"])).validate(plain(message))


def test_an_error_of_an_unknown_code_or_a_message_of_an_unknown_block_is_not_valid():
    error, message = (validator(json.loads(schema_files()[name])) for name in ("error.json", "message.json"))
    assert error.is_valid(plain(ERROR))
    assert not error.is_valid(plain(ERROR) | {"code": "MISFORTUNE"})
    assert message.is_valid(plain(TRANSCRIPT[0]))
    assert not message.is_valid(plain(TRANSCRIPT[0]) | {"content": [{"type": "hologram"}]})


def test_the_script_writes_a_folder_that_it_then_finds_in_order(tmp_path):
    folder = tmp_path / "schema"
    assert export(folder).returncode == 0
    assert {path.name: path.read_text() for path in folder.iterdir()} == all_files()
    done = export("--check", folder)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_script_names_each_file_that_drifted_and_leaves_it_alone(tmp_path):
    export(tmp_path)
    (tmp_path / "task.started.json").write_text("{}\n")
    (tmp_path / "error.json").unlink()
    (tmp_path / "task.teleported.json").write_text("{}\n")
    done = export("--check", tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "differs: task.started.json",
        "extra: task.teleported.json",
        "missing: error.json",
    ]
    assert (tmp_path / "task.started.json").read_text() == "{}\n"
    assert export(tmp_path).returncode == 0
    assert export("--check", tmp_path).returncode == 0
    assert not (tmp_path / "task.teleported.json").exists()


def test_a_folder_that_is_not_there_is_all_missing(tmp_path):
    done = export("--check", tmp_path / "nowhere")
    assert done.returncode == 1
    assert done.stdout.count("missing: ") == len(all_files())
