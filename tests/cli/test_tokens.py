"""`codesdk tokens`: made, listed, revoked; the token itself is seen once."""

import pytest
from tests.cli.shell import Shell
from tests.daemon.rig import daemon

from codesdk.local.tokens import TokenFile


def test_a_token_is_shown_once_and_lets_its_owner_in(shell: Shell):
    added = shell.codesdk("tokens", "add", "ann", "--scope", "read", "--scope", "run", "--label", "CI")
    secret = added.out.strip()
    assert (added.code, secret.startswith("csdk_"), secret in added.err) == (0, True, False)
    (token,) = TokenFile(shell.data).all()
    assert token.token_id in added.err
    listed = shell.codesdk("tokens")
    assert listed.out == f"{token.token_id}  ann  read run  CI\n"
    (row,) = shell.codesdk("tokens", "--json").lines
    assert (row["token_id"], row["principal"], row["scopes"]) == (token.token_id, "ann", ["read", "run"])
    assert "hash" not in row
    assert secret not in (shell.data / "tokens.json").read_text()
    with daemon(shell.data) as running:
        assert shell.codesdk("sessions", CODESDK_URL=running.url, CODESDK_TOKEN=secret).code == 0
        assert (
            shell.codesdk("tokens", "revoke", token.token_id).out == f"{token.token_id} of ann is revoked.\n"
        )
        refused = shell.codesdk("sessions", "--json", CODESDK_URL=running.url, CODESDK_TOKEN=secret)
        assert (refused.code, refused.error["code"]) == (2, "AUTH_REQUIRED")
    assert shell.codesdk("tokens").out == "No tokens. codesdk tokens add PRINCIPAL --scope read makes one.\n"


def test_a_token_may_end_by_itself(shell: Shell):
    added = shell.codesdk("tokens", "add", "ann", "--scope", "admin", "--expires", "30d", "--json")
    (made,) = added.lines
    (token,) = TokenFile(shell.data).all()
    assert (made["token_id"], made["expires_at"]) == (token.token_id, token.expires_at)
    assert ", until 2" in shell.codesdk("tokens").out


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["add", "ann"], 2),
        (["add", "ann", "--scope", "everything"], 2),
        (["add", "../ann", "--scope", "read"], 2),
        (["add", "ann", "--scope", "read", "--expires", "soon"], 2),
        (["revoke", "tok_nothere"], 3),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(shell: Shell, args: list[str], code: int):
    assert shell.codesdk("tokens", *args).code == code
    assert TokenFile(shell.data).all() == []
