"""The agents that ship: one row each, with the program that it was tested on. Data; `row` says what the fields mean.

How each came to be is in docs/runtimes/acp.md. A new agent is a module here and its place in the list.
"""

from codesdk.runtimes.acp.known.claude import CLAUDE
from codesdk.runtimes.acp.known.codex import CODEX
from codesdk.runtimes.acp.known.gemini import GEMINI
from codesdk.runtimes.acp.known.opencode import KILO, OPENCODE
from codesdk.runtimes.acp.known.qwen import QWEN
from codesdk.runtimes.acp.known.vibe import VIBE
from codesdk.runtimes.acp.row import Known

KNOWN: tuple[Known, ...] = (CLAUDE, CODEX, GEMINI, KILO, OPENCODE, QWEN, VIBE)
