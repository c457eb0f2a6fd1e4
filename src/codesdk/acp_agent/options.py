"""What an editor can choose in a session: its permission mode, its model and its runtime, as ACP shows them."""

from collections.abc import Sequence

import msgspec
from acp.schema import (
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)
from msgspec import UNSET

from codesdk.acp_agent.place import Offer
from codesdk.contract.actions import Action, ChangeSettings, MoveSession
from codesdk.contract.errors import InvalidRequest
from codesdk.contract.events import SettingsChanged
from codesdk.contract.records import SessionRow
from codesdk.contract.tools import PermissionMode

Option = SessionConfigOptionSelect | SessionConfigOptionBoolean
"""As the protocol has it; ours all have a list of values."""

_DEFAULT = "default"
"""Stands for the model that the runtime chooses itself. It cannot be chosen again once a model is."""
_MODES: dict[PermissionMode, tuple[str, str]] = {
    "ask": ("Ask", "Ask before every tool."),
    "auto": ("Auto", "Ask before every tool but those that only read."),
    "yolo": ("Yolo", "Never ask."),
}


class Chosen(msgspec.Struct):
    """What is chosen in a session now, kept up with its events."""

    mode: PermissionMode
    runtime: str
    model: str | None = None
    title: str | None = None

    @classmethod
    def of(cls, row: SessionRow) -> "Chosen":
        """Return what a session's row says."""
        mode = msgspec.convert(row.permission_mode, type=PermissionMode)
        return cls(mode=mode, runtime=row.runtime, model=row.model, title=row.title)

    def change(self, payload: SettingsChanged) -> None:
        """Take over what somebody changed."""
        if payload.permission_mode is not UNSET:
            self.mode = payload.permission_mode
        if payload.model is not UNSET:
            self.model = payload.model
        if payload.title is not UNSET:
            self.title = payload.title


class Options:
    """Modes and options of sessions, as one editor is shown them."""

    def __init__(self, offer: Offer, modes: Sequence[PermissionMode]) -> None:
        self._offer = offer
        self._modes = modes

    def modes(self, chosen: Chosen) -> SessionModeState:
        """Return the permission modes as session modes."""
        return SessionModeState(
            current_mode_id=chosen.mode,
            available_modes=[
                SessionMode(id=mode, name=_MODES[mode][0], description=_MODES[mode][1])
                for mode in self._listed(chosen)
            ],
        )

    def options(self, chosen: Chosen) -> list[Option]:
        """Return mode, model and, if there are several to choose from, runtime."""
        found: list[Option] = [
            SessionConfigOptionSelect(
                type="select",
                id="mode",
                name="Permissions",
                category="mode",
                current_value=chosen.mode,
                options=[
                    SessionConfigSelectOption(value=mode, name=_MODES[mode][0], description=_MODES[mode][1])
                    for mode in self._listed(chosen)
                ],
            ),
            SessionConfigOptionSelect(
                type="select",
                id="model",
                name="Model",
                category="model",
                current_value=chosen.model or _DEFAULT,
                options=_plain(_with(self._offer.models, chosen.model or _DEFAULT)),
            ),
        ]
        if len(self._offer.runtimes) > 1:
            found.append(
                SessionConfigOptionSelect(
                    type="select",
                    id="runtime",
                    name="Runtime",
                    description="Another one continues the conversation so far.",
                    current_value=chosen.runtime,
                    options=_plain(_with(self._offer.runtimes, chosen.runtime)),
                )
            )
        return found

    def action(
        self, session_id: str, option: str, value: str | bool, chosen: Chosen
    ) -> Action[SessionRow] | None:
        """Return what choosing a value does; None if it is chosen already. The engine says whether it may be."""
        if not isinstance(value, str) or not value:
            raise InvalidRequest(f"The option {option[:40]} takes a text.")
        match option:
            case "mode" if value in _MODES:
                mode = msgspec.convert(value, type=PermissionMode)
                return ChangeSettings(session_id=session_id, permission_mode=mode)
            case "mode":
                raise InvalidRequest(f"There is no mode {value[:40]!r}. There are: {', '.join(_MODES)}.")
            case "model" if value == (chosen.model or _DEFAULT):
                return None
            case "model" if value == _DEFAULT:
                raise InvalidRequest("A chosen model can be replaced by another one, but not removed.")
            case "model":
                return ChangeSettings(session_id=session_id, model=value)
            case "runtime" if value == chosen.runtime:
                return None
            case "runtime":
                return MoveSession(session_id=session_id, runtime=value)
            case _:
                raise InvalidRequest(f"There is no option {option[:40]!r}. There are: mode, model, runtime.")

    def _listed(self, chosen: Chosen) -> list[PermissionMode]:
        return [mode for mode in _MODES if mode in self._modes or mode == chosen.mode]


def _with(values: Sequence[str], current: str) -> list[str]:
    return [*values, *([] if current in values else [current])]


def _plain(values: Sequence[str]) -> list[SessionConfigSelectOption]:
    return [SessionConfigSelectOption(value=value, name=value) for value in values]
