"""The messages: each has a sample that both sides and the published schema take, and survives the way back."""

import json
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from tests.runtimes.external.samples import ITEMS, PARAMS, RESULTS, frames

from codesdk.contract.runtime import Draft
from codesdk.runtimes.external.items import from_wire, to_wire
from codesdk.runtimes.external.messages import METHODS, ItemOf, Nothing
from codesdk.runtimes.external.schema import adapter_schema, adapter_schema_files


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_message_is_read_as_it_was_written(method: Any):
    for sample in PARAMS[method.name]:
        data = msgspec.json.encode(sample)
        read = msgspec.json.decode(data, type=method.params)
        assert msgspec.json.decode(msgspec.json.encode(read), type=method.params) == read
    if method.result is not None:
        result = RESULTS.get(method.name, Nothing())
        assert msgspec.json.decode(msgspec.json.encode(result), type=method.result) == result


def test_every_item_of_the_contract_has_a_kind_and_comes_back_as_it_was():
    kinds = {item["type"] for item in ITEMS}
    assert kinds == {kind.__struct_config__.tag for kind in ItemOf.__annotations__["item"].__args__}
    for item in ITEMS:
        read = msgspec.json.decode(msgspec.json.encode({"task_id": "t", "item": item}), type=ItemOf)
        taken = from_wire(read.item)
        plain = Draft(taken.payload, taken.raw) if isinstance(taken, Draft) else _untagged(taken)
        assert to_wire(plain) == read.item


def _untagged(item: Any) -> Any:
    kind = type(item).__mro__[1]
    return kind(**msgspec.structs.asdict(item))


@pytest.mark.parametrize("caller", ["engine", "adapter"])
def test_the_schema_takes_every_message(caller: str):
    validator = Draft202012Validator(adapter_schema())
    for line in frames(caller):
        validator.validate(json.loads(line))


def test_the_schema_refuses_what_the_engine_refuses():
    validator = Draft202012Validator(adapter_schema())
    bad = {"jsonrpc": "2.0", "method": "item", "params": {"task_id": "t", "item": {"type": "finished"}}}
    assert not validator.is_valid(bad)
    assert not validator.is_valid({"jsonrpc": "2.0", "method": "nothing of ours", "params": {}})


def test_the_schema_names_every_method_with_its_params_and_its_result():
    [text] = adapter_schema_files().values()
    methods = json.loads(text)["methods"]
    assert {name: set(found) for name, found in methods.items()} == {
        method.name: {"caller", "kind", "params", *(["result"] if method.result else [])}
        for method in METHODS
    }
