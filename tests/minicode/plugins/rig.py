"""Plugins on disk, as a user has them: installed packages, modules, files and directories."""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from codesdk.minicode.config import LoadedConfig, load_config
from codesdk.minicode.plugins import Composition, PluginError, load_plugins

GREETER = '''
from codesdk.minicode.plugins import Action, Contribution, Plugin, define_tool


def plugin(config):
    @define_tool(name=config.get("tool", "greet"))
    async def greet(name: str) -> str:
        """Greet somebody."""
        return f"{config['word']}, {name}!"

    async def shout(context):
        return context.arguments.upper()

    def setup(context):
        CONTEXTS.append(context)
        return Contribution(
            tools=[greet],
            instructions=[f"Greet with {config['word']}."],
            actions=[Action(id=config.get("action", "shout"), title="Shout", aliases=["loud"], run=shout)],
        )

    return Plugin(id=config.get("id", "greeter"), setup=setup, version="1.2")


CONTEXTS = []
'''


class Disk:
    """Where a user keeps plugins, and the configuration that names them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.site = root / "site-packages"
        self.config = root / "config"
        for path in (self.project, self.site, self.config):
            path.mkdir()

    def configure(self, plugins: dict[str, Any]) -> LoadedConfig:
        (self.config / "config.json").write_text(json.dumps({"plugins": plugins}))
        return load_config(self.project, env={"MINICODE_CONFIG_DIR": str(self.config)})

    def write(self, name: str, text: str) -> str:
        """Write a file and return its URL."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path.as_uri()

    def install(self, name: str, module: str, text: str, entry: str | None = None) -> None:
        """Install a distribution: a module, and its metadata with an entry point."""
        (self.site / f"{module}.py").write_text(text)
        info = self.site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("")
        lines = "" if entry is None else f"[minicode.plugins]\n{entry}\n"
        (info / "entry_points.txt").write_text(lines)

    def modules(self) -> list[ModuleType]:
        """Return the modules that this process has loaded from here, whatever other tests have loaded from elsewhere."""
        found = [(str(getattr(module, "__file__", None)), module) for module in list(sys.modules.values())]
        return [module for file, module in found if Path(file).is_relative_to(self.root)]

    @contextmanager
    def on_path(self) -> Generator[None]:
        """Have what is installed on the path of this process."""
        sys.path.insert(0, str(self.site))
        try:
            yield
        finally:
            sys.path.remove(str(self.site))
            for module in self.modules():
                del sys.modules[module.__name__]


async def load(config: LoadedConfig, **options: Any) -> Composition:
    return await load_plugins(config, sdk_version="9.9", **options)


async def problems(config: LoadedConfig, **options: Any) -> list[tuple[str, str, str | None, str]]:
    """Return what is wrong with each plugin: stage, reference, id, words."""
    found: list[PluginError] = []
    await load(config, problems=found, **options)
    return [(each.stage, each.reference, each.plugin_id, each.problem) for each in found]
