"""Which operation a path means."""

import pytest

from codesdk.contract.errors import CodeSDKError
from codesdk.daemon.app import OPERATIONS
from codesdk.daemon.problems import Refused
from codesdk.daemon.routing import Router, names_in

ROUTER = Router(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_each_path_of_the_table_leads_to_its_operation_with_the_names_unescaped(operation):
    names = names_in(operation.path)
    path, wanted = operation.path, {}
    for number, name in enumerate(names):
        path = path.replace("{" + name + "}", f"a%2Fb%20{number}")
        wanted[name] = f"a/b {number}"
    assert "{" not in path, "a placeholder is a whole part of a path"
    found, given = ROUTER.find(operation.method, path)
    assert (found.name, given) == (operation.name, wanted)


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/v1/sessions/", "NOT_FOUND", ""),
        ("/v1/sessions//events", "NOT_FOUND", ""),
        ("/v1/sessions/a/events/", "NOT_FOUND", ""),
        ("//v1/sessions", "NOT_FOUND", ""),
        ("/v1/sessions/%ff", "INVALID_REQUEST", "UTF-8"),
        ("/v1/sessions/" + "a" * 513, "INVALID_REQUEST", "512 characters"),
        ("/v1/sessions/a%00", "INVALID_REQUEST", "no null"),
    ],
)
def test_a_path_that_is_none_is_refused(path: str, code: str, words: str):
    with pytest.raises(CodeSDKError) as refused:
        ROUTER.find("GET", path)
    assert refused.value.code == code
    assert words in refused.value.message


def test_head_counts_as_get_and_another_method_is_told_which_there_are():
    assert ROUTER.find("HEAD", "/v1/sessions/ses_1")[0].method == "GET"
    with pytest.raises(Refused) as refused:
        ROUTER.find("PATCH", "/v1/sessions/ses_1")
    assert refused.value.status == 405
    assert b"GET" in dict(refused.value.headers)[b"allow"]
