"""The stdio policy channel: the tool calls of any program that prints its requests and waits, decided before they run.

`protocol` and `framing` are what goes over the pipes, `states` what may become of one call. `producer` is the program's
side. The arbiter's side is `process` (a program with its pipes), `arbiter` (what is asked and answered) and `wrapped`
(the same as a runtime, so that a session of CodeSDK decides).
"""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.channel.arbiter import Arbiter as Arbiter, Judge as Judge
    from codesdk.channel.commands import Decided as Decided
    from codesdk.channel.diagnostics import Diagnostics as Diagnostics
    from codesdk.channel.framing import Candidate as Candidate, Framing as Framing
    from codesdk.channel.limits import ArbiterLimits as ArbiterLimits
    from codesdk.channel.outcome import Outcome as Outcome
    from codesdk.channel.process import Descriptor as Descriptor, ProcessRunner as ProcessRunner
    from codesdk.channel.producer import (
        Channel as Channel,
        ChannelClosed as ChannelClosed,
        ToolDenied as ToolDenied,
        open_channel as open_channel,
    )
    from codesdk.channel.protocol import (
        CAPABILITY as CAPABILITY,
        MARKER as MARKER,
        PolicyAbort as PolicyAbort,
        PolicyAck as PolicyAck,
        PolicyDecision as PolicyDecision,
        PolicyPing as PolicyPing,
        ToolProgress as ToolProgress,
        ToolRequest as ToolRequest,
        ToolResult as ToolResult,
        encode as encode,
        read_command as read_command,
        read_event as read_event,
    )
    from codesdk.channel.runner import Launch as Launch, Runner as Runner, RunnerSession as RunnerSession
    from codesdk.channel.scripted import ScriptedRunner as ScriptedRunner
    from codesdk.channel.wrapped import WrappedProgram as WrappedProgram

__getattr__, __dir__ = open_door(__name__, __file__)
