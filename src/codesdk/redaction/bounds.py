"""How many known secrets there may be, from whoever names them: each makes every search for them longer."""

from collections.abc import Sequence

from codesdk.contract.errors import InvalidRequest

MAX_SECRETS = 256
MAX_SECRET_CHARS = 8 * 1024
MAX_CHARS = 64 * 1024


def check_secrets(secrets: Sequence[str]) -> None:
    """Raise `InvalidRequest` if these are too many or too long. The error quotes none of them."""
    if len(secrets) > MAX_SECRETS:
        raise InvalidRequest(f"There may be {MAX_SECRETS} secrets, not {len(secrets):,}.")
    longest, total = max(map(len, secrets), default=0), sum(map(len, secrets))
    if longest > MAX_SECRET_CHARS:
        raise InvalidRequest(f"A secret may have {MAX_SECRET_CHARS:,} characters, not {longest:,}.")
    if total > MAX_CHARS:
        raise InvalidRequest(f"All secrets together may have {MAX_CHARS:,} characters, not {total:,}.")
