"""Settings in effect → what a daemon and an engine are opened with. What would have no effect is refused."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from codesdk.cli.settings.resolved import Resolved
from codesdk.contract.bounds import check_bounds
from codesdk.contract.errors import InvalidRequest

if TYPE_CHECKING:
    from codesdk.contract.access import LoginTraffic
    from codesdk.contract.capabilities import IsolationLevel
    from codesdk.contract.ports import Policy
    from codesdk.contract.retention import Retention
    from codesdk.contract.settings import Limits
    from codesdk.daemon import DaemonSettings
    from codesdk.extensions import ExtensionOptions
    from codesdk.tools import ExecOptions, FetchOptions

EVERYWHERE = "*"
_OF_SANDBOX = {"image": "oci", "engine": "oci", "cpus": "oci", "readable": "bubblewrap"}
"""The options that only one sandbox has."""


def opening(settings: Resolved) -> dict[str, Any]:
    """Return arguments to open an engine with: the policy, and the tools that are off by default."""
    return {
        "policy": _policy(settings),
        "external": external(settings),
        "hosting": settings["hosting"],
        "run": commands(settings),
        "fetch": fetch(settings),
        "extensions": extensions(settings),
    }


def _policy(settings: Resolved) -> "Policy | None":
    """Return the policy that is asked on top of the permission mode, if one was named."""
    if settings["policy"] is None:
        return None
    from codesdk.policy import choose_policy

    return settings.use("policy", choose_policy)


def external(settings: Resolved) -> dict[str, list[str]]:
    """Return the commands of executables that are runtimes, by name."""
    if not settings["external"]:
        return {}
    from codesdk.runtimes import read_external

    return settings.use("external", read_external)


def logins(settings: Resolved) -> "dict[str, LoginTraffic]":
    """Return the runtimes whose own logins are switched on, and how their requests go."""
    from codesdk.runtimes import read_logins

    return settings.use("logins", lambda words: read_logins(",".join(words)))


def commands(settings: Resolved) -> "ExecOptions | None":
    """Return the options of `workspace.exec`, or None if no command is allowed."""
    _refuse_idle(settings)
    if not settings["commands.allow"]:
        return None
    from codesdk.sandbox import SandboxLimits, check_hosts
    from codesdk.tools import ExecOptions

    settings.use("commands.hosts", check_hosts)
    limits = SandboxLimits(**settings.members("commands.limits"))
    check_bounds(limits)
    return ExecOptions(
        allow=settings.use("commands.allow", lambda lines: [_words(line) for line in lines]),
        sandbox=settings["commands.sandbox"],
        sandbox_options=_sandbox_options(settings),
        limits=limits,
        hosts=settings["commands.hosts"],
        writable=settings["commands.writable"],
    )


def fetch(settings: Resolved) -> "FetchOptions | None":
    """Return the options of `http.fetch`, or None if no host is allowed."""
    allowed: Sequence[str] = settings["fetch.allow"]
    if not allowed:
        return None
    from codesdk.sandbox import check_hosts
    from codesdk.tools import FetchOptions

    if EVERYWHERE in allowed:
        return FetchOptions()
    settings.use("fetch.allow", check_hosts)
    return FetchOptions(hosts=allowed)


def extensions(settings: Resolved) -> "ExtensionOptions | None":
    """Return where extensions come from, or None if none are switched on."""
    roots, project, packages = (settings[f"extensions.{name}"] for name in ("roots", "project", "packages"))
    if not roots and project is None and not packages:
        for name in ("extensions.trust", "extensions.hosting", "extensions.environment"):
            if settings.changed(name):
                raise InvalidRequest(
                    f"{settings.name(name)} has no effect: no extensions are switched on. Name some with"
                    " --extension."
                )
        return None
    if settings.changed("extensions.environment") and settings["extensions.hosting"] == "in_process":
        raise InvalidRequest(
            f"{settings.name('extensions.environment')} has no effect: in this process extensions have all of its"
            " environment. Give them their own with --extension-hosting subprocess."
        )
    from codesdk.extensions import ExtensionOptions

    return ExtensionOptions(
        project=project,
        packages=packages,
        roots=tuple(roots),
        trust=settings["extensions.trust"],
        hosting=settings["extensions.hosting"],
        environment=tuple(settings["extensions.environment"]),
    )


def limits(settings: Resolved) -> "Limits":
    """Return the limits of the engine."""
    from codesdk.contract.settings import Budget, Limits

    given = settings.members("limits")
    budget = Budget(**{name.partition(".")[2]: given.pop(name) for name in [*given] if "." in name})
    return Limits(**given, principal_budget=None if budget == Budget() else budget)


def daemon(settings: Resolved) -> "DaemonSettings":
    """Return the settings of a daemon."""
    from codesdk.daemon import DaemonSettings
    from codesdk.engine import Permits
    from codesdk.runtimes import resolve

    return DaemonSettings(
        host=settings["host"],
        port=settings["port"],
        grace_s=settings["grace_s"],
        permits=Permits(
            runtimes=settings.use("runtimes", lambda names: tuple(resolve(name) for name in names)),
            workspace_roots=settings["workspace_roots"],
            allow_yolo=settings["allow_yolo"],
            allow_untested=settings["allow_untested"],
            script_files=settings["allow_script_files"],
            agent_commands=settings["allow_agent_commands"],
            share_keys=settings["share_keys"],
            logins=logins(settings),
            isolation=settings.use("allow_isolation", _levels),
            namespaces=tuple(settings["allow_namespaces"]),
        ),
        allow_hosts=settings["allow_hosts"],
        require_token=settings["require_token"],
        retention=_retention(settings),
        max_body_bytes=settings["max_body_bytes"],
        requests_per_s=settings["requests_per_second"],
        request_burst=settings["request_burst"],
        tasks_per_minute=settings["tasks_per_minute"],
        max_connections=settings["max_connections"],
        max_connections_per_peer=settings["max_connections_per_peer"],
        heartbeat_s=settings["heartbeat_s"],
    )


def _retention(settings: Resolved) -> "Retention | None":
    """Return what is kept; None for everything."""
    days, size = settings["keep_days"], settings["keep_bytes"]
    if days is None and size is None:
        return None
    from codesdk.contract.retention import Retention

    return Retention(max_age_days=days, undo_max_age_days=days, audit_max_age_days=days, max_total_bytes=size)


def _sandbox_options(settings: Resolved) -> dict[str, object]:
    """Return what the chosen sandbox is opened with."""
    kind = settings["commands.sandbox"]
    if kind == "host":
        return {}
    options: dict[str, object] = {"give_workspace": settings["commands.give_workspace"]}
    if kind == "bubblewrap":
        return options | {"readable": settings["commands.readable"]}
    if settings["commands.image"] is None:
        raise InvalidRequest(
            f"{settings.name('commands.sandbox')}: the sandbox oci needs an image that its engine has."
            " Name it with --image, or as daemon.commands.image."
        )
    return options | {name: settings[f"commands.{name}"] for name in ("image", "engine", "cpus")}


def _refuse_idle(settings: Resolved) -> None:
    """Raise `InvalidRequest` for an option that was given and would have no effect."""
    kind = settings["commands.sandbox"]
    for key in settings.members("commands"):
        if key == "allow" or not settings.changed(f"commands.{key}"):
            continue
        name = settings.name(f"commands.{key}")
        if not settings["commands.allow"]:
            raise InvalidRequest(
                f"{name} has no effect: no command is allowed. Allow some with --allow-command."
            )
        only = _OF_SANDBOX.get(key)
        if only is not None and only != kind:
            raise InvalidRequest(
                f"{name} has no effect: it is for the sandbox {only}, and this one is {kind}."
            )
        if key == "give_workspace" and kind == "host":
            raise InvalidRequest(f"{name} has no effect: the sandbox host runs commands as this user.")


def _levels(names: Sequence[str]) -> "tuple[IsolationLevel, ...]":
    """Return the levels of isolation that sessions may choose, the usual one first."""
    from codesdk.contract.capabilities import IsolationLevel

    try:
        return ("namespaced", *(msgspec.convert(name, type=IsolationLevel) for name in names))
    except msgspec.ValidationError:
        known = ", ".join(get_args(IsolationLevel))
        raise InvalidRequest(f"A level of isolation is one of: {known}.") from None


def _words(line: str) -> list[str]:
    """Return the words of a command's beginning."""
    import shlex

    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InvalidRequest(f"{line!r} cannot be split into words: {error}.") from None
    if (
        not words
    ):  # an empty beginning would allow everything, and an unset variable of a shell looks like one
        raise InvalidRequest("A command is empty. Name a program.")
    return words
