"""What `create_minicode` and `open_session` are told, as types: the names are those of their arguments."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from codesdk.contract.tools import Record
from codesdk.minicode.tools.define import Tool
from codesdk.minicode.types import ProviderId, StopCondition


class AgentOverrides(TypedDict, total=False):
    """What an application gives its agent in place of what minicode has."""

    instructions: str
    """In place of minicode's own and of those that are configured. What plugins add still comes after it."""
    tools: Sequence[Tool]
    """In place of `read`, `write`, `edit` and `bash`. Those of plugins still come after them."""
    stop_when: StopCondition | Sequence[StopCondition]


class CreateMinicodeOptions(TypedDict, total=False):
    """The arguments of `create_minicode`."""

    cwd: str | os.PathLike[str]
    config_overrides: Mapping[str, Any]
    env: Mapping[str, str]
    agent: AgentOverrides


class CompatibleOverride(TypedDict, total=False):
    """Which openai-compatible service is meant."""

    name: str
    base_url: str


class RuntimeOverride(TypedDict, total=False):
    """Which model a session uses. One that exists can change its model, but not its provider."""

    provider: ProviderId
    model: str
    openai_compatible: CompatibleOverride


class OpenSessionOptions(TypedDict, total=False):
    """The arguments of `open_session`."""

    id: str
    create_if_missing: bool
    cwd: str | os.PathLike[str]
    metadata: Mapping[str, Any]
    runtime: RuntimeOverride


class ProviderModels(Record, frozen=True, kw_only=True):
    """A provider, and the models of it to choose from."""

    id: ProviderId
    models: list[str]


class RuntimeCatalog(Record, frozen=True, kw_only=True):
    """What a session can run on."""

    providers: list[ProviderModels]
