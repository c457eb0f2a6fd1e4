"""Models of four kinds of providers behind one port: contract messages in, pieces and one whole message out.

`settings` says which model and where it is, `opening` loads what is needed for it: `library` around pydantic-ai, and one of
`clients`. The others translate: `request` and `details` on the way there, `answer` and `errors` on the way back.
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.minicode.models.opening import (
        INSTALL as INSTALL,
        OpenModel as OpenModel,
        open_model as open_model,
        what_is_missing as what_is_missing,
    )
    from codesdk.minicode.models.settings import (
        PROVIDERS as PROVIDERS,
        Effort as Effort,
        Family as Family,
        ModelSettings as ModelSettings,
        ReadArtifact as ReadArtifact,
        check_settings as check_settings,
    )

__getattr__, __dir__ = open_door(__name__, __file__)
