"""What the operator lets sessions use: runtimes, workspaces, scripts in files, and the mode that never asks.

A value given to the engine and checked whenever a session is created, forked, moved or given work: the
operator may have become stricter since the session was created.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from codesdk.contract.actions import LOCAL
from codesdk.contract.capabilities import IsolationLevel, LoginTraffic
from codesdk.contract.errors import Forbidden, InvalidRequest
from codesdk.contract.models import Payer
from codesdk.contract.tools import PermissionMode

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


class Permits(msgspec.Struct, frozen=True, kw_only=True):
    """What sessions may use."""

    runtimes: tuple[str, ...] = ()
    """Full names; empty allows all."""
    workspace_roots: tuple[str, ...] = ()
    """Directories that workspaces must be in; empty allows any."""
    allow_yolo: bool = False
    allow_untested: bool = False
    """Whether runtimes may drive programs whose version was neither tested nor certified."""
    script_files: bool = False
    """Whether a session may name a script by its path, for the scripted runtime to play."""

    agent_commands: bool = False
    """Whether a session may say which command starts its agent: that is code that runs as the operator."""

    logins: Mapping[str, LoginTraffic] = {}
    """Runtimes by full name whose own logins are switched on, and how their traffic goes. Off for all others."""

    share_keys: bool = False
    """Whether the operator's provider keys also serve principals that have none of their own."""

    isolation: tuple[IsolationLevel, ...] = ("namespaced",)
    """The levels of isolation that a session may choose. The first one is that of a session that chooses none."""
    namespaces: tuple[str, ...] = ()
    """Credential namespaces that a session may use besides its principal's own; `*` stands for all."""

    def __post_init__(self) -> None:
        # Once: one root may lie in another, where a session could put a link in its place.
        roots = tuple(str(Path(root).resolve()) for root in self.workspace_roots)
        msgspec.structs.force_setattr(self, "workspace_roots", roots)

    def check(self, runtime: str, mode: PermissionMode, runtime_config: Mapping[str, Any]) -> None:
        """Raise `Forbidden` if sessions may not use one of these."""
        self.check_runtime(runtime)
        self.check_mode(mode)
        self.check_script(runtime_config)
        self.check_command(runtime_config)

    def check_runtime(self, name: str) -> None:
        """Raise `Forbidden` if sessions may not use a runtime."""
        if self.runtimes and name not in self.runtimes:
            raise Forbidden(f"The runtime {name} is not enabled here. Enabled: {', '.join(self.runtimes)}.")

    def check_mode(self, mode: PermissionMode) -> None:
        """Raise `Forbidden` if sessions may not use a permission mode."""
        if mode == "yolo" and not self.allow_yolo:
            raise Forbidden(
                "The permission mode yolo runs every tool without asking and is not enabled here. Use auto, or"
                " have the operator enable it: CodeSDK.open(allow_yolo=True), or --allow-yolo."
            )

    def check_isolation(self, level: IsolationLevel) -> None:
        """Raise `Forbidden` if sessions may not choose a level of isolation."""
        if level not in self.isolation:
            raise Forbidden(
                f"The isolation level {level} is not enabled here. Enabled: {', '.join(self.isolation)}. The operator"
                f" enables it: Permits(isolation=…), or --allow-isolation {level}."
            )

    def check_namespace(self, namespace: str | None, principal: str) -> None:
        """Raise `Forbidden` if a principal's sessions may not use a credential namespace, and its logins with it."""
        if namespace is not None and not _NAMESPACE.fullmatch(namespace):
            raise InvalidRequest(
                "A credential namespace is 1 to 64 letters, digits, _ . @ or -, and begins with a letter or a digit."
            )
        if namespace in (None, principal) or "*" in self.namespaces or namespace in self.namespaces:
            return
        raise Forbidden(
            f"The credential namespace {namespace} is not enabled here. Leave it out to use {principal}, or have the"
            f" operator enable it: Permits(namespaces=…), or --allow-namespace {namespace}."
        )

    def payer(self, principal: str) -> Payer:
        """Return who pays for a principal's model requests. The operator's keys are those of the local principal."""
        return Payer(principal=principal, operator=principal == LOCAL or self.share_keys)

    def check_script(self, runtime_config: Mapping[str, Any]) -> None:
        """Raise `Forbidden` if a session names a script by its path and may not: no policy is asked about that file."""
        if isinstance(runtime_config.get("script"), str) and not self.script_files:
            raise Forbidden(
                "Scripts are not read from files here. Give the script itself as an object, or have the operator"
                " enable it: Permits(script_files=True), or --allow-script-files."
            )

    def check_command(self, runtime_config: Mapping[str, Any]) -> None:
        """Raise `Forbidden` if a session says which command starts its agent, and may not."""
        if "command" in runtime_config and not self.agent_commands:
            raise Forbidden(
                "Agents are not started by a session's own command here. Use one that is known by name, or have the"
                " operator enable it: Permits(agent_commands=True), or --allow-agent-commands."
            )

    def resolve_workspace(self, given: str) -> str:
        """Return a workspace path with all links resolved. Raise if sessions may not use it."""
        try:
            path = Path(given)
            if not path.is_absolute():
                raise InvalidRequest(
                    "The workspace must be an absolute path on the machine that runs the session."
                )
            found = path.resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise InvalidRequest(f"The workspace cannot be used ({type(error).__name__}).") from error
        self.check_workspace(str(found))
        return str(found)

    def check_workspace(self, path: str) -> None:
        """Raise `Forbidden` if sessions may not work in a directory, given by its resolved path.

        The path is compared as it is, because workspaces are opened without following links.
        """
        if self.workspace_roots and not any(Path(path).is_relative_to(root) for root in self.workspace_roots):
            raise Forbidden("The workspace is outside the directories that the operator allows.")
