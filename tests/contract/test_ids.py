"""Ids: sorted by time as text, told apart by prefix, and for artifacts a function of where and what."""

from typing import get_args

import pytest
from hypothesis import given, strategies as st

from codesdk.contract.canonical import content_hash
from codesdk.contract.ids import Prefix, artifact_id, is_id, is_task_id, ulid

TIMES = st.integers(0, 2**48 - 1)
RANDOM = st.integers(0, 2**80 - 1)
HASHES = st.binary(max_size=8).map(content_hash)
SESSIONS = st.builds(lambda time, random: f"ses_{ulid(time, random)}", TIMES, RANDOM)


@given(st.tuples(TIMES, RANDOM), st.tuples(TIMES, RANDOM))
def test_ids_sort_as_text_like_their_time_and_then_their_random_part(one, two):
    assert (ulid(*one) < ulid(*two)) == (one < two)


@given(TIMES, RANDOM, st.sampled_from(get_args(Prefix)))
def test_a_minted_id_is_recognized_under_its_own_prefix_only(time, random, prefix):
    made = f"{prefix}_{ulid(time, random)}"
    assert [kind for kind in get_args(Prefix) if is_id(kind, made)] == [prefix]


def test_a_ulid_is_26_characters_of_crockfords_alphabet_in_lower_case():
    assert ulid(0, 0) == "0" * 26
    assert ulid(2**48 - 1, 2**80 - 1) == "7" + "z" * 25


@pytest.mark.parametrize(
    "value",
    [
        "",
        "ses",
        "ses_",
        "ses_" + "0" * 25,
        "ses_" + "0" * 27,
        "ses_8" + "0" * 25,
        "ses_" + "0" * 25 + "u",
        "ses_" + "0" * 25 + "Z",
        "ses_" + "0" * 26 + "\n",
        "task_" + "0" * 26,
    ],
)
def test_what_only_looks_like_an_id_is_not_one(value):
    assert not is_id("ses", value)


@pytest.mark.parametrize(
    "value", ["task_1", "task_nightly-2026_01", "task_" + "x" * 64, "task_" + ulid(1, 1)]
)
def test_a_client_may_bring_its_own_task_id(value):
    assert is_task_id(value)


@pytest.mark.parametrize(
    "value",
    ["", "task_", "nightly", "task_" + "x" * 65, "task_a b", "task_a/b", "task_é", "task_a\n", "Task_a"],
)
def test_a_task_id_that_would_not_fit_into_an_address_is_refused(value):
    assert not is_task_id(value)


@given(SESSIONS, HASHES, st.text(max_size=8), st.none() | st.text(max_size=8))
def test_the_same_content_in_the_same_session_has_the_same_artifact_id(session, digest, kind, name):
    first = artifact_id(session, digest, kind, name)
    assert artifact_id(session, digest, kind, name) == first
    assert is_id("art", first)


def test_an_artifact_id_differs_by_session_content_type_and_name():
    session, other = f"ses_{ulid(1000, 1)}", f"ses_{ulid(1000, 2)}"
    digest = content_hash(b"x")
    made = [
        artifact_id(session, digest, "text/plain", "a"),
        artifact_id(other, digest, "text/plain", "a"),
        artifact_id(session, content_hash(b"y"), "text/plain", "a"),
        artifact_id(session, digest, "text/html", "a"),
        artifact_id(session, digest, "text/plain", "b"),
        artifact_id(session, digest, "text/plain", None),
    ]
    assert len(set(made)) == len(made)


def test_an_artifact_sorts_with_its_session_and_an_upload_before_all_sessions():
    early, late = f"ses_{ulid(1000, 1)}", f"ses_{ulid(2000, 1)}"
    digest = content_hash(b"x")
    upload, first, second = (
        artifact_id(scope, digest, "text/plain", None) for scope in ("local", early, late)
    )
    assert upload < first < second
    assert first[4:14] == early[4:14]


def test_the_artifact_id_of_a_known_content_never_changes():
    # Stored logs hold such ids; a replay must come to the same ones.
    made = artifact_id(f"ses_{ulid(1000, 1)}", content_hash(b"hello"), "text/plain", "greeting")
    assert made == "art_00000000z8pqk9h265v64bh2w9"
