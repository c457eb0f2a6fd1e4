"""Requests whose types in the library are not enough: it leaves out what it cannot read, and says nothing.

An editor that passes on a server must not end up without its tools and without a word.
"""

from typing import Any, cast

from acp.schema import (
    AcpMcpServer,
    ClientCapabilities,
    FileSystemCapabilities,
    ForkSessionRequest,
    HttpMcpServer,
    InitializeRequest,
    LoadSessionRequest,
    McpServerStdio,
    NewSessionRequest,
    ResumeSessionRequest,
    SseMcpServer,
)
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator, model_validator

_SERVER: TypeAdapter[Any] = TypeAdapter(HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio)


class Initialize(InitializeRequest):
    """`initialize`. Capabilities that cannot be read are none; the library has plain dicts in their place."""

    @field_validator("client_capabilities", mode="after")
    @classmethod
    def _read(cls, capabilities: Any) -> ClientCapabilities:
        if not isinstance(capabilities, ClientCapabilities):
            return ClientCapabilities()
        if not isinstance(capabilities.fs, FileSystemCapabilities):
            capabilities.fs = FileSystemCapabilities()
        return capabilities


class _Opening(BaseModel):
    """What all of them have: servers, and directories besides the first, which we do not take."""

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = cast("dict[str, Any]", data)
        if given.get("additionalDirectories"):
            raise ValueError("A session works in one directory. Additional directories are not supported")
        servers: Any = given.get("mcpServers") or []
        for place, server in enumerate(cast("list[Any]", servers) if isinstance(servers, list) else [None]):
            try:
                _SERVER.validate_python(server)
            except ValidationError:  # not repeated: it would quote the server, and its secrets with it
                raise ValueError(f"mcpServers.{place} is not a server as the protocol has it") from None
        return given


class New(_Opening, NewSessionRequest):
    """`session/new`."""


class Load(_Opening, LoadSessionRequest):
    """`session/load`."""


class Resume(_Opening, ResumeSessionRequest):
    """`session/resume`."""


class Fork(_Opening, ForkSessionRequest):
    """`session/fork`."""


class Choose(BaseModel):
    """`session/set_config_option`, whichever kind of value it has."""

    session_id: str = Field(alias="sessionId")
    config_id: str = Field(alias="configId")
    value: str | bool
