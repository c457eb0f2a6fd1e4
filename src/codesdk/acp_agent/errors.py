"""Errors of CodeSDK → JSON-RPC errors as ACP has them. The message is the sentence that people read."""

from acp.exceptions import RequestError

from codesdk.contract.errors import CodeSDKError, ErrorInfo, InvalidRequest, NotFound

INVALID_PARAMS = -32602
INTERNAL = -32603
AUTH_REQUIRED = -32000
NOT_FOUND = -32002


def error_of(error: CodeSDKError) -> RequestError:
    """Return the error that an editor is answered with."""
    return error_from(error.info())


def error_from(info: ErrorInfo) -> RequestError:
    """Return the same for the error that a task ended with."""
    data = {"code": info.code, "retryable": info.retryable}
    return RequestError(_code(info), info.message, data)


def _code(info: ErrorInfo) -> int:
    match info.code:
        case NotFound.code:
            return NOT_FOUND
        case InvalidRequest.code | "CONTEXT_TOO_LARGE":
            return INVALID_PARAMS
        case "AUTH_REQUIRED" | "AUTH_FAILED":
            return AUTH_REQUIRED
        case _:
            return INTERNAL
