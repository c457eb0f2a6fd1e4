"""Every sentence of document 002 that asks for something, by an id, and the mark of the tests that show it."""

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

REQUIREMENTS = {
    "1.1-events": "The program prints tool requests and results on stdout or stderr, one JSON object a line, with a prefix.",
    "1.1-waits": "It waits for approval before it runs a tool.",
    "1.1-control": "It takes control commands from stdin, one JSON object a line, and goes on, cancels or times out.",
    "1.2-passthrough": "The arbiter does not hold up the output that a user sees.",
    "1.2-parallel": "It parses events, judges, asks and writes commands at the same time.",
    "1.2-unattended": "Without a person it decides by itself: a default, or deny.",
    "2.1-stdout": "Stdout is ordinary text and events.",
    "2.1-stderr": "Stderr is text of errors and, if the program likes, events.",
    "2.1-stdin": "Stdin of the program is control commands, written by the arbiter.",
    "2.2-executor": "A tool runs only after an allow; after a deny or a cancel it is skipped or fails.",
    "3.1-envelope": "A command is a line with v, type, ts and id.",
    "3.1-run-id": "run_id is optional and recommended, so that a run can be traced across processes.",
    "3.1-trace": "trace is an optional object.",
    "3.1-nonce": "nonce is optional, to recognize a command that is sent again.",
    "3.1-commands": "There are policy.decision, policy.ping and policy.abort.",
    "3.2-decision": "policy.decision says allow or deny, with a short reason that can be shown.",
    "3.2-ask": "ask should not reach the program, which takes it for a deny.",
    "3.2-rule": "rule_id may name the rule that decided.",
    "3.2-constraints": "constraints may narrow an allow to paths or domains.",
    "3.2-expiry": "After expires_in_ms a decision no longer holds, and the program asks again.",
    "3.2-matching": "The id of a decision is that of its request, one to one.",
    "3.2-unknown": "The program ignores a decision on an unknown id, and says so in a tool.progress.",
    "3.3-hello": "policy.ping tells the program at the start that somebody decides.",
    "3.3-capabilities": "It names its capabilities, such as policy.decision.v1.",
    "3.3-timeout": "timeout_ms is how long the program waits for a decision.",
    "3.3-detection": "By it a program finds out whether somebody outside decides.",
    "3.4-abort": "policy.abort ends the session, with a reason and a stable code.",
    "3.4-obeyed": "The program then stops waiting and running, and reports a result that is not ok, or ends.",
    "4.1-requires": "A request says in requires_policy whether it waits for a decision.",
    "4.2-same-id": "The program waits for the decision with the id of its request.",
    "4.2-timeout": 'After its timeout it counts as denied: a result with ok false and the error "policy timeout".',
    "5.1-one-writer": "One task alone writes to stdin, so that lines do not mix.",
    "5.1-two-readers": "Stdout and stderr are read at the same time.",
    "5.1-table": "Requests that wait are kept by id with their times, until they are decided.",
    "5.1-deadline": "A decision, a person included, has a deadline.",
    "5.1-broken": "If stdin cannot be written, the program is out of control, and is aborted.",
    "5.2-session": "A session has the exit code, a queue of commands and a stream of parsed events.",
    "5.2-start": "start_session starts it.",
    "5.2-scripted": "A scripted runner does the same for tests.",
    "5.3-ordinary": "A line that is no event goes to our stdout as it is.",
    "5.3-parsed": "An event is parsed and handed to the arbiter.",
    "5.3-unparsed": "A line that cannot be parsed is counted and reported, and the output is not affected.",
    "5.3-stderr": "Stderr goes to our stderr as it is, without its events.",
    "5.3-writer": "A command is written as JSON and a newline; a write that fails is fatal.",
    "5.3-judged": "Allow and deny are answered at once; ask is put to a person, and then answered.",
    "5.3-audited": "What was asked and decided is recorded.",
    "5.3-exit": "The exit code of the program is waited for, and the session is closed.",
    "6.1-pending": "A new request is pending.",
    "6.1-allowed": "Allowed, it runs and is completed by its result.",
    "6.1-denied": "Denied, it is completed by a result that is not ok, or by the program's failure.",
    "6.1-timeout": "Without an answer in time it is denied by timeout.",
    "6.1-transport": "If stdin cannot be written it has failed by transport, which aborts everything.",
    "6.1-unmatched": "A decision that matches no pending id is dropped.",
    "6.1-repeated": "A request with an id that was used is ignored and counted.",
    "6.1-idempotent": "A second decision on an id is ignored.",
    "7-stderr": "The prompt is on stderr, so that stdout stays clean.",
    "7-prompt": "It shows the tool, the action, the arguments without secrets, and the rationale.",
    "7-default": "The default answer is no.",
    "7-terminal": "Answers come from the user's terminal, never through the program's stdin.",
    "7-unattended": "Where nobody can be asked, the default action counts.",
    "8.1-audit": "A program that does not wait is still recorded, but cannot be stopped.",
    "8.1-warning": "The policy is then a warning, and a call of high risk may end the program.",
    "8.2-missing": "An event that lacks a field is an error of its own kind, counted, and things go on.",
    "8.2-threshold": "More errors than a threshold abort.",
    "9-loop": "Request, decision, execution or failure, result: the loop is closed.",
}


def shows(*ids: str) -> Callable[[F], F]:
    """Mark a test: it shows these requirements."""
    unknown = [name for name in ids if name not in REQUIREMENTS]
    assert not unknown, f"nobody asks for {unknown}"
    return lambda test: test
