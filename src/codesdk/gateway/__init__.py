"""The model gateway: one loopback endpoint that runtimes talk to instead of their provider.

It forwards requests, records them, plays them back, or answers from a script, in four wire formats (`wires`).
`capture` reports to the session what passed; `cassettes` are recordings.
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.gateway.capture.exact import hashes_of as hashes_of, join as join
    from codesdk.gateway.cassettes.cassette import (
        Exchange as Exchange,
        Tape as Tape,
        load_cassette as load_cassette,
        parse_cassette as parse_cassette,
        save_cassette as save_cassette,
    )
    from codesdk.gateway.cassettes.record import RecordingBackend as RecordingBackend
    from codesdk.gateway.cassettes.replay import (
        LenientReplay as LenientReplay,
        ReplayBackend as ReplayBackend,
    )
    from codesdk.gateway.cassettes.tapes import session_cassette as session_cassette
    from codesdk.gateway.gateway import GatewayService as GatewayService
    from codesdk.gateway.providers import (
        KEY_NAMES as KEY_NAMES,
        ORIGINS as ORIGINS,
        Accounts as Accounts,
        Provider as Provider,
        providers_from as providers_from,
    )
    from codesdk.gateway.reply import RawRequest as RawRequest, Reply as Reply
    from codesdk.gateway.scripted import ScriptedModel as ScriptedModel
    from codesdk.gateway.server import Backend as Backend, Gateway as Gateway
    from codesdk.gateway.sessions import Source as Source
    from codesdk.gateway.upstream import Upstream as Upstream
    from codesdk.gateway.wires.exchange import (
        Ask as Ask,
        AskResult as AskResult,
        AskText as AskText,
        Call as Call,
        Codec as Codec,
        Finish as Finish,
        Part as Part,
        ReasoningChunk as ReasoningChunk,
        TextChunk as TextChunk,
        Wire as Wire,
    )

__getattr__, __dir__ = open_door(__name__, __file__)
