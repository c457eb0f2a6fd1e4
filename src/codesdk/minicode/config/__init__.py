"""The configuration of minicode: five layers, what a project may say, and the public schemas."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.minicode.config.environment import (
        KEYS as KEYS,
        VARIABLES as VARIABLES,
        Variable as Variable,
    )
    from codesdk.minicode.config.load import load_config as load_config
    from codesdk.minicode.config.resolved import (
        LoadedConfig as LoadedConfig,
        Origin as Origin,
        ProviderAccess as ProviderAccess,
        Setting as Setting,
    )
    from codesdk.minicode.config.schema import (
        AgentDefaults as AgentDefaults,
        HookLimits as HookLimits,
        ModelNameSchema as ModelNameSchema,
        PluginConfig as PluginConfig,
        PluginReference as PluginReference,
        PluginsConfig as PluginsConfig,
        PluginsConfigSchema as PluginsConfigSchema,
        ProviderIdSchema as ProviderIdSchema,
        ResolvedPaths as ResolvedPaths,
        ResolvedProvider as ResolvedProvider,
        ResolvedSdkConfig as ResolvedSdkConfig,
        ResolvedSdkConfigSchema as ResolvedSdkConfigSchema,
        SandboxSettings as SandboxSettings,
        SdkConfig as SdkConfig,
        SdkConfigSchema as SdkConfigSchema,
        ToolLimits as ToolLimits,
    )

__getattr__, __dir__ = open_door(__name__, __file__)
