"""Plugins from packages and from file URLs, through all their stages."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tests.minicode.plugins.rig import GREETER, Disk, load, problems
from tests.minicode.tools.test_executor import executor

from codesdk.contract.errors import NotFound
from codesdk.minicode.plugins import (
    ActionContext,
    LoadedPlugin,
    PluginContext,
    PluginError,
    define_tool,
    load as loading,
)
from codesdk.minicode.plugins.references import normalize
from codesdk.minicode.types import ToolCall, ToolOutput

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Disk]:
    disk = Disk(tmp_path)
    with disk.on_path():
        yield disk


HERE = ActionContext(arguments="hello", cwd="/")


async def test_a_plugin_of_an_installed_package_by_its_entry_point(disk: Disk):
    disk.install("acme-greeter", "acme_greeter", GREETER, "greeter = acme_greeter:plugin")
    composed = await load(disk.configure({" greeter ": {"word": "Hello"}}))
    assert composed.plugins == [LoadedPlugin(reference="greeter", id="greeter", version="1.2")]
    assert composed.instructions == ["Greet with Hello."]
    (tool,) = composed.tools
    said = await executor(tool).run(ToolCall(id="c", name="greet", input={"name": "Ann"}))
    assert said == ToolOutput(ok=True, output_message="Hello, Ann!")
    assert await composed.run_action("shout", HERE) == "HELLO"
    assert await composed.run_action("loud", HERE) == "HELLO"
    with pytest.raises(NotFound):
        await composed.run_action("whisper", HERE)


async def test_an_entry_point_without_an_attribute_names_a_module(disk: Disk):
    disk.install("acme", "acme_greeter", GREETER, "greeter = acme_greeter")
    assert [each.id for each in (await load(disk.configure({"greeter": {"word": "Hi"}}))).plugins] == [
        "greeter"
    ]


async def test_a_plugin_by_the_name_of_its_module(disk: Disk):
    disk.install("acme", "acme_greeter", GREETER)
    composed = await load(disk.configure({"acme_greeter": {"word": "Hi"}}))
    assert composed.plugins == [LoadedPlugin(reference="acme_greeter", id="greeter", version="1.2")]


async def test_a_plugin_from_the_url_of_a_file(disk: Disk):
    url = disk.write("mine/greeter.py", GREETER)
    composed = await load(disk.configure({url: {"word": "Hi"}}))
    assert composed.plugins == [LoadedPlugin(reference=url, id="greeter", version="1.2")]


async def test_a_plugin_from_the_url_of_a_directory_with_modules_of_its_own(disk: Disk):
    disk.write("my plugin/words.py", "WORD = 'Salut'\n")
    disk.write("my plugin/__init__.py", f"from .words import WORD\n{GREETER}\nINSTRUCTION = WORD\n")
    url = (disk.root / "my plugin").as_uri()
    assert "%20" in url
    composed = await load(disk.configure({f"{url}/": {"word": "Hi"}}))
    assert composed.plugins == [LoadedPlugin(reference=url, id="greeter", version="1.2")]


async def test_a_plugin_is_told_where_it_is(disk: Disk):
    url = disk.write("mine/greeter.py", GREETER)
    await load(disk.configure({url: {"word": "Hi"}}))
    (module,) = disk.modules()
    (context,) = module.CONTEXTS
    assert context == PluginContext(
        reference=url,
        sdk_version="9.9",
        global_config_dir=str(disk.config),
        cwd=str(disk.project),
        logger=context.logger,
    )
    assert context.logger.name == "minicode.plugins.greeter"


async def test_plugins_come_after_what_is_built_in_and_in_the_order_of_the_file(disk: Disk):
    @define_tool
    async def read() -> None:
        """Read."""

    text = GREETER.replace('aliases=["loud"], ', "")
    disk.install("b", "b_plugin", text)
    disk.install("a", "a_plugin", text)
    settings = {
        "b_plugin": {"word": "x", "id": "two", "tool": "two", "action": "second"},
        "a_plugin": {"word": "y", "id": "one", "tool": "one", "action": "first"},
    }
    composed = await load(disk.configure(settings), tools=[read])
    assert [tool.name for tool in composed.tools] == ["read", "two", "one"]
    assert [plugin.id for plugin in composed.plugins] == ["two", "one"]
    assert [action.id for action in composed.actions] == ["second", "first"]
    assert composed.instructions == ["Greet with x.", "Greet with y."]


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("  acme-greeter\n", "acme-greeter"),
        ("file:///a/b", "file:///a/b"),
        ("FILE:///a/b/", "file:///a/b"),
        ("file://localhost/a/./b", "file:///a/b"),
        ("file:///a//x/../b", "file:///a/b"),
        ("file:///a/%62", "file:///a/b"),
        ("file:///a/my%20plugin", "file:///a/my%20plugin"),
    ],
)
def test_a_reference_has_one_form(given: str, canonical: str):
    assert normalize(given) == canonical
    assert normalize(canonical) == canonical


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "a b",
        "../plugin",
        "/abs/plugin.py",
        "file:relative",
        "file://host/a",
        "file:///a?b",
        "file:///a%00",
        "https://x/y",
        "-a",
    ],
)
def test_what_can_be_no_reference_fails_at_the_stage_normalize(given: str):
    with pytest.raises(PluginError) as raised:
        normalize(given)
    assert raised.value.stage == "normalize"
    assert raised.value.details == {"reference": given, "stage": "normalize"}


async def test_the_same_reference_in_two_forms_is_a_duplicate(disk: Disk):
    url = disk.write("greeter.py", GREETER)
    config = disk.configure({url: {"word": "a"}, f"{url.replace('greeter', './greeter')}": {"word": "b"}})
    assert await problems(config) == [
        ("normalize", url.replace("greeter", "./greeter"), None, f"it is there twice: {url!r} is the same")
    ]


IMPORTS: dict[str, tuple[str, str]] = {
    "a syntax error": ("def (", "SyntaxError: invalid syntax"),
    "an error": ("raise ValueError('bad day')", "ValueError: bad day"),
    "an exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "no factory": ("x = 1", "the module has no function named plugin"),
}


@pytest.mark.parametrize(("text", "words"), IMPORTS.values(), ids=IMPORTS)
async def test_a_plugin_that_fails_at_the_stage_import(disk: Disk, text: str, words: str):
    url = disk.write("bad.py", text)
    ((stage, reference, plugin_id, problem),) = await problems(disk.configure({url: {}}))
    assert (stage, reference, plugin_id) == ("import", url, None)
    assert problem.startswith(words)
    assert not disk.modules() or text == "x = 1"


async def test_what_is_not_there_fails_at_the_stage_import(disk: Disk):
    (disk.root / "empty").mkdir()
    gone, empty = (disk.root / "gone.py").as_uri(), (disk.root / "empty").as_uri()
    text = disk.write("notes.txt", "hello")
    disk.install("a", "a_plugin", GREETER, "odd = a_plugin:nothing")
    assert await problems(
        disk.configure({"nobody_has_this": {}, "no-module": {}, gone: {}, empty: {}, text: {}, "odd": {}})
    ) == [
        (
            "import",
            "nobody_has_this",
            None,
            "there is no plugin and no module nobody_has_this. Install it first",
        ),
        ("import", "no-module", None, "no installed package has a plugin of this name. Install it first"),
        ("import", gone, None, "there is no such file or directory"),
        ("import", empty, None, "the directory has no __init__.py"),
        ("import", text, None, "this is not a Python file"),
        ("import", "odd", None, "its entry point a_plugin:nothing does not lead anywhere"),
    ]


async def test_two_packages_with_a_plugin_of_one_name_are_an_error(disk: Disk):
    disk.install("a", "a_plugin", GREETER, "greeter = a_plugin")
    disk.install("b", "b_plugin", GREETER, "greeter = b_plugin")
    assert await problems(disk.configure({"greeter": {}})) == [
        ("import", "greeter", None, "several packages have a plugin of this name: a, b")
    ]


HEAD = "from codesdk.minicode.plugins import *\nfrom codesdk.minicode.plugins import Plugin, Contribution, Action\n"
LATER: dict[str, tuple[str, str, str | None, str]] = {
    "a factory that raises": ("def plugin(config): raise KeyError('x')", "factory", None, "KeyError: 'x'"),
    "a factory that exits": ("def plugin(config): raise SystemExit", "factory", None, "SystemExit"),
    "a factory that is none": ("plugin = 5", "validate", None, "its factory is not a function"),
    "a factory of nothing": (
        "def plugin(config): pass",
        "validate",
        None,
        "its factory must return a Plugin, not NoneType",
    ),
    "an async factory": (
        "async def plugin(config): pass",
        "validate",
        None,
        "its factory must return a Plugin, not coroutine",
    ),
    "a bad id": (
        "def plugin(config): return Plugin(id='A b', setup=print)",
        "validate",
        None,
        "its id must be like my-plugin: lower case, digits, . _ and -",
    ),
    "another interface": (
        "def plugin(config): return Plugin(id='p', setup=print, api_version=2)",
        "validate",
        "p",
        "it is written for version 2 of the plugin interface, and this is 1",
    ),
    "no set-up": (
        "def plugin(config): return Plugin(id='p', setup=5)",
        "validate",
        "p",
        "its setup is not a function",
    ),
    "a set-up that raises": (
        "def setup(context): raise OSError('no')\ndef plugin(config): return Plugin(id='p', setup=setup)",
        "run",
        "p",
        "OSError: no",
    ),
    "an async set-up that raises": (
        "async def setup(context): raise OSError('no')\ndef plugin(config): return Plugin(id='p', setup=setup)",
        "run",
        "p",
        "OSError: no",
    ),
    "a set-up of nothing": (
        "def plugin(config): return Plugin(id='p', setup=lambda context: {})",
        "validate",
        "p",
        "its set-up must return a Contribution, not dict",
    ),
}
FLAWS: dict[str, str] = {
    "tools=5": "tools must be a list",
    "tools=[print]": "tools must be made with define_tool",
    "instructions=['']": "instructions must be texts that are not empty",
    "hooks=[print]": "hooks must be async functions",
    "actions=[1]": "actions must be of the type Action",
    "actions=[Action(id='A b', title='T', run=go)]": "'A b' cannot be the name of an action: write it like run-tests",
    "actions=[Action(id='a', title='T', run=go, aliases=['/x'])]": "'/x' cannot be the name of an action: write it like run-tests",
    "actions=[Action(id='a', title='', run=go)]": "the action a needs a title",
    "actions=[Action(id='a', title='T', run=print)]": "what the action a runs must be an async function",
}
for flaw, words in FLAWS.items():
    text = f"async def go(context): pass\ndef plugin(config): return Plugin(id='p', setup=lambda _: Contribution({flaw}))"
    LATER[flaw] = (text, "validate", "p", words)


@pytest.mark.parametrize(("text", "stage", "plugin_id", "words"), LATER.values(), ids=LATER)
async def test_a_plugin_that_fails_later_is_named_with_its_stage(
    disk: Disk, text: str, stage: str, plugin_id: str | None, words: str
):
    url = disk.write("bad.py", HEAD + text)
    config = disk.configure({url: {}})
    assert await problems(config) == [(stage, url, plugin_id, words)]
    with pytest.raises(PluginError) as raised:
        await load(config)
    named = url if plugin_id is None else f"{url} ({plugin_id})"
    assert raised.value.message == f"The plugin {named} failed at the stage {stage}: {words}."
    assert raised.value.code == "INVALID_REQUEST"


async def test_a_set_up_that_hangs_is_given_up(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "SETUP_S", 0.01)
    text = "import asyncio\nasync def setup(context): await asyncio.Event().wait()\n"
    url = disk.write("bad.py", f"{HEAD}{text}def plugin(config): return Plugin(id='p', setup=setup)")
    assert await problems(disk.configure({url: {}})) == [
        ("run", url, "p", "its set-up took more than 0.01 seconds")
    ]


CONFLICTS: list[tuple[dict[str, Any], str]] = [
    ({"id": "greeter"}, "the plugin {first} has the same id"),
    ({"id": "two", "tool": "greet"}, "the tool greet is the plugin greeter's already"),
    ({"id": "two", "tool": "read"}, "the tool read is minicode's own already"),
    (
        {"id": "two", "tool": "t", "action": "shout"},
        "the action or alias shout is the plugin greeter's already",
    ),
    (
        {"id": "two", "tool": "t", "action": "loud"},
        "the action or alias loud is the plugin greeter's already",
    ),
    ({"id": "two", "tool": "t", "action": "a"}, "the action or alias loud is the plugin greeter's already"),
    ({"id": "two", "tool": "t", "action": "model"}, "the action or alias model is minicode's own already"),
]


@pytest.mark.parametrize(("second", "words"), CONFLICTS, ids=[words[:40] for _, words in CONFLICTS])
async def test_two_of_a_name_are_an_error_at_the_stage_compose(
    disk: Disk, second: dict[str, Any], words: str
):
    @define_tool
    async def read() -> None:
        """Read."""

    first, other = disk.write("first.py", GREETER), disk.write("second.py", GREETER)
    config = disk.configure({first: {"word": "a"}, other: {"word": "b", **second}})
    options = {"tools": [read], "taken_actions": ["model"]}
    assert await problems(config, **options) == [("compose", other, second["id"], words.format(first=first))]
    composed = await load(config, problems=[], **options)
    assert [tool.name for tool in composed.tools] == ["read", "greet"]
    assert composed.instructions == ["Greet with a."]
    assert [action.id for action in composed.actions] == ["shout"]


async def test_an_action_that_fails_names_its_plugin(disk: Disk):
    text = "async def go(context): raise SystemExit(1)\n"
    actions = "actions=[Action(id='go', title='Go', run=go)]"
    url = disk.write(
        "p.py",
        f"{HEAD}{text}def plugin(config): return Plugin(id='p', setup=lambda _: Contribution({actions}))",
    )
    composed = await load(disk.configure({url: {}}))
    with pytest.raises(PluginError) as raised:
        await composed.run_action("go", HERE)
    assert (raised.value.stage, raised.value.plugin_id, raised.value.problem) == ("run", "p", "SystemExit: 1")


async def test_a_plugin_cannot_change_the_configuration_of_others(disk: Disk):
    url = disk.write("p.py", f"{HEAD}def plugin(config): config.clear(); raise ValueError")
    config = disk.configure({url: {"list": [1]}})
    await problems(config)
    assert config.plugins == {url: {"list": [1]}}
