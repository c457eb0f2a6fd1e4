"""The arguments of `CodeSDK.open`, checked before anything is opened: one error each, which names the argument."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import msgspec

from codesdk.contract.arguments import check_principal, path_text, texts
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.models import Wire
from codesdk.contract.ports import Observer, Policy, Subscriber, Synchronous, ToolRunner
from codesdk.contract.runtime import Runtime
from codesdk.contract.settings import Limits
from codesdk.contract.validation import checked
from codesdk.engine import Permits
from codesdk.gateway import Provider

if TYPE_CHECKING:
    from codesdk.extensions import ExtensionOptions
    from codesdk.tools import ExecOptions, FetchOptions

Hosting = Literal["in_process", "subprocess"]
"""Where the runtimes of this package run: in the process of the engine, or each session's in one of its own."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What `CodeSDK.open` was given. Its docstring says what each argument means."""

    data_dir: str | os.PathLike[str] | None
    runtimes: Mapping[str, Runtime] | None
    external: Mapping[str, Sequence[str] | str] | None
    hosting: Hosting
    tools: ToolRunner | None
    run: "ExecOptions | None"
    fetch: "FetchOptions | None"
    policy: Policy | str | None
    limits: Limits | None
    secrets: Iterable[str]
    providers: "Mapping[Wire, Provider] | None"
    synchronous: Synchronous
    principal: str
    allow_yolo: bool
    logins: Sequence[str]
    allow_untested: bool
    permits: Permits | None
    observers: Sequence[Observer]
    subscribers: Sequence[Subscriber]
    extensions: "ExtensionOptions | None"
    share: bool
    goes_on: bool
    rules: Policy | None = None
    """The policy, once it is checked."""

    @property
    def shapes_engine(self) -> bool:
        """Whether something is given that the engine of another process would ignore, such as secrets that it does not know."""
        plain = self.hosting == "in_process" and self.synchronous == "auto"
        return not plain or any(getattr(self, name) for name in _SHAPING)

    def checked(self) -> "Opening":
        """Return the same with secrets as texts and the policy chosen. Raise `InvalidRequest` for what is not as expected."""
        given = msgspec.structs.replace(self, secrets=tuple(texts(self.secrets, "secrets")))
        for name, (wanted, fits) in _EXPECTED.items():
            value = getattr(given, name)
            if not ((value is None and name in _OPTIONAL) or fits(value)):
                raise InvalidRequest(
                    f"Invalid argument: {name}: expected {wanted}, got `{type(value).__name__}`."
                )
        for settings in (given.limits, given.permits):
            if settings is not None:
                checked(settings)
        for name, options in (("run", given.run), ("fetch", given.fetch)):
            if options is None:
                continue
            options.check()
            if given.tools is not None:
                raise InvalidRequest(
                    f"Invalid argument: {name}: it adds to the built-in tools, which `tools` replaces. Leave one of the two"
                    f" out, or add the tool to your registry ({_TOOLS[name]})."
                )
        _check_providers(given.providers or {})
        return msgspec.structs.replace(given, rules=_chosen_policy(given.policy))


_TOOLS = {"run": "codesdk.tools.exec_tool", "fetch": "codesdk.tools.fetch_tool"}
"""What makes the tools that options switch on."""
_OPTIONAL = ("data_dir", "runtimes", "external", "tools", "run", "fetch", "policy", "limits", "providers", "permits", "extensions")  # fmt: skip
"""What may be None, which is what is not given."""
_SHAPING = (
    "runtimes",
    "external",
    "tools",
    "run",
    "fetch",
    "policy",
    "limits",
    "secrets",
    "providers",
    "allow_yolo",
    "logins",
    "allow_untested",
    "permits",
    "observers",
    "subscribers",
    "extensions",
)


def _chosen_policy(policy: Policy | str | None) -> Policy | None:
    """Return a policy, which may be given by the name of a preset. A path is neither: no file is read here."""
    if isinstance(policy, str):
        from codesdk.policy import preset_policy

        return preset_policy(policy)
    if policy is not None and not callable(getattr(policy, "evaluate", None)):
        raise InvalidRequest(
            f"Invalid argument: policy: expected the name of a preset or an object with `evaluate`, got"
            f" `{type(policy).__name__}`. load_policy reads a policy from a file."
        )
    return policy


def _check_providers(providers: "Mapping[Wire, Provider]") -> None:
    """Raise `InvalidRequest` for a provider of a format that there is not: nothing would ever ask it."""
    formats = get_args(Wire)
    for name, provider in providers.items():
        if name not in formats:
            raise InvalidRequest(
                f"Invalid argument: providers: there is no format {name[:40]!r}. There are: {', '.join(formats)}."
            )
        checked(provider)


def _is_secrets(value: object) -> bool:
    return all(isinstance(one, str) for one in cast("list[object]", texts(value, "secrets")))


def _is_principal(value: object) -> bool:
    check_principal(value)
    return True


def _is_names(value: object) -> bool:
    return all(isinstance(one, str) for one in cast("list[object]", texts(value, "logins")))


def _is_runtimes(value: object) -> bool:
    return _is_map(value, lambda one: callable(getattr(one, "start_task", None)))


def _is_commands(value: object) -> bool:
    def fits(command: object) -> bool:
        words = cast("list[object]", command) if isinstance(command, list | tuple) else [command]
        return all(isinstance(word, str) for word in words)

    return _is_map(value, fits)


def _is_map(value: object, fits: Callable[[object], bool]) -> bool:
    if not isinstance(value, Mapping):
        return False
    items = cast("Mapping[object, object]", value).items()
    return all(isinstance(name, str) and fits(one) for name, one in items)


def _are(value: object, *methods: str) -> bool:
    """Return whether a value is a list of objects with these methods."""
    return isinstance(value, list | tuple) and all(
        all(hasattr(one, method) for method in methods) for one in cast("list[object]", value)
    )


def _has(*methods: str) -> Callable[[object], bool]:
    return lambda value: all(callable(getattr(value, method, None)) for method in methods)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_options(name: str) -> Callable[[object], bool]:
    """Return whether a value is of a class of the tools, which are loaded only if something is given."""

    def fits(value: object) -> bool:
        from codesdk import tools

        return isinstance(value, getattr(tools, name))

    return fits


def _is_extensions(value: object) -> bool:
    from codesdk.extensions import ExtensionOptions

    return isinstance(value, ExtensionOptions)


_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "data_dir": ("a path", lambda value: bool(path_text(value, "data_dir"))),
    "runtimes": ("runtimes by name", _is_runtimes),
    "external": ("commands by name", _is_commands),
    "hosting": ("in_process or subprocess", lambda value: value in ("in_process", "subprocess")),
    "tools": ("a ToolRunner", _has("specs", "prepare", "close_session")),
    "run": ("ExecOptions", _is_options("ExecOptions")),
    "fetch": ("FetchOptions", _is_options("FetchOptions")),
    "limits": ("Limits", lambda value: isinstance(value, Limits)),
    "secrets": ("a list of texts", _is_secrets),
    "providers": ("providers by format", lambda value: _is_map(value, lambda one: isinstance(one, Provider))),
    "synchronous": ("auto, full or normal", lambda value: value in ("auto", "full", "normal")),
    "principal": ("a principal's name", _is_principal),
    "allow_yolo": ("true or false", _is_bool),
    "allow_untested": ("true or false", _is_bool),
    "logins": ("a list of runtimes", _is_names),
    "permits": ("Permits", lambda value: isinstance(value, Permits)),
    "observers": ("a list of observers", lambda value: _are(value, "committed")),
    "subscribers": ("a list of subscribers", lambda value: _are(value, "name", "types")),
    "extensions": ("ExtensionOptions", _is_extensions),
    "share": ("true or false", _is_bool),
    "goes_on": ("true or false", _is_bool),
}
