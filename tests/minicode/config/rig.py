"""A user with a global file, and a project with a file of its own."""

import json
from pathlib import Path
from typing import Any

from codesdk.minicode.config import LoadedConfig, load_config


class Machine:
    """Where the user's configuration and the project are."""

    def __init__(self, root: Path) -> None:
        self.config = root / "config"
        self.project = root / "project"
        (self.project / ".minicode").mkdir(parents=True)
        self.config.mkdir()

    @property
    def global_file(self) -> Path:
        return self.config / "config.json"

    @property
    def project_file(self) -> Path:
        return self.project / ".minicode" / "config.json"

    def write_global(self, value: Any, mode: int = 0o600) -> None:
        self.global_file.write_text(value if isinstance(value, str) else json.dumps(value))
        self.global_file.chmod(mode)

    def write_project(self, value: Any) -> None:
        self.project_file.write_text(value if isinstance(value, str) else json.dumps(value))

    def load(self, overrides: dict[str, Any] | None = None, /, **env: str) -> LoadedConfig:
        """Load with no other variables than these."""
        return load_config(self.project, overrides, {"MINICODE_CONFIG_DIR": str(self.config)} | env)
