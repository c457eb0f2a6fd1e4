"""The public schemas: what they say is what the parser takes."""

import jsonschema
import msgspec
import pytest

from codesdk.contract.errors import InvalidRequest
from codesdk.minicode.config import (
    PluginsConfigSchema,
    ProviderIdSchema,
    ResolvedSdkConfig,
    ResolvedSdkConfigSchema,
    SdkConfig,
    SdkConfigSchema,
    load_config,
)


def test_a_schema_parses_or_raises_one_clear_error():
    assert ProviderIdSchema.parse("google") == "google"
    with pytest.raises(InvalidRequest, match="The value: invalid enum value 'acme'"):
        ProviderIdSchema.parse("acme")
    assert PluginsConfigSchema.parse({"a": {"b": [1]}}) == {"a": {"b": [1]}}
    with pytest.raises(InvalidRequest, match="my file: expected `object`, got `array`"):
        PluginsConfigSchema.parse([], "my file")
    assert SdkConfigSchema.parse({"agent": {"max_steps": 3}}).agent.max_steps == 3


def test_what_holds_is_valid_by_its_own_schema(tmp_path):
    resolved = load_config(tmp_path, env={}).resolved
    plain = msgspec.to_builtins(resolved)
    assert ResolvedSdkConfigSchema.parse(plain) == resolved
    jsonschema.Draft202012Validator(ResolvedSdkConfigSchema.json_schema).validate(plain)
    assert isinstance(resolved, ResolvedSdkConfig)


@pytest.mark.parametrize(
    "value",
    [{}, {"provider": "openai", "catalog": {"openai": ["a"]}}, {"plugins": {"p": {"x": None}}},
     {"providers": {"openai-compatible": {"base_url": "http://localhost/v1", "name": "Mine"}}}],
)  # fmt: skip
def test_the_json_schema_takes_what_the_parser_takes(value):
    jsonschema.Draft202012Validator(SdkConfigSchema.json_schema).validate(value)
    assert isinstance(SdkConfigSchema.parse(value), SdkConfig)


@pytest.mark.parametrize(
    "value",
    [{"provider": "acme"}, {"nope": 1}, {"catalog": {"openai": [1]}}, {"tools": {"timeout_ms": 1}},
     {"providers": {"openai": {"name": "x"}}}, {"model": "../x"}],
)  # fmt: skip
def test_the_json_schema_refuses_what_the_parser_refuses(value):
    assert not jsonschema.Draft202012Validator(SdkConfigSchema.json_schema).is_valid(value)
    with pytest.raises(InvalidRequest):
        SdkConfigSchema.parse(value)
