"""Semantic versions: their order, and ranges in the common grammar."""

import pytest
from hypothesis import given, strategies as st

from codesdk.extensions import VersionRange, parse_version

ORDERED = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
ORDERED += ["1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0"]


def test_versions_are_ordered_as_the_specification_says():
    assert sorted({*ORDERED}, key=lambda text: parse_version(text).rank) == ORDERED
    assert parse_version("1.0.0+a").rank == parse_version("1.0.0+b").rank


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "01.2.3", "1.2.3-", "1.2.3-01", "v1.2.3", "1.2.3.4", "x", "9" * 300]
)
def test_what_is_no_version_is_refused(text: str):
    with pytest.raises(ValueError, match="not a version"):
        parse_version(text)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("1.2.3", ["1.2.3"], ["1.2.4", "1.2.3-rc.1"]),
        ("=1.2.3", ["1.2.3"], ["1.2.2"]),
        ("*", ["0.0.0", "9.9.9"], ["1.0.0-rc.1"]),
        ("", ["1.0.0"], []),
        ("1.x", ["1.0.0", "1.9.9"], ["2.0.0", "0.9.0"]),
        ("1", ["1.0.0", "1.9.9"], ["2.0.0"]),
        ("1.2.*", ["1.2.0"], ["1.3.0"]),
        (">=1.2.3", ["1.2.3", "2.0.0"], ["1.2.2", "2.0.0-rc.1"]),
        (">1.2", ["1.3.0"], ["1.2.9"]),
        ("<=1.2", ["1.2.9", "1.0.0"], ["1.3.0"]),
        ("<1.2", ["1.1.9"], ["1.2.0", "1.2.0-rc.1"]),
        (">=1.2 <2", ["1.9.0"], ["2.0.0", "1.1.0"]),
        (">= 1.2.0 < 2.0.0", ["1.9.0"], ["2.0.0"]),
        ("^1.2.3", ["1.2.3", "1.9.0"], ["2.0.0", "1.2.2", "2.0.0-rc.1"]),
        ("^0.2.3", ["0.2.9"], ["0.3.0"]),
        ("^0.0.3", ["0.0.3"], ["0.0.4"]),
        ("^0.0", ["0.0.9"], ["0.1.0"]),
        ("^0", ["0.9.0"], ["1.0.0"]),
        ("^1.2.3-beta.2", ["1.2.3-beta.4", "1.2.3", "1.3.0"], ["1.2.3-beta.1", "1.2.4-beta.2"]),
        ("~1.2.3", ["1.2.9"], ["1.3.0", "1.2.2"]),
        ("~1.2", ["1.2.0"], ["1.3.0"]),
        ("~1", ["1.9.0"], ["2.0.0"]),
        ("~>1.2.3", ["1.2.4"], ["1.3.0"]),
        ("1.2 - 1.4", ["1.2.0", "1.4.9"], ["1.5.0", "1.1.9"]),
        ("1.2.3 - 1.4.5", ["1.4.5"], ["1.4.6"]),
        ("^1 || ^3", ["1.5.0", "3.5.0"], ["2.0.0"]),
        ("<x", [], ["0.0.0", "1.0.0"]),
        (">=*", ["1.0.0"], []),
    ],
)
def test_a_range_holds_what_it_says(text: str, inside: list[str], outside: list[str]):
    span = VersionRange(text)
    assert [version for version in inside if parse_version(version) not in span] == []
    assert [version for version in outside if parse_version(version) in span] == []


@pytest.mark.parametrize(
    "text", ["one", "^^1", ">1.2.3.4", "1 - ", "1.2.3 -", "1,2", ">", "|", "^1 | ^2", "1" * 300]
)
def test_what_is_no_range_is_refused(text: str):
    with pytest.raises(ValueError, match=r"version|characters"):
        VersionRange(text)


@given(st.text(alphabet="0123456789.xX*^~<>=|- rc", max_size=30))
def test_any_text_is_a_range_or_refused(text: str):
    try:
        span = VersionRange(text)
    except ValueError:
        return
    assert (parse_version("1.0.0") in span) in (True, False)
