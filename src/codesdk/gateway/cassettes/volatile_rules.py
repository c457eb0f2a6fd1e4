"""What changes from run to run inside a text, as expressions with examples, for `volatile`.

Order matters, and the wordy rules come first: a later rule does not see what an earlier one replaced. A
rule matches too little rather than too much, because two requests that differ in meaning must not look
equal. A request may hold anybody's text, so no rule may begin again at every place of a long run: a repeat that can
begin inside of itself has a bound.
"""

import re

import msgspec

from codesdk.contract.ownership import MARK_START, MARKED


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of volatile text, what it becomes, and an example before and after."""

    name: str
    pattern: re.Pattern[str]
    becomes: str
    before: str
    after: str
    signs: tuple[str, ...] = ()
    """The rule is skipped for a text that contains none of these."""


_DAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sep(?:t|tember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ULID = "[0-7][0-9a-hjkmnp-tv-z]{25}"
_SEGMENT = r"[^\s/\\\"'`<>:,;()\[\]{}|*?]+"
_TEMP = rf"(?:/private)?(?:/var)?/tmp|/(?:private/)?var/folders/{_SEGMENT}/{_SEGMENT}/T"


def _rule(
    name: str, pattern: str, becomes: str, before: str, after: str, signs: tuple[str, ...] = ()
) -> Rule:
    expression = re.compile(pattern, re.VERBOSE)
    return Rule(name=name, pattern=expression, becomes=becomes, before=before, after=after, signs=signs)


WORDY_RULES: tuple[Rule, ...] = (
    _rule(
        "mark",
        MARKED.pattern,
        "<denied>",
        "[codesdk:denied:call_01jqe8p1v0000000000000000a]",
        "<denied>",
        (MARK_START,),
    ),
    _rule(
        "billing",
        r"x-anthropic-billing-header:[^\n]*",
        "x-anthropic-billing-header: <billing>",
        "x-anthropic-billing-header: cc_version=2.1.325.a1b; cch=9f3c1;",
        "x-anthropic-billing-header: <billing>",
        ("x-anthropic-billing-header",),
    ),
    _rule(
        "system",
        r"(?<=OS\ Version:\ )[^\n<]+|(?<=<timezone>)[^\n<]+",
        "<system>",
        "OS Version: Linux 6.1.0-13-amd64",
        "OS Version: <system>",
        ("OS Version: ", "<timezone>"),
    ),
    _rule(
        "temp path",
        rf"(?<![\w.-])(?:{_TEMP})/(?:pytest-of-{_SEGMENT}/pytest-{_SEGMENT}/)?{_SEGMENT}",
        "<temp>",
        "/tmp/codesdk-x1y2z3/notes.md, /tmp/pytest-of-me/pytest-7/test_it0/ws",
        "<temp>/notes.md, <temp>/ws",
        ("/tmp/", "/var/folders/"),
    ),
    _rule(
        "home path",
        rf"(?<![\w.-])(?:/home/{_SEGMENT}|/Users/{_SEGMENT}|/root(?![\w.-])|[A-Za-z]:\\\\?Users\\\\?{_SEGMENT})",
        "<home>",
        "/home/ada/.config, /Users/ada/x",
        "<home>/.config, <home>/x",
        ("/home/", "/Users/", "/root", ":\\\\"),
    ),
)
"""Rules for texts that may contain no digit."""

DIGIT_RULES: tuple[Rule, ...] = (
    _rule(
        "uuid",
        r"(?<![0-9A-Za-z])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9A-Za-z])",
        "<uuid>",
        "thread 0199a213-81c0-7800-8aa1-bbab2a035a53",
        "thread <uuid>",
        ("-",),
    ),
    _rule(
        "own id",
        rf"\b(ses|task|call|art|req|apr)_{_ULID}\b",
        r"<\1 id>",
        "ses_01k6h3zq8v9f2m4n6p8r0s2t4v",
        "<ses id>",
        ("_0",),
    ),
    _rule(
        "call id",
        r"\b(?:toolu|srvtoolu|tooluse|call|exec)[_-](?=[A-Za-z_-]{0,64}+[0-9])[A-Za-z0-9_-]{6,}",
        "<call id>",
        "result of toolu_01A09q90qw90lq917835",
        "result of <call id>",
        ("toolu", "call_", "call-", "exec_", "exec-"),
    ),
    _rule(
        "request id",
        r"\b(?:(?:req|msg|resp|rs|fc|ses|prt|per)_|(?:gen|chatcmpl)-)(?=[A-Za-z]*[0-9])[A-Za-z0-9]{10,}\b",
        "<request id>",
        "see req_011CSHoEeqs5C35K2UUqR7Fy",
        "see <request id>",
        ("req_", "msg_", "resp_", "rs_", "fc_", "ses_", "prt_", "per_", "gen-", "chatcmpl-"),
    ),
    _rule(
        "time",
        rf"""
        \b[0-9]{{4}}-[01][0-9]-[0-3][0-9](?:T|\ +)[0-2][0-9]:?[0-5][0-9](?::?[0-5][0-9](?:[.,][0-9]+)?)?
          (?:\ ?(?:Z|UTC|GMT|[+-][0-2][0-9]:?[0-5][0-9]))?(?![0-9A-Za-z])
      | \b{_MONTH}\ +[0-3]?[0-9]\ +[0-2][0-9]:[0-5][0-9](?::[0-5][0-9])?(?:\ +[0-9]{{4}})?\b
        """,
        "<time>",
        "written 2025-10-02T09:30:15.120Z, Oct  2 09:30",
        "written <time>, <time>",
        (":",),
    ),
    _rule(
        "written date",
        rf"""
        \b(?:{_DAY},?\ )?{_MONTH}\ [0-3]?[0-9](?:st|nd|rd|th)?,?\ [0-9]{{4}}\b
      | \b(?:{_DAY},?\ )?[0-3]?[0-9]\ {_MONTH},?\ [0-9]{{4}}\b
        """,
        "<date>",
        "Today is Thursday, October 2, 2025 (Thu Oct 02 2025, 2 October 2025)",
        "Today is <date> (<date>, <date>)",
        _MONTHS,
    ),
    _rule(
        "date",
        r"""
        (?<![\w/.-])[0-9]{4}-[01][0-9]-[0-3][0-9](?![\w-])
      | (?<![\w/.-])[0-3]?[0-9]/[0-3]?[0-9]/[12][0-9]{3}(?![\w/-])
      | (?<![\w/.-])[12][0-9]{3}/[01][0-9]/[0-3][0-9](?![\w/-])
        """,
        "<date>",
        "Current date: 2025-10-02, here 10/2/2025 or 2025/10/02",
        "Current date: <date>, here <date> or <date>",
    ),
    _rule(
        "clock",
        r"(?<![\w:.])(?:[0-2]?[0-9]:[0-5][0-9]:[0-5][0-9](?:[.,][0-9]+)?(?:\ ?[AP]M)?|[01]?[0-9]:[0-5][0-9]\ ?[AP]M)(?![\w:])",
        "<clock>",
        "at 09:30:15 or 9:30 AM",
        "at <clock> or <clock>",
        (":",),
    ),
    _rule(
        "epoch",
        r"(?<![\w.])1[6-9][0-9]{8}(?:[0-9]{3})?(?![\w])",
        "<epoch>",
        "started 1759397415120",
        "started <epoch>",
    ),
    _rule(
        "port",
        r"(127\.0\.0\.1|localhost|0\.0\.0\.0|\[::1?\]):[0-9]{2,5}\b",
        r"\1:<port>",
        "http://127.0.0.1:45123/mcp",
        "http://127.0.0.1:<port>/mcp",
        (":",),
    ),
    _rule(
        "token count",
        r"""
        \b[0-9][0-9,]{0,30}+(?=\ tokens?\ (?:left|remaining|used)\b)
      | (?<=Token\ usage:\ )[0-9][0-9,]*/[0-9][0-9,]*;\ [0-9][0-9,]*(?=\ remaining)
      | (?<=total_tokens>)[0-9][0-9,]*
      | (?<=total_tokens:\ )[0-9][0-9,]*
        """,
        "<count>",
        "<total_tokens>182736 tokens left</total_tokens>",
        "<total_tokens><count> tokens left</total_tokens>",
        (" tokens ", "1 token ", "Token usage: ", "total_tokens"),
    ),
    _rule(
        "duration",
        r"""
        (?<=[Ww]all\ time:\ )[0-9.]+(?=\ seconds)
      | (?<![\w.])[0-9]+\.[0-9]+(?=\ ?(?:s|ms|secs?|seconds|milliseconds)\b)
        """,
        "<duration>",
        "Wall time: 0.0312 seconds; 3 passed in 0.21s",
        "Wall time: <duration> seconds; 3 passed in <duration>s",
    ),
    _rule(
        "process",
        r"\b(PID|pid|process\ id)([ :=]+)[0-9]+\b",
        r"\1\2<pid>",
        "server started, pid 48213",
        "server started, pid <pid>",
        ("pid", "PID", "process id"),
    ),
    _rule(
        "address",
        r"\b0x[0-9a-fA-F]{8,16}\b",
        "<address>",
        "<object at 0x7f3a9c1b2d40>",
        "<object at <address>>",
        ("0x",),
    ),
    _rule(
        "hex id",
        r"(?<![\w])(?:[0-9a-f]{40}|[0-9a-f]{32})(?![\w])",
        "<hex id>",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "commit <hex id>",
    ),
)
"""Rules for texts that always contain a digit and stay on one line."""

RULES = (*WORDY_RULES, *DIGIT_RULES)
