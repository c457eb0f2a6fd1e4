"""minicode: a small agent with everything it needs. `create_minicode()` runs it alone; it is also the runtime `minicode`.

The names here are its whole public surface. What plugins are written with is in `codesdk.minicode.plugins`.
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.minicode.config.schema import (
        PluginReference as PluginReference,
        PluginsConfig as PluginsConfig,
        PluginsConfigSchema as PluginsConfigSchema,
        ProviderIdSchema as ProviderIdSchema,
        ResolvedSdkConfig as ResolvedSdkConfig,
        ResolvedSdkConfigSchema as ResolvedSdkConfigSchema,
        SdkConfig as SdkConfig,
        SdkConfigSchema as SdkConfigSchema,
    )
    from codesdk.minicode.options import (
        CreateMinicodeOptions as CreateMinicodeOptions,
        OpenSessionOptions as OpenSessionOptions,
        RuntimeCatalog as RuntimeCatalog,
        RuntimeOverride as RuntimeOverride,
    )
    from codesdk.minicode.sdk import Minicode as Minicode, create_minicode as create_minicode
    from codesdk.minicode.session import Session as Session, Turn as Turn
    from codesdk.minicode.types import (
        ProviderId as ProviderId,
        SessionSummary as SessionSummary,
        ToolOutput as ToolOutput,
        TurnEvent as TurnEvent,
        TurnRequest as TurnRequest,
        TurnResponse as TurnResponse,
    )

__getattr__, __dir__ = open_door(__name__, __file__)
