"""What minicode loads, and when: the library of the providers with the first model, and not before."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from codesdk.contract.access import Availability
from codesdk.contract.capabilities import Isolation
from codesdk.contract.errors import CodeSDKError
from codesdk.contract.models import ModelAccess, Wire
from codesdk.contract.runtime import RuntimeEnv
from codesdk.minicode.models import PROVIDERS, ModelSettings, settings as settings_module
from codesdk.minicode.types import ProviderId
from codesdk.runtimes import create_runtime

LIBRARIES = ("pydantic_ai", "openai", "anthropic", "google.genai", "httpx2")


def loaded(code: str) -> list[str]:
    code += (
        f"\nimport sys\nprint(*[name for name in {(*LIBRARIES, 'httpx', 'mcp')!r} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_the_loop_and_the_runtime_load_no_library():
    code = "import codesdk.minicode.agent, codesdk.minicode.compaction\n"
    code += "from codesdk.runtimes import create_runtime\ncreate_runtime('minicode').capabilities()"
    assert loaded(code) == []


@pytest.mark.slow
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_loads_the_library_of_its_provider_and_no_other_on_one_http_stack(provider: ProviderId):
    code = (
        "import asyncio\n"
        "from codesdk.minicode.models import ModelSettings, open_model\n"
        f"settings = ModelSettings(provider={provider!r}, model='m', key='k', base_url='http://127.0.0.1:9')\n"
        "async def main():\n"
        "    model = await open_model(settings, None)\n"
        "    await model.aclose()\n"
        "asyncio.run(main())"
    )
    assert loaded(code) == [
        name for name in LIBRARIES if name in ("pydantic_ai", "httpx2", PROVIDERS[provider].library)
    ]


MISSING: dict[str, dict[ProviderId, str]] = {
    "pydantic_ai": dict.fromkeys(PROVIDERS, "pydantic_ai is not installed."),
    "openai": dict.fromkeys(
        ("openai", "openai-compatible"), "openai, which openai and openai-compatible need, is not installed."
    ),
    "anthropic": {"anthropic": "anthropic, which anthropic needs, is not installed."},
    "google.genai": {"google": "google.genai, which google needs, is not installed."},
    "google": {"google": "google.genai, which google needs, is not installed."},
}


@pytest.fixture(params=MISSING)
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[ProviderId, str]:
    """A library is not there. Returns what is said of it, by the provider that needs it."""
    name: str = request.param
    for loaded_one in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, loaded_one)
    for ours in [each for each in sys.modules if each.startswith("codesdk.minicode.models.clients.")]:
        monkeypatch.delitem(sys.modules, ours)
    monkeypatch.delitem(sys.modules, "codesdk.minicode.models.library", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    return MISSING[name]


async def test_availability_says_which_library_is_missing_what_for_and_what_installs_it(
    missing: dict[ProviderId, str], tmp_path: Path
):
    runtime = create_runtime("minicode")
    nobody = await runtime.check_available(env(tmp_path))
    assert nobody == Availability(
        ok=False, problem=next(iter(missing.values())), to_do="Run: pip install 'codesdk[minicode]'."
    )
    for provider, family in PROVIDERS.items():
        found = await runtime.check_available(env(tmp_path, family.wire))
        told = missing.get(provider)
        assert (found.ok, told is None) in ((True, True), (False, False))
        assert (found.problem or "").partition(",")[0] == (told or "").partition(",")[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", MISSING)
def test_a_model_whose_library_is_missing_is_refused_and_all_others_are_not(name: str):
    """In a process of its own: a library that is loaded cannot be taken away without a trace."""
    code = (
        "import asyncio, json, sys\n"
        f"sys.modules[{name!r}] = None\n"
        "from codesdk import CodeSDKError\n"
        "from codesdk.minicode.models import PROVIDERS, ModelSettings, open_model\n"
        "async def told(provider):\n"
        "    settings = ModelSettings(provider=provider, model='m', key='k', base_url='http://127.0.0.1:9')\n"
        "    try:\n"
        "        await (await open_model(settings, None)).aclose()\n"
        "    except CodeSDKError as error:\n"
        "        return [error.code, error.message]\n"
        "async def main():\n"
        "    return {provider: await told(provider) for provider in PROVIDERS}\n"
        "print(json.dumps(asyncio.run(main())))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for provider, told in json.loads(ran.stdout).items():
        if provider not in MISSING[name]:
            assert told is None
            continue
        code, message = told
        assert code == "RUNTIME_UNAVAILABLE"
        assert message.startswith(f"minicode cannot ask {provider}: ")
        assert message.endswith(" is not installed. Install it with: pip install 'codesdk[minicode]'")


def env(home: Path, *wires: Wire) -> RuntimeEnv:
    return RuntimeEnv(
        cwd=str(home),
        env={},
        credential_namespace="local",
        isolation=Isolation(level="namespaced", mode="in_process"),
        models={wire: ModelAccess(kind="key", label="a key") for wire in wires},
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ("openai", "m", None, None),
            "Set OPENAI_API_KEY, or providers.openai.api_key in the configuration.",
        ),
        (("anthropic", "m", None, None), "Set ANTHROPIC_API_KEY, or providers.anthropic.api_key"),
        (("google", "m", "", None), "Set GEMINI_API_KEY, or providers.google.api_key"),
        (
            ("openai-compatible", "m", None, None),
            "Set OPENAI_COMPATIBLE_BASE_URL, or providers.openai-compatible.base_url",
        ),
        (("openai", " ", "k", None), "No model of openai is named."),
        (("openai", "m", "k", "ollama:11434"), "does not begin with http:// or https://"),
    ],
)
def test_what_is_missing_is_named_by_its_variable_and_its_place(
    given: tuple[ProviderId, str, str | None, str | None], told: str
):
    provider, model, key, url = given
    with pytest.raises(CodeSDKError) as caught:
        settings_module.check_settings(ModelSettings(provider=provider, model=model, key=key, base_url=url))
    assert told in caught.value.message


def test_a_service_of_ones_own_needs_no_key_and_no_repr_shows_one():
    own = ModelSettings(
        provider="openai-compatible", model="m", base_url="http://127.0.0.1:1/v1", key="s3cret"
    )
    settings_module.check_settings(own)
    assert "s3cret" not in repr(own)


async def _read(artifact_id: str) -> bytes:
    return b""
