"""A policy file: what it says is loaded, what is wrong with it is named with file, rule and field."""

from pathlib import Path

import pytest

from codesdk import InvalidRequest, load_policy
from codesdk.policy.load import parse_policy

GOOD = """
[[rules]]
id = "no-env"
result = "deny"
path = ["**/.env", "**/.env.*"]
reason = "It holds secrets."
match = [
    { tool = "workspace.read", path = ".env" },
    { tool = "patch.apply", path = ["a.txt", "deep/.env.local"] },
]
not_match = [{ tool = "workspace.read", path = "src/env.py" }]

[[rules]]
id = "push"
result = "ask"
tool = "workspace.exec"
argv = ["git", "push"]
match = [{ tool = "workspace.exec", argv = ["git", "push", "--force"] }]

[[rules]]
id = "our-hosts"
result = "allow"
class = "network"
host = "*.example.com"
match = [{ tool = "http.fetch", host = "api.example.com" }]
not_match = [
    { tool = "http.fetch", host = ["api.example.com", "other.org"] },
    { tool = "http.fetch", host = "api.example.com", class = "write" },
]
"""


def test_a_file_becomes_rules_in_their_order(tmp_path: Path):
    (tmp_path / "policy.toml").write_text(GOOD)
    policy = load_policy(tmp_path / "policy.toml")
    assert [(rule.id, rule.result, rule.reason) for rule in policy.rules] == [
        ("no-env", "deny", "It holds secrets."),
        ("push", "ask", None),
        ("our-hosts", "allow", None),
    ]


def test_an_empty_file_has_no_rules():
    assert parse_policy("", "p.toml").rules == ()


RULE = '[[rules]]\nid = "r"\nresult = "deny"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rules]", "p.toml: not TOML: "),
        ("rule = 1", "p.toml: there is no 'rule' here; rules are written as [[rules]]."),
        ("rules = 1", "p.toml: rules are written as [[rules]], one table each."),
        ("rules = [1]", "p.toml: rule number 1: Expected `object`, got `int`."),
        ('[[rules]]\nid = "x"', "p.toml: rule x: Object missing required field `result`."),
        ('[[rules]]\nresult = "deny"', "p.toml: rule number 1: Object missing required field `id`."),
        (
            '[[rules]]\nid = "x"\nresult = "maybe"',
            "p.toml: rule x, field result: Invalid enum value 'maybe'.",
        ),
        (RULE + "tool = 3", "p.toml: rule r, field tool: Expected `str | array | null`, got `int`."),
        (RULE + 'path = ["a", 1]', "p.toml: rule r, field path[1]: Expected `str`, got `int`."),
        (RULE + 'class = "big"', "p.toml: rule r, field class: Invalid enum value 'big'."),
        (RULE + 'paths = "a"', "p.toml: rule r: Object contains unknown field `paths`."),
        (
            RULE + 'match = [{path = "a"}]',
            "p.toml: rule r, field match[0]: Object missing required field `tool`.",
        ),
        (
            RULE.replace('"r"', '"A rule"'),
            "p.toml: rule A rule, field id: an id is 1 to 100 of a-z, 0-9, '_', '.' and '-'.",
        ),
        (RULE + RULE, "p.toml: rule r, field id: another rule before it has the same id."),
        (
            RULE + 'host = "https://a.org"',
            "p.toml: rule r, field host: 'https://a.org' is not a host: "
            "write example.com or *.example.com, without port or path.",
        ),
        (
            RULE + 'path = "/./a"',
            "p.toml: rule r, field path: '/./a' is not a path pattern: "
            "write it like src/**/*.py, without . and .., relative to the workspace.",
        ),
        (
            RULE + 'path = "a/*"\nmatch = [{tool = "t.t", path = "a/b"}, {tool = "t.t", path = "a/b/c"}]',
            "p.toml: rule r, field match[1]: must match, but its path does not.",
        ),
        (
            RULE + 'argv = ["rm"]\nnot_match = [{tool = "t.t", argv = ["rm", "-r"]}]',
            "p.toml: rule r, field not_match[0]: must not match, but does.",
        ),
        (
            '[[rules]]\nid = "all"\nresult = "allow"\n' + RULE + 'match = [{tool = "t.t"}]',
            "p.toml: rule r, field match[0]: never comes to this rule: all is before it and matches, too.",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, words: str):
    with pytest.raises(InvalidRequest) as refused:
        parse_policy(text, "p.toml")
    assert refused.value.message.startswith(words), refused.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(InvalidRequest, match=r"none\.toml: the policy cannot be read \(No such file"):
        load_policy(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(InvalidRequest, match=r"latin\.toml: the policy is not UTF-8 text\."):
        load_policy(tmp_path / "latin.toml")
    (tmp_path / "long.toml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(InvalidRequest, match=r"long\.toml: a policy may have at most 1,000,000 bytes\."):
        load_policy(tmp_path / "long.toml")
