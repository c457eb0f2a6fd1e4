"""A requested command to a refusal in words, if no backend could run it."""

from codesdk.contract.errors import InvalidRequest
from codesdk.sandbox.backend import Command, SandboxCapabilities, SandboxUnavailable
from codesdk.sandbox.egress import check_hosts


def require(command: Command, found: SandboxCapabilities) -> None:
    """Raise unless the command is valid and everything that it requires can be enforced."""
    if not found.available:
        raise SandboxUnavailable(" ".join(found.notes))
    if missing := sorted(command.required - found.limits):
        notes = " ".join(found.notes)
        raise SandboxUnavailable(
            f"The limit on {', '.join(missing)} is required and cannot be enforced. {notes}"
        )
    if not command.argv or not command.argv[0]:
        raise InvalidRequest("The command is empty; its first part names a program.")
    if any("\0" in part for part in (*command.argv, command.cwd, command.workspace)):
        raise InvalidRequest("The command contains a NUL character, which no argument can have.")
    if command.cwd.startswith("/") or ".." in command.cwd.split("/"):
        raise InvalidRequest("The working directory must be inside the workspace, given relative to it.")
    for name, value in command.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequest(f'"{name[:100]}" cannot be the name or value of an environment variable.')
    check_hosts(command.hosts)
