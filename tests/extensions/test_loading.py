"""From a directory to handlers: what is found, in which order, what is refused and why, and what is trusted."""

import importlib.util
import marshal
import os
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.extensions.requirements import shows
from tests.extensions.rig import PROFILES, Extensions, both, info_of

from codesdk.contract.errors import InvalidRequest, StorageFailure
from codesdk.extensions import ExtensionOptions, Pins, load_set, take_snapshot
from codesdk.extensions.registry import MAX_HANDLERS

pytestmark = pytest.mark.anyio


def plant(source: Path, text: str) -> None:
    """Leave what somebody who may write there could: a compiled module that fits the size and the time of a source."""
    stat = source.stat()
    header = importlib.util.MAGIC_NUMBER + bytes(4) + int(stat.st_mtime).to_bytes(4, "little")
    place = Path(importlib.util.cache_from_source(str(source)))
    place.parent.mkdir(exist_ok=True)
    code = compile(text, source.name, "exec")
    place.write_bytes(header + stat.st_size.to_bytes(4, "little") + marshal.dumps(code))


ON = "def register(registry): registry.on({type!r}, lambda event, tools: None)\n"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": None}, "required field `name`"),
        ({"version": None}, "required field `version`"),
        ({"agent_id": None}, "required field `agent_id`"),
        ({"display_name": None}, "required field `display_name`"),
        ({"runtime": None}, "required field `runtime`"),
        ({"entrypoints": None}, "required field `entrypoints`"),
        ({"entrypoints": {}}, "entrypoints: Object missing required field `events`"),
        ({"name": "Not A Name"}, "name: 1 to 40"),
        ({"agent_id": "../x"}, "agent_id: 1 to 40"),
        ({"display_name": " "}, "display_name: 1 to 100"),
        ({"version": "one"}, "is not a version"),
        ({"version": 1}, "version: Expected `str`, got `int`"),
        ({"more": 1}, "unknown field `more`"),
        ({"runtime": {}}, "give core_api_version or core_api_version_range"),
        ({"runtime": {"core_api_version": 1, "core_api_version_range": "1"}}, "give core_api_version or"),
        ({"runtime": {"core_api_version": 2}}, "needs the core API version 2; this CodeSDK has 1"),
        ({"runtime": {"core_api_version_range": "^2"}}, "a core API version in ^2; this CodeSDK has 1"),
        ({"runtime": {"core_api_version_range": "two"}}, "is not a version in a range"),
        ({"runtime": {"core_api_version": 1, "profiles": [{"name": "nobody"}]}}, "made for nobody;"),
        (
            {"runtime": {"core_api_version": 1, "profiles": [{"name": "scripted", "version_range": "^2"}]}},
            "made for scripted ^2; this CodeSDK has no such runtime",
        ),
        (
            {"runtime": {"core_api_version": 1, "profiles": [{"name": "scripted", "version": "1.4.1"}]}},
            "made for scripted 1.4.1",
        ),
        (
            {
                "runtime": {
                    "core_api_version": 1,
                    "profiles": [{"name": "scripted", "version": "1.4.2", "version_range": "^1"}],
                }
            },
            "has a version and a range",
        ),
        ({"entrypoints": {"events": "../events.py"}}, "a file of Python inside the extension"),
        ({"entrypoints": {"events": "/etc/passwd"}}, "a file of Python inside the extension"),
        ({"entrypoints": {"events": "missing.py"}}, "there is no file missing.py"),
        ({"capabilities": {"events": "all"}}, "capabilities.events: Expected `array`"),
    ],
)
@shows("compat-core", "compat-profiles")
async def test_a_manifest_that_does_not_fit_is_rejected_with_its_reason(
    ext: Extensions, fields: dict[str, Any], words: str
):
    ext.write("one", **fields)
    assert words in await ext.reason()


@pytest.mark.parametrize(
    "runtime",
    [
        {"core_api_version": 1},
        {"core_api_version_range": ">=1 <3"},
        {"core_api_version": 1, "profiles": [{"name": "other"}, {"name": "scripted", "version": "1.4.2"}]},
        {"core_api_version": 1, "profiles": [{"name": "scripted", "version_range": "~1.4"}]},
    ],
)
async def test_one_that_fits_is_loaded(ext: Extensions, runtime: dict[str, Any]):
    ext.write("one", runtime=runtime)
    assert await ext.reasons() == {"one": None}


async def test_a_directory_without_a_manifest_or_with_two_is_rejected(ext: Extensions):
    (ext.root / "none").mkdir(parents=True)
    (ext.write("two") / "extension.toml").write_text("")
    (ext.write("torn") / "extension.json").write_text("{")
    (ext.write("long") / "extension.json").write_text(" " * 70_000)
    (ext.write("deep") / "extension.json").write_text("[" * 5_000)
    assert await ext.reasons() == {
        "none": "There is no extension.toml or extension.json in it.",
        "two": "It has both extension.toml and extension.json. Keep one.",
        "torn": "extension.json cannot be read: Input data was truncated.",
        "long": "extension.json has more than 65,536 bytes.",
        "deep": (await ext.reasons())["deep"],
    }
    assert "cannot be read" in str((await ext.reasons())["deep"])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("1/0\n", "It could not be loaded: ZeroDivisionError: division by zero."),
        ("import nothing_like_this\n", "ModuleNotFoundError"),
        ("def broken(:\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "It could not be loaded: SystemExit: 3."),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("x = 1\n", "defines no `register(registry)`"),
        ("register = 5\n", "defines no `register(registry)`"),
        ("def register(): pass\n", "TypeError"),
        ("def register(registry): registry.on('', print)\n", "An event type is a text of 1 to 200"),
        ("def register(registry): registry.on(5, print)\n", "An event type is a text"),
        ("def register(registry): registry.on('task.started', 5)\n", "cannot be called"),
        ("def register(registry): registry.on('task.started', print, priority=True)\n", "The priority for"),
        ("def register(registry): registry.on('task.started', print, priority=1.5)\n", "The priority for"),
        ("def register(registry): registry.on('task.started', print, timeout_ms=0)\n", "The timeout_ms for"),
        ("def register(registry): registry.on('task.started', print, timeout_ms=10**6)\n", "The timeout_ms"),
        (
            "def register(registry):\n    for _ in 1, 2: registry.on('task.started', print)\n",
            "The same handler is registered twice for task.started",
        ),
        (
            f"def register(registry):\n    for n in range({MAX_HANDLERS + 1}):\n"
            "        registry.on('task.started', lambda e, t: 0)\n",
            f"at most {MAX_HANDLERS} handlers",
        ),
        (ON.format(type="model.output.delta"), "deltas are for streams"),
    ],
)
@both
async def test_code_that_misbehaves_while_it_is_loaded_is_rejected(ext: Extensions, source: str, words: str):
    ext.write("bad", source)
    ext.write("good", ON.format(type="task.started"))
    reasons = await ext.reasons()
    assert words in str(reasons["bad"])
    assert reasons["good"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "import threading\nthreading.Event().wait()\n",
        "import threading\ndef register(registry): threading.Event().wait()\n",
        "import asyncio\nasync def register(registry): await asyncio.Event().wait()\n",
    ],
)
@both
async def test_one_that_blocks_on_import_is_rejected_and_holds_up_nobody(ext: Extensions, source: str):
    ext.write("blocks", source)
    ext.write("good", ON.format(type="task.started"))
    # A process has to import what the good one needs, too, where a thread finds it imported.
    load_s = 0.05 if ext.hosting == "in_process" else 2.0
    assert await ext.reasons(load_s=load_s) == {
        "blocks": f"It did not register within {load_s:g} s. Do nothing on import that can block.",
        "good": None,
    }


async def test_handlers_cannot_be_added_once_register_has_ended(ext: Extensions, seen: list[Any]):
    source = "kept = []\ndef register(registry): kept.append(registry)\n"
    ext.write("late", source)
    loaded = await ext.load()
    module = next(m for n, m in sys.modules.items() if n.endswith(".events") and hasattr(m, "kept"))
    with pytest.raises(InvalidRequest, match="not later"):
        module.kept[0].on("task.started", print)
    loaded.release()


@both
async def test_what_an_extension_imports_is_what_was_read_and_never_a_cached_file(
    ext: Extensions, seen: list[Any]
):
    root = ext.write("cached", "from . import helper\ndef register(registry): note(helper.WORD)\n")
    (root / "helper.py").write_text('WORD = "source"\n')
    plant(root / "helper.py", 'WORD = "planted"')
    await (await ext.load()).end()
    assert seen == ["source"]


async def test_a_set_that_is_released_leaves_no_thread_and_no_module(ext: Extensions):
    ext.write("one", ON.format(type="task.started"))
    loaded = await ext.load()
    threads = [one for one in threading.enumerate() if one.name == "codesdk-extension-one"]
    assert len(threads) == 1
    loaded.release()
    threads[0].join(10)
    assert not threads[0].is_alive()
    assert not [name for name in sys.modules if name.startswith("_codesdk_extension_")]


async def test_links_pipes_and_too_much_are_no_extension(ext: Extensions, tmp_path: Path):
    ext.write("link")
    (ext.root / "link" / "other.py").symlink_to("/etc/passwd")
    ext.write("pipe")
    os.mkfifo(ext.root / "pipe" / "fifo")
    ext.write("large")
    (ext.root / "large" / "data").write_bytes(bytes(9_000_000))
    reasons = await ext.reasons()
    assert "is a link" in str(reasons["link"])
    assert "is not a file" in str(reasons["pipe"])
    assert "too large" in str(reasons["large"])


async def test_names_and_agent_ids_are_unique_and_the_first_one_counts(ext: Extensions):
    ext.write("a")
    ext.write("b", agent_id="a")
    ext.write("c", name="a", agent_id="c")
    assert await ext.reasons() == {
        "a": None,
        "b": "The agent_id a is that of a, loaded before it.",
        "c": "An extension named a was loaded before it.",
    }


# --- where they come from ------------------------------------------------------------------------


async def test_a_root_is_an_extension_or_holds_some_and_is_loaded_once(ext: Extensions, tmp_path: Path):
    one = ext.write("one")
    options = ExtensionOptions(roots=(str(one), str(ext.root), str(tmp_path / "nothing")))
    loaded = await load_set(options, Pins(None), PROFILES, 1)
    loaded.release()
    assert [(Path(info.root).name, info.reason) for info in loaded.inventory] == [
        ("one", None),
        ("nothing", "There is no such directory."),
    ]


def install(site: Path, monkeypatch: pytest.MonkeyPatch, name: str, *more: str) -> Path:
    """Install a package that says it is an extension, and return where it is. `more` are further entry points."""
    root = Extensions(site).write(f"{name}_extension", name=name, agent_id=name)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = [f"{name} = {name}_extension", *more]
    (info / "entry_points.txt").write_text("\n".join(["[codesdk.extensions]", *points, ""]))
    (root / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(site))
    return root


async def test_an_installed_package_is_found_by_its_entry_point(
    ext: Extensions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = tmp_path / "site"
    install(site, monkeypatch, "packaged", "wrong = nothing_there")
    (site / "packaged_extension" / "__init__.py").write_text("raise RuntimeError('not to be imported')\n")
    loaded = await load_set(ExtensionOptions(packages=True), Pins(None), PROFILES, 1)
    loaded.release()
    assert [(one.name, one.source, one.status) for one in loaded.inventory] == [
        ("packaged", "package", "rejected"),
        (None, "package", "rejected"),
    ]
    assert "not to be imported" in str(loaded.inventory[0].reason)
    assert "is not a package" in str(loaded.inventory[1].reason)
    (site / "packaged_extension" / "__init__.py").write_text("")
    loaded = await load_set(ExtensionOptions(packages=True), Pins(None), PROFILES, 1)
    loaded.release()
    assert loaded.inventory[0].status == "loaded"


async def test_a_project_extension_is_loaded_only_as_it_was_trusted(tmp_path: Path):
    project, pins = tmp_path / "project", Pins(tmp_path / "data")
    root = Extensions(project / ".codesdk" / "extensions").write("mine")
    options = ExtensionOptions(project=str(project))

    async def reason() -> str | None:
        loaded = await load_set(options, pins, PROFILES, 1)
        loaded.release()
        (info,) = loaded.inventory
        assert info.source == "project"
        return info.reason

    assert str(await reason()).startswith("It is not trusted.")
    pins.add(root, take_snapshot(root).hash)
    assert await reason() is None
    (root / "more.py").write_text("")
    assert str(await reason()).startswith("It was changed since it was trusted.")
    pins.add(root, take_snapshot(root).hash)
    assert await reason() is None
    assert (tmp_path / "data" / "extensions.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", [".codesdk/extensions/mine", ".codesdk/extensions", ".codesdk"])
async def test_a_link_to_what_is_trusted_elsewhere_is_not_loaded_here(tmp_path: Path, place: str):
    pins, other, project = Pins(tmp_path / "data"), tmp_path / "other", tmp_path / "project"
    root = Extensions(other / ".codesdk" / "extensions").write("mine")
    pins.add(root, take_snapshot(root).hash)
    (project / place).parent.mkdir(parents=True)
    (project / place).symlink_to(other / place)
    loaded = await load_set(ExtensionOptions(project=str(project)), pins, PROFILES, 1)
    loaded.release()
    assert [(one.source, str(one.reason)[:13]) for one in loaded.inventory] == [("project", "It is a link.")]
    loaded = await load_set(ExtensionOptions(project=str(project), roots=[str(root)]), pins, PROFILES, 1)
    loaded.release()
    assert [(one.source, one.status) for one in loaded.inventory] == [
        ("project", "rejected"),
        ("root", "loaded"),
    ]


async def test_without_its_file_nothing_is_trusted_and_a_broken_one_is_an_error(tmp_path: Path):
    project, pins = tmp_path / "project", Pins(tmp_path)
    Extensions(project / ".codesdk" / "extensions").write("mine")
    with pytest.raises(InvalidRequest, match="Without a data directory"):
        Pins(None).add(project, "sha256:0")
    (tmp_path / "extensions.json").write_text("no")
    with pytest.raises(StorageFailure, match="trust the extensions again"):
        await load_set(ExtensionOptions(project=str(project)), pins, PROFILES, 1)


async def test_of_one_name_the_projects_comes_first_then_a_package_then_a_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    project, pins = tmp_path / "project", Pins(tmp_path / "data")
    mine = Extensions(project / ".codesdk" / "extensions").write("same")
    install(tmp_path / "site", monkeypatch, "same")
    roots = [Extensions(tmp_path / name) for name in ("z-first", "a-second")]
    for root in roots:
        root.write("same")
    pins.add(mine, take_snapshot(mine).hash)
    every = ExtensionOptions(project=str(project), packages=True, roots=[str(root.root) for root in roots])

    async def loads(**without: Any) -> tuple[list[str], str]:
        """Return where candidates are from, in order, and which of them is loaded."""
        loaded = await load_set(msgspec.structs.replace(every, **without), pins, PROFILES, 1)
        loaded.release()
        (chosen,) = [info for info in loaded.inventory if info.status == "loaded"]
        reasons = {info.reason for info in loaded.inventory if info is not chosen}
        assert reasons <= {"An extension named same was loaded before it."}
        return [info.source for info in loaded.inventory], Path(chosen.root).parent.name

    assert await loads() == (["project", "package", "root", "root"], "extensions")
    assert await loads(project=None) == (["package", "root", "root"], "site")
    # Among roots the one that was named first, whatever it is called.
    assert await loads(project=None, packages=False) == (["root", "root"], "z-first")


# --- what it declares ----------------------------------------------------------------------------


@both
async def test_an_undeclared_event_refuses_warns_or_does_nothing(ext: Extensions):
    ext.write("one", ON.format(type="task.started"), events=[])
    words = "It subscribes to task.started, which capabilities.events does not declare."
    assert await ext.reasons(trust="enforced") == {"one": words}
    for trust, warnings in (("warn", [words]), ("disabled", [])):
        loaded = await ext.load(trust=trust)
        await loaded.end()
        assert (info_of(loaded, "one").status, info_of(loaded, "one").warnings) == ("loaded", warnings)


async def test_an_event_that_nobody_tells_of_is_a_warning(ext: Extensions):
    ext.write("one", ON.format(type="task.strated"), events=["task.strated"])
    loaded = await ext.load()
    loaded.release()
    assert info_of(loaded, "one").warnings == [
        "It subscribes to task.strated, which this CodeSDK never tells of."
    ]


@both
@shows("registry", "default-priority")
async def test_the_inventory_says_what_was_registered(ext: Extensions):
    source = (
        "def register(registry):\n"
        "    registry.on('task.started', lambda event, tools: 1, 5, 200)\n"
        "    registry.on('turn.completed', lambda event, tools: 2)\n"
    )
    ext.write("one", source, runtime={"core_api_version": 1, "profiles": [{"name": "scripted"}]})
    loaded = await ext.load()
    await loaded.end()
    info = info_of(loaded, "one")
    assert (info.events, info.handlers) == (["task.started", "turn.completed"], 2)
    assert info.actions == ["approval.decide", "turn.steer.create"]
    assert (info.source, info.version, info.display_name, info.runtimes) == (
        "root",
        "1.0.0",
        "One",
        ["scripted"],
    )
    found = [(one.priority, one.timeout_ms) for one in loaded.extensions[0].registrations]
    assert found == [(5, 200), (100, 5000)]
