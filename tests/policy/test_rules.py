"""Rules against calls: what matches, what does not, and which rule speaks."""

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.tools.json_schema.hang_guard import hang_guard

from codesdk.contract.ports import Policy, PolicyQuestion
from codesdk.contract.tools import Evaluation, Subjects
from codesdk.policy import RulePolicy
from codesdk.policy.modes import judge_mode
from codesdk.policy.patterns import PathPattern, tidy_path
from codesdk.policy.rules import BadRule, Looked, Rule


def question(name: Any = "workspace.write", kind: Any = "write", mode: Any = "ask", **touched: Any):
    return PolicyQuestion(
        session_id="ses_1",
        name=name,
        tool_class=kind,
        input={},
        permission_mode=mode,
        subjects=Subjects(**touched),
    )


def rule(result: Any = "deny", **fields: Any) -> Rule:
    return Rule(id="r", result=result, **fields)


def matches(made: Rule, asked: PolicyQuestion) -> bool:
    return RulePolicy([made]).evaluate(asked).rule == "r"


def test_the_first_rule_that_matches_speaks_and_else_the_mode():
    policy: Policy = RulePolicy(
        [
            Rule(id="one", result="allow", path="docs/**", reason="words"),
            Rule(id="two", result="deny", tool="workspace.*"),
            Rule(id="three", result="allow"),
        ]
    )
    assert [
        policy.evaluate(asked)
        for asked in (
            question(paths=["docs/a.md"]),
            question(paths=["src/a.py"]),
            question("http.fetch", "network"),
        )
    ] == [
        Evaluation(source="codesdk", result="allow", rule="one", reason="words"),
        Evaluation(
            source="codesdk",
            result="deny",
            rule="two",
            reason="The rule two forbids it. Do the work without it.",
        ),
        Evaluation(source="codesdk", result="allow", rule="three", reason="The rule three allows it."),
    ]
    assert RulePolicy([]).evaluate(question(mode="auto")) == judge_mode("auto", "write")


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ("workspace.write", "workspace.write", True),
        ("workspace.write", "workspace.writer", False),
        ("workspace.*", "workspace.write", True),
        ("workspace.*", "workspace", False),
        ("*.write", "workspace.write", True),
        ("*", "http.fetch", True),
        (["http.*", "workspace.write"], "workspace.write", True),
        (["http.*", "workspace.write"], "workspace.read", False),
        ("workspace?write", "workspace.write", False),
    ],
)
def test_tools_match_by_name_and_star(given: Any, name: str, expected: bool):
    assert matches(rule(tool=given), question(name)) is expected


def test_classes_match_by_name():
    assert matches(rule(tool_class="write"), question())
    assert matches(rule(tool_class=["network", "write"]), question())
    assert not matches(rule(tool_class="network"), question())


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a.txt", "a.txt", True),
        ("a.txt", "b/a.txt", False),
        ("*.txt", "a.txt", True),
        ("*.txt", "b/a.txt", False),
        ("**/*.txt", "a.txt", True),
        ("**/*.txt", "b/c/a.txt", True),
        ("src/**", "src/a/b.py", True),
        ("src/**", "src", True),
        ("src/**", "srcs/a", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/a/b/c.py", True),
        ("src/**/*.py", "src/a.pyc", False),
        ("**", "any/thing", True),
        ("**", ".", True),
        ("?.txt", "a.txt", True),
        ("?.txt", "/.txt", False),
        ("a?b", "a/b", False),
        ("[ab].txt", "a.txt", True),
        ("[ab].txt", "c.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("[a-c]x", "bx", True),
        ("a[!x]b", "a/b", False),
        ("a[/]b", "a/b", False),
        ("a.b", "axb", False),
        ("a[", "a[", True),
        ("(x)+", "(x)+", True),
        ("*", "a\nb", True),
        (["x", "y/**"], "y/z", True),
        ("../**", "../secret", True),
        ("/etc/**", "/etc/passwd", True),
    ],
)
def test_paths_match_as_a_whole(pattern: Any, path: str, expected: bool):
    assert PathPattern([pattern] if isinstance(pattern, str) else pattern)(path) is expected


@pytest.mark.parametrize("written", ["secret/key", "./secret/key", "a/../secret//key", "secret/./key/"])
def test_no_way_of_writing_a_path_slips_past_a_rule(written: str):
    assert matches(rule(path="secret/**"), question(paths=[written]))
    assert not matches(rule("allow", path="a/**"), question(paths=[written]))


globs = st.lists(
    st.sampled_from(["**", "*", "a", "*a*", "a?", "[ab]*", "[!a]b", "*a*b*"]), min_size=1, max_size=5
)
some_names = st.lists(st.text(st.sampled_from("ab"), min_size=1, max_size=4), min_size=1, max_size=6)


@given(globs, some_names)
def test_the_way_for_long_paths_finds_what_the_quick_one_does(glob: list[str], path: list[str]):
    pattern = PathPattern(["/".join(glob)])
    slowly = [one.fits(path) for one in pattern._globs]
    assert [PathPattern(["/".join(glob)])("/".join(path))] == slowly
    assert [fits_plainly(glob, path)] == slowly


def fits_plainly(glob: list[str], path: list[str]) -> bool:
    """The same by trying everything, name by name."""
    if not glob:
        return not path
    if glob[0] == "**":
        return any(fits_plainly(glob[1:], path[at:]) for at in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], glob[0]) and fits_plainly(glob[1:], path[1:])


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("**/a/**/a/**/a/**/b", "a/" * 2000 + "c"),
        ("**/a/**/a/**/b", "a/" * 31 + "c"),
        ("*a*a*a*a*a*a*b", "a" * 4000),
        ("*a*a*a*a*a*a*b", "a" * 900),
        ("**/*a*a*a*a*b/**", "/".join(["a" * 30] * 30)),
    ],
)
def test_no_path_that_a_model_writes_holds_a_decision_up(pattern: str, path: str):
    assert not matches(rule(path=pattern), question(paths=[path]))


names = st.text(st.sampled_from("ab.*"), min_size=1, max_size=3)


@given(st.lists(names, min_size=1, max_size=4))
def test_a_tidy_path_stays_as_it_is(parts: list[str]):
    path = tidy_path("/".join(parts))
    assert tidy_path(path) == path


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [
        ("example.com", "example.com", True),
        ("example.com", "EXAMPLE.com.", True),
        ("Example.COM", "example.com", True),
        ("example.com", "www.example.com", False),
        ("example.com", "notexample.com", False),
        ("*.example.com", "www.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "badexample.com", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        (["a.org", "*.b.org"], "x.b.org", True),
    ],
)
def test_hosts_match_exactly_or_beneath(pattern: Any, host: str, expected: bool):
    assert matches(rule(host=pattern), question(hosts=[host])) is expected


@pytest.mark.parametrize(
    ("prefix", "argv", "expected"),
    [
        (["git", "push"], ["git", "push", "--force"], True),
        (["git", "push"], ["git", "push"], True),
        (["git", "push"], ["git", "pull"], False),
        (["git", "push"], ["git"], False),
        (["git"], ["gitk"], False),
        (["git"], [], False),
    ],
)
def test_command_lines_match_by_their_beginning(prefix: list[str], argv: list[str], expected: bool):
    assert matches(rule(argv=prefix), question("workspace.exec", "dangerous", argv=argv)) is expected


@pytest.mark.parametrize("field", ["path", "host"])
def test_an_allowing_rule_must_fit_all_that_a_call_touches_any_other_a_part_of_it(field: str):
    inside, outside = ("docs/a", "src/b") if field == "path" else ("a.org", "b.org")
    pattern = "docs/*" if field == "path" else "a.org"
    for result, both in (("allow", False), ("ask", True), ("deny", True)):
        made = rule(result, **{field: pattern})
        assert matches(made, question(**{f"{field}s": [inside]}))
        assert matches(made, question(**{f"{field}s": [inside, inside]}))
        assert matches(made, question(**{f"{field}s": [inside, outside]})) is both
        assert not matches(made, question(**{f"{field}s": [outside]}))
        assert not matches(made, question())


def test_all_fields_of_a_rule_must_match():
    made = rule(tool="workspace.*", tool_class="write", path="a/**", host="a.org", argv=["x"])
    touched = {"paths": ["a/b"], "hosts": ["a.org"], "argv": ["x", "y"]}
    assert matches(made, question(**touched))
    for missing in touched:
        assert not matches(made, question(**{name: touched[name] for name in touched if name != missing}))


def test_looking_tells_which_field_kept_each_rule_from_matching():
    policy = RulePolicy(
        [
            Rule(id="a", result="deny", tool="http.*"),
            Rule(id="b", result="deny", tool_class="network"),
            Rule(id="c", result="deny", path="src/**"),
            Rule(id="d", result="deny", host="a.org"),
            Rule(id="e", result="deny", argv=["x"]),
            Rule(id="f", result="ask", path="docs/**"),
            Rule(id="g", result="allow"),
        ]
    )
    assert policy.look(question(paths=["docs/x"])) == [
        Looked(rule="a", result="deny", missed="tool"),
        Looked(rule="b", result="deny", missed="class"),
        Looked(rule="c", result="deny", missed="path"),
        Looked(rule="d", result="deny", missed="host"),
        Looked(rule="e", result="deny", missed="argv"),
        Looked(rule="f", result="ask", missed=None),
    ]


subjects = st.fixed_dictionaries(
    {
        "paths": st.lists(st.sampled_from(["docs/a", "src/b", "src", ".env", "./docs/../.env"]), max_size=3),
        "hosts": st.lists(st.sampled_from(["a.org", "x.a.org", "B.org"]), max_size=2),
        "argv": st.lists(st.sampled_from(["git", "push", "ls"]), max_size=2),
    }
)
some_rules = st.lists(
    st.fixed_dictionaries(
        {"result": st.sampled_from(["allow", "ask", "deny"])},
        optional={
            "tool": st.sampled_from(["workspace.*", "http.fetch", "*"]),
            "tool_class": st.sampled_from(["write", "network"]),
            "path": st.sampled_from(["docs/**", "**/.env", ["src/**", "*"]]),
            "host": st.sampled_from(["a.org", "*.a.org"]),
            "argv": st.sampled_from([["git"], ["git", "push"]]),
        },
    ),
    max_size=6,
)


@given(some_rules, subjects, st.sampled_from([("workspace.write", "write"), ("http.fetch", "network")]))
def test_what_is_decided_quickly_is_what_looking_finds(made: Any, touched: Any, tool: Any):
    policy = RulePolicy([Rule(id=f"r{number}", **fields) for number, fields in enumerate(made)])
    asked = question(*tool, **touched)
    looked = policy.look(asked)
    found = looked[-1].rule if looked and looked[-1].missed is None else "mode:ask"
    assert policy.evaluate(asked).rule == found == policy.evaluate(asked).rule


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"path": "./a"}, "path"),
        ({"path": "a//b"}, "path"),
        ({"path": ""}, "path"),
        ({"path": []}, "path"),
        ({"path": "a**"}, "path"),
        ({"path": "[z-a]"}, "path"),
        ({"host": "https://a.org"}, "host"),
        ({"host": "a.*.org"}, "host"),
        ({"host": "*"}, "host"),
        ({"host": "a.org:80"}, "host"),
        ({"argv": []}, "argv"),
        ({"tool": [""]}, "tool"),
    ],
)
def test_a_rule_that_cannot_mean_anything_is_refused(fields: Any, field: str):
    with pytest.raises(BadRule) as refused:
        RulePolicy([rule(**fields)])
    assert (refused.value.rule, refused.value.field) == ("r", field)


def test_a_name_made_to_be_slow_is_compared_with_a_pattern_of_many_stars_at_once():
    slow = rule(tool="*a" * 30 + "*b")
    with hang_guard():
        assert not matches(slow, question("a" * 5_000))
    assert matches(slow, question("a" * 5_000 + "b"))
    assert not matches(rule(tool="a*bc*c"), question("abc"))
    assert matches(rule(tool="a*bc*c"), question("axbcbcc"))
