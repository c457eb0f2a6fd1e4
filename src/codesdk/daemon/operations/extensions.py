"""Operations about extensions: which there are, and loading them again."""

from codesdk.contract.api import ExtensionPage, Reload
from codesdk.daemon.operations.operation import Call, Operation, get


async def list_extensions(call: Call) -> ExtensionPage:
    """List the extensions that were found: loaded, or rejected and why."""
    return call.sdk.extensions.inventory()


async def reload_extensions(call: Call) -> ExtensionPage:
    """Load all extensions again, and put them in the place of those that run.

    If one that runs could no longer be loaded, all stay as they are. Refused while another reload is under way.
    """
    return await call.sdk.engine.keys.once(
        call.caller.principal,
        call.operation.name,
        call.key,
        [],
        lambda _: call.sdk.extensions.reload(),
        passing=True,
    )


OPERATIONS = (
    get("/v1/extensions", list_extensions, scope="admin", group="extensions"),
    Operation(
        name="reloadExtensions",
        method="POST",
        path="/v1/extensions/reload",
        scope="admin",
        run=reload_extensions,
        body=Reload,
        answer=ExtensionPage,
        group="extensions",
    ),
)
