"""The arguments of `CodeSDK.open`, checked before anything is opened: one error each, which names the argument."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from codesdk.contract.arguments import path_text, texts
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.ports import Policy
from codesdk.contract.settings import Limits
from codesdk.contract.validation import checked
from codesdk.engine import Permits
from codesdk.gateway import Provider


def check_opening(**given: Any) -> None:
    """Raise `InvalidRequest` for an argument of another kind than expected. None is what is not given."""
    for name, value in given.items():
        wanted, fits = _EXPECTED[name]
        if value is not None and not fits(value):
            raise InvalidRequest(
                f"Invalid argument: {name}: expected {wanted}, got `{type(value).__name__}`."
            )
    for settings in (given.get("limits"), given.get("permits")):
        if settings is not None:
            checked(settings)


def chosen_policy(policy: Policy | str | None) -> Policy | None:
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


def _is_secrets(value: object) -> bool:
    return all(isinstance(one, str) for one in cast("list[object]", texts(value, "secrets")))


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
    "principal": ("a name", lambda value: isinstance(value, str) and bool(value)),
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
