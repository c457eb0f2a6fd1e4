"""Five layers: which value holds, where it is from, and the one error for an invalid one anywhere."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.minicode.config.rig import Machine

from codesdk.contract.errors import CodeSDKError, Forbidden, InvalidRequest
from codesdk.minicode.config import Origin, ProviderAccess, Setting
from codesdk.minicode.config.files import MAX_BYTES
from codesdk.minicode.models import PROVIDERS
from codesdk.minicode.types import ProviderId

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_anything_the_defaults_hold(machine: Machine):
    loaded = machine.load()
    resolved = loaded.resolved
    assert (resolved.provider, resolved.model) == ("openai", resolved.catalog["openai"][0])
    assert resolved.hooks.timeout_ms == 1500
    assert resolved.hooks.off_after == 3
    assert resolved.paths.config == str(machine.config)
    assert Path(resolved.paths.sessions).is_absolute()
    assert loaded.warnings == []


def test_each_layer_wins_over_those_before_it_field_by_field(machine: Machine):
    machine.write_global({"tools": {"timeout_ms": 5000, "max_shown_chars": 9000}, "agent": {"max_steps": 9}})
    assert machine.load().resolved.tools.timeout_ms == 5000
    machine.write_project({"tools": {"timeout_ms": 4000}})
    assert machine.load().resolved.tools.timeout_ms == 4000
    assert machine.load(MINICODE_TOOL_TIMEOUT_MS="6000").resolved.tools.timeout_ms == 6000
    both = machine.load({"tools": {"timeout_ms": 7000}}, MINICODE_TOOL_TIMEOUT_MS="6000")
    assert both.resolved.tools.timeout_ms == 7000
    assert both.resolved.tools.max_shown_chars == 9000
    assert both.resolved.agent.max_steps == 9


def test_the_origin_of_every_value_is_kept(machine: Machine):
    machine.write_global({"agent": {"max_steps": 9, "instructions": "Be kind."}})
    machine.write_project({"model": "m", "agent": {"instructions": "Use tabs."}})
    loaded = machine.load({"tools": {"timeout_ms": 7000}}, MINICODE_SANDBOX="bubblewrap")
    wanted = {
        "hooks.timeout_ms": Origin(layer="default", source="default"),
        "agent.max_steps": Origin(layer="global", source=str(machine.global_file)),
        "model": Origin(layer="project", source=str(machine.project_file)),
        "agent.instructions": Origin(
            layer="project", source=f"{machine.project_file}, after {machine.global_file}"
        ),
        "sandbox.backend": Origin(layer="environment", source="MINICODE_SANDBOX"),
        "tools.timeout_ms": Origin(layer="overrides", source="config_overrides"),
    }
    assert {field: loaded.origin(field) for field in wanted} == wanted
    assert {setting.field for setting in loaded.settings()} >= set(wanted)
    assert loaded.resolved.agent.instructions == "Be kind.\n\nUse tabs."


def test_keys_are_used_and_never_shown(machine: Machine):
    machine.write_global({"providers": {"google": {"api_key": KEY}}, "plugins": {"demo": {"token": KEY}}})
    loaded = machine.load(ANTHROPIC_API_KEY=f"{KEY}-2")
    assert loaded.access("google").api_key == KEY
    assert loaded.access("anthropic").api_key == f"{KEY}-2"
    assert sorted(loaded.secrets()) == [KEY, f"{KEY}-2"]
    assert (
        Setting(
            field="providers.google.api_key",
            value="(set)",
            origin=Origin(layer="global", source=str(machine.global_file)),
        )
        in loaded.settings()
    )
    shown = f"{loaded!r}{loaded.resolved!r}{loaded.settings()!r}{loaded.access('google')!r}"
    assert KEY not in shown + msgspec.json.encode(loaded.resolved).decode()
    assert loaded.resolved.providers["anthropic"].key_from == "ANTHROPIC_API_KEY"


def test_a_key_alone_chooses_its_provider(machine: Machine):
    for variable, provider in [
        ("OPENAI_API_KEY", "openai"),
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("GEMINI_API_KEY", "google"),
        ("GOOGLE_API_KEY", "google"),
    ]:
        resolved = machine.load(**{variable: KEY}).resolved
        assert (resolved.provider, resolved.model) == (provider, resolved.catalog[resolved.provider][0])
    local = machine.load(OPENAI_COMPATIBLE_BASE_URL="http://127.0.0.1:11434/v1", MINICODE_MODEL="qwen3:8b")
    assert (local.resolved.provider, local.resolved.model) == ("openai-compatible", "qwen3:8b")
    assert local.access("openai-compatible") == ProviderAccess(
        provider="openai-compatible", base_url="http://127.0.0.1:11434/v1"
    )


def test_gemini_is_read_before_google_and_an_empty_variable_is_none(machine: Machine):
    assert machine.load(GEMINI_API_KEY="first-key", GOOGLE_API_KEY="second").access("google").api_key == (
        "first-key"
    )
    assert machine.load(GEMINI_API_KEY=" ", GOOGLE_API_KEY="second").access("google").api_key == "second"


def test_a_model_goes_with_the_provider_that_it_was_set_for(machine: Machine):
    machine.write_global({"provider": "openai", "model": "gpt-mine"})
    assert machine.load().resolved.model == "gpt-mine"
    assert machine.load(MINICODE_PROVIDER="openai").resolved.model == "gpt-mine"
    other = machine.load(MINICODE_PROVIDER="anthropic")
    assert other.resolved.model == other.resolved.catalog["anthropic"][0]
    both = machine.load({"model": "claude-mine"}, MINICODE_PROVIDER="anthropic")
    assert both.resolved.model == "claude-mine"
    assert both.model_for("anthropic") == "claude-mine"
    assert both.model_for("google") == both.resolved.catalog["google"][0]


@pytest.mark.parametrize(
    ("provider", "code", "words"),
    [
        (
            "openai",
            "AUTH_REQUIRED",
            "There is no key for openai. Set OPENAI_API_KEY, or providers.openai.api_key in {}.",
        ),
        (
            "google",
            "AUTH_REQUIRED",
            "There is no key for google. Set GEMINI_API_KEY or GOOGLE_API_KEY, or providers.google.api_key in {}.",
        ),
        (
            "openai-compatible",
            "INVALID_REQUEST",
            "There is no base URL for openai-compatible. Set OPENAI_COMPATIBLE_BASE_URL, or"
            " providers.openai-compatible.base_url in {}.",
        ),
    ],
)
def test_what_is_missing_is_named_with_its_variable_and_its_key(
    machine: Machine, provider: Any, code: str, words: str
):
    with pytest.raises(CodeSDKError) as raised:
        machine.load().access(provider)
    assert (raised.value.code, raised.value.message) == (code, words.format(machine.global_file))
    assert isinstance(raised.value, InvalidRequest | Forbidden)


def test_a_provider_without_models_asks_for_one(machine: Machine):
    with pytest.raises(InvalidRequest, match="There is no model for openai-compatible"):
        machine.load().model_for("openai-compatible")


BAD: list[tuple[Any, str]] = [
    (
        {"provider": "acme"},
        "provider: invalid enum value 'acme', expected anthropic, google, openai or openai-compatible.",
    ),
    ({"modle": "x"}, "modle is not a setting. Did you mean model?"),
    ({"tools": {"timeout_ms": "soon"}}, "tools.timeout_ms: expected `int`, got `str`."),
    ({"tools": {"max_shown_chars": 1}}, "tools.max_shown_chars: expected `int` >= 1000."),
    ({"hooks": {"timeout": 1}}, "hooks.timeout is not a setting. Did you mean timeout_ms?"),
    ({"catalog": {"google": ["a", 2]}}, "catalog.google[1]: expected `str`, got `int`."),
    ({"catalog": {"zzz": []}}, "catalog.zzz is not a setting. docs/minicode.md lists what there is."),
    (
        {"providers": {"openai": {"base_url": "models.example.com"}}},
        "providers.openai: base_url must be an address like https://models.example.com/v1.",
    ),
    (
        {"providers": {"openai": {"base_url": "https://me:pw@example.com"}}},
        "providers.openai: base_url must hold no user and no password; a key has its own field, api_key.",
    ),
    (
        {"providers": {"openai": {"base_url": "https://example.com/?x=1"}}},
        "providers.openai: base_url must end with its path: no ? and no #.",
    ),
    (
        {"providers": {"openai": {"api_key": "two words"}}},
        "providers.openai: api_key is not a key: one has 1 to 4096 printable ASCII characters and no spaces.",
    ),
    ({"agent": []}, "agent: expected `object`, got `array`."),
]


@pytest.mark.parametrize(("value", "words"), BAD, ids=[words[:40] for _, words in BAD])
def test_an_invalid_value_in_any_layer_is_one_error_with_its_source_and_its_field(
    machine: Machine, value: Any, words: str
):
    for write, source in [
        (machine.write_global, str(machine.global_file)),
        (machine.write_project, str(machine.project_file)),
    ]:
        write(value)
        with pytest.raises(InvalidRequest) as raised:
            machine.load()
        assert raised.value.message == f"{source}: {words}"
        write({})
    with pytest.raises(InvalidRequest) as raised:
        machine.load(value)
    assert raised.value.message == f"config_overrides: {words}"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("MINICODE_PROVIDER", "acme", "provider: invalid enum value 'acme', expected"),
        ("MINICODE_MAX_STEPS", "many", "'many' is not a whole number."),
        ("MINICODE_MAX_STEPS", "0", "agent.max_steps: expected `int` >= 1."),
        ("OPENAI_BASE_URL", "nowhere", "providers.openai: base_url must be an address"),
        ("OPENAI_API_KEY", "two words", "providers.openai: api_key is not a key"),
        ("MINICODE_MODEL", "../other", "model: expected `str` matching regex"),
        ("MINICODE_SANDBOX", "jail", "sandbox.backend: invalid enum value 'jail'"),
    ],
)
def test_an_invalid_variable_is_named(machine: Machine, variable: str, value: str, words: str):
    with pytest.raises(InvalidRequest) as raised:
        machine.load(**{variable: value})
    assert raised.value.message.startswith(f"{variable}: {words}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"model": "a",}',
            "this is not valid JSON: Illegal trailing comma before end of object|this is not valid JSON: Expecting",
        ),
        ('{"model": "a", "model": "b"}', 'this is not valid JSON: the key "model" is there twice'),
        ('{"plugins": {"a": {}, "a": {}}}', 'this is not valid JSON: the key "a" is there twice'),
        ('{"agent": {"max_steps": NaN}}', "this is not valid JSON: NaN is not a number in JSON"),
        ("[]", "a configuration is a JSON object, not list"),
        ("[" * 100_000, "this is not valid JSON"),
        (" " * (MAX_BYTES + 1), "a configuration may have at most|files over"),
    ],
    ids=["comma", "twice", "plugin twice", "nan", "list", "deep", "huge"],
)
def test_a_file_that_is_no_configuration_is_named(machine: Machine, text: str, words: str):
    machine.write_global(text)
    with pytest.raises(InvalidRequest, match=words) as raised:
        machine.load()
    assert raised.value.message.startswith(f"{machine.global_file}: ")
    machine.global_file.unlink()
    machine.write_project(text)
    with pytest.raises(InvalidRequest, match=words) as raised:
        machine.load()
    assert raised.value.message.startswith(f"{machine.project_file}: ")


def test_a_plugin_configured_with_something_else_than_an_object_is_named(machine: Machine):
    machine.write_global({"plugins": {"demo": 5}})
    with pytest.raises(InvalidRequest) as raised:
        machine.load()
    assert raised.value.message == f'{machine.global_file}: plugins["demo"]: expected `object`, got `int`.'


def test_paths_are_whole_and_begin_where_they_are_written(machine: Machine, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    machine.write_global({"paths": {"sessions": "kept", "artifacts": "~/full"}})
    assert machine.load().resolved.paths.sessions == str(machine.config / "kept")
    assert machine.load().resolved.paths.artifacts == str(tmp_path / "home" / "full")
    assert machine.load(MINICODE_SESSIONS_DIR="here").resolved.paths.sessions == str(machine.project / "here")
    given = machine.load({"paths": {"sessions": tmp_path / "there"}})
    assert given.resolved.paths.sessions == str(tmp_path / "there")


def test_the_file_that_lies_there_cannot_move_itself(machine: Machine):
    machine.write_global({"paths": {"config": "/elsewhere"}})
    with pytest.raises(
        InvalidRequest, match=r"paths\.config cannot be set in this file, because it says where"
    ):
        machine.load()


def test_an_application_names_another_directory_for_the_global_file(machine: Machine, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"model": "theirs"}')
    assert machine.load({"paths": {"config": other}}).resolved.model == "theirs"


def test_without_variables_the_file_is_where_the_platform_has_such_files(
    machine: Machine, monkeypatch, tmp_path: Path
):
    from codesdk.minicode.config import load_config

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert load_config(machine.project, env={}).resolved.paths.config == str(tmp_path / "xdg" / "minicode")


def test_a_global_file_that_everybody_can_write_is_refused(machine: Machine):
    machine.write_global({}, mode=0o666)
    with pytest.raises(InvalidRequest, match="everybody on this machine may write to it"):
        machine.load()


def test_a_key_that_others_can_read_is_a_warning(machine: Machine):
    machine.write_global({"providers": {"openai": {"api_key": KEY}}}, mode=0o644)
    (warning,) = machine.load().warnings
    assert warning.startswith(f"{machine.global_file}: others on this machine can read the key in it.")
    machine.write_global({"model": "m"}, mode=0o644)
    assert machine.load().warnings == []


def test_overrides_cannot_add_plugins(machine: Machine):
    with pytest.raises(InvalidRequest) as raised:
        machine.load({"plugins": {"demo": {}}})
    assert raised.value.message == "config_overrides: plugins can only be set in the global config.json."


def test_an_oci_sandbox_needs_an_image(machine: Machine):
    with pytest.raises(InvalidRequest) as raised:
        machine.load(MINICODE_SANDBOX="oci")
    assert (
        raised.value.message == "MINICODE_SANDBOX: sandbox.image is missing; an oci sandbox needs an image."
    )
    assert machine.load(MINICODE_SANDBOX="oci", MINICODE_SANDBOX_IMAGE="b").resolved.sandbox.image == "b"


def test_a_host_that_is_none_is_named(machine: Machine):
    machine.write_global({"sandbox": {"backend": "bubblewrap", "hosts": ["pypi.org", "no host"]}})
    with pytest.raises(InvalidRequest) as raised:
        machine.load()
    assert raised.value.message.startswith(f"{machine.global_file}: sandbox.hosts: ")


def test_a_directory_that_is_not_there_is_one_error(tmp_path: Path):
    from codesdk.minicode.config import load_config

    with pytest.raises(InvalidRequest, match="there is no such directory"):
        load_config(tmp_path / "gone", env={})


def test_null_is_as_good_as_nothing(machine: Machine):
    machine.write_global({"model": "mine", "provider": "openai"})
    machine.write_project({"model": None})
    assert machine.load().resolved.model == "mine"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
def test_the_runtime_and_the_catalog_begin_with_the_same_model(machine: Machine, provider: ProviderId):
    catalog = machine.load().resolved.catalog
    assert catalog[provider] == list(PROVIDERS[provider].models)
    assert catalog["openai-compatible"] == []  # nobody knows the models of a service of one's own
    page = (Path(__file__).parents[3] / "docs" / "runtimes" / "minicode.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| `([\w.-]+)` \|$", page, re.MULTILINE)
    assert dict(rows) == {name: family.models[0] for name, family in PROVIDERS.items()}
