"""The table of settings: each has its key in `codesdk.toml`, its flag, its bounds, its default and its line of help.

Flags, the file, `codesdkd --check-config`, docs/configuration.md and the tests are made from these rows.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from codesdk.cli.options import DEFAULT_DATA_DIR
from codesdk.contract.bounds import Bytes, Interval, Number, Port, Rate, Seconds
from codesdk.contract.settings import Budget, Limits
from codesdk.sandbox import SandboxKind, SandboxLimits

Age = Annotated[float, msgspec.Meta(gt=0, le=36_500)]


class Setting(NamedTuple):
    """One thing that an operator can set."""

    key: str
    """Its name in the file, below [daemon]."""
    flag: str
    kind: Any
    """Its type, with its bounds, in the words of msgspec."""
    help: str
    default: Any = None
    metavar: str | None = None
    env: str | None = None
    is_path: bool = False
    """Whether a relative one in the file starts from the file's own directory."""
    member: str | None = None
    """Its name in a flag that many settings share: `--limit max_tasks=8`."""
    commas: bool = False
    """Whether its flag takes a list in one piece, separated by commas."""

    @property
    def parameter(self) -> str:
        """The name of its flag as a parameter of a command."""
        return self.flag.removeprefix("--").replace("-", "_")


def _members(key: str, flag: str, of: type[msgspec.Struct], prefix: str = "") -> tuple[Setting, ...]:
    """Return a row for each number of a struct, all of them set by one flag."""
    rows: list[Setting] = []
    for field in msgspec.structs.fields(of):
        if field.name == "principal_budget":
            rows += _members(f"{key}.{field.name}", flag, Budget, f"{field.name}.")
            continue
        member = prefix + field.name
        text = LIMIT_HELP[f"{key.partition('.')[0]}.{field.name}"]
        rows.append(
            Setting(f"{key}.{field.name}", flag, field.type, text, field.default, "NAME=N", member=member)
        )
    return tuple(rows)


LIMIT_HELP = {
    "commands.wall_s": "Seconds that a command may take.",
    "commands.cpu_s": "Seconds of processor time.",
    "commands.memory_bytes": "Memory.",
    "commands.processes": "Processes at the same time.",
    "commands.file_bytes": "Size of one file.",
    "commands.open_files": "Open files of one process.",
    "commands.output_bytes": "What a command may print.",
    "commands.scratch_bytes": "What it may keep in its /tmp and home.",
    "limits.max_sessions": "Open sessions.",
    "limits.max_tasks": "Tasks that may run at the same time.",
    "limits.max_tasks_per_runtime": "How many of these may be of one runtime.",
    "limits.max_queue": "Tasks that may wait in one session.",
    "limits.max_backlog_frames": "Events of a session that wait to be stored before its runtime is slowed down.",
    "limits.max_message_bytes": "Size of a user's message; those that wait in one session may have four times as much together.",
    "limits.max_event_bytes": "Size of an event, and of the input of a tool call.",
    "limits.max_artifact_bytes": "Size of an artifact or an upload.",
    "limits.max_same_requests": "Equal model requests of one task within a minute; more count as a loop.",
    "limits.max_same_calls": "Equal calls in a row with equal results; more count as a loop.",
    "limits.max_calls": "Tool calls of one task, whatever they are; more count as a loop.",
    "limits.max_output_chars": "Characters that a runtime may stream in one task; 16 bytes of anything else count as one. More is a flood.",
    "limits.runtime_idle_s": "Seconds without a task after which a runtime's process is ended; it is started again when needed.",
    "limits.requests": "Model requests of all sessions of one principal.",
    "limits.tokens": "Tokens of all sessions of one principal.",
    "limits.cost_usd": "Dollars of all sessions of one principal.",
}
"""What each limit bounds, by section and field."""

POLICY = Setting(
    "policy",
    "--policy",
    str | None,
    "Rules that are checked before the permission mode: a preset, such as edits, or a file; `codesdk policy list` shows"
    " the presets.",
    metavar="NAME|FILE",
    env="CODESDK_POLICY",
    is_path=True,
)
YOLO = Setting(
    "allow_yolo", "--allow-yolo", bool, "Allow the permission mode yolo.", False, env="CODESDK_ALLOW_YOLO"
)
UNTESTED = Setting(
    "allow_untested",
    "--allow-untested",
    bool,
    "Allow programs of versions that were neither tested nor certified.",
    False,
    env="CODESDK_ALLOW_UNTESTED",
)
COMMANDS = (
    Setting(
        "commands.allow",
        "--allow-command",
        list[str],
        'Offer workspace.exec for commands that begin like this, such as "git diff".',
        (),
        "WORDS",
    ),
    Setting(
        "commands.sandbox",
        "--sandbox",
        SandboxKind,
        "Where commands run; host is not a sandbox.",
        "bubblewrap",
    ),
    Setting("commands.image", "--image", str | None, "The image for the sandbox oci.", metavar="NAME"),
    Setting(
        "commands.engine",
        "--engine",
        str | None,
        "The container engine's socket for the sandbox oci; without it, that of DOCKER_HOST or a usual place.",
        metavar="SOCKET",
    ),
    Setting("commands.cpus", "--cpus", Rate, "Processors for a container of the sandbox oci.", 2.0, "N"),
    Setting(
        "commands.readable",
        "--readable",
        list[str],
        "A path outside /usr that commands in the sandbox bubblewrap may read.",
        (),
        "PATH",
        is_path=True,
    ),
    Setting(
        "commands.give_workspace",
        "--give-workspace",
        bool,
        "If CodeSDK runs as root: give what root owns in a workspace to the user that commands run as.",
        False,
    ),
    Setting("commands.hosts", "--command-host", list[str], "A host that commands may reach.", (), "NAME"),
    Setting(
        "commands.writable", "--command-writes", bool, "Whether commands may change the workspace.", True
    ),
    *_members("commands.limits", "--command-limit", SandboxLimits),
)
FETCH = (
    Setting(
        "fetch.allow",
        "--allow-fetch",
        list[str],
        "Offer http.fetch for this host: a name, *. and a domain, or * for every public address.",
        (),
        "HOST",
    ),
)
EXTERNAL = Setting(
    "external",
    "--external",
    list[str],
    "An executable that speaks the adapter protocol, as the runtime external:NAME.",
    (),
    "NAME=COMMAND",
)
RUNTIMES = (
    EXTERNAL,
    Setting(
        "hosting",
        "--hosting",
        Literal["in_process", "subprocess"],
        "Where built-in runtimes run; with subprocess, in a process of its own for each session.",
        "in_process",
    ),
)
EXTENSIONS = (
    Setting(
        "extensions.roots",
        "--extension",
        list[str],
        "A directory that is an extension, or holds some.",
        (),
        "DIR",
        is_path=True,
    ),
    Setting(
        "extensions.project",
        "--project-extensions",
        str | None,
        "A directory whose .codesdk/extensions are loaded, each once `codesdk extensions trust` has pinned it.",
        metavar="DIR",
        is_path=True,
    ),
    Setting(
        "extensions.packages",
        "--extension-packages",
        bool,
        "Load installed packages that say they are extensions.",
        False,
    ),
    Setting(
        "extensions.trust",
        "--extension-trust",
        Literal["disabled", "warn", "enforced"],
        "How to treat events and actions that an extension does not declare; enforced refuses them.",
        "enforced",
    ),
    Setting(
        "extensions.hosting",
        "--extension-hosting",
        Literal["in_process", "subprocess"],
        "Where extensions run; with subprocess, each has a process of its own and none of our environment.",
        "in_process",
    ),
    Setting(
        "extensions.environment",
        "--extension-env",
        list[str],
        "A variable of our environment that extensions have in processes of their own.",
        (),
        "NAME",
    ),
)
OPENING = (POLICY, YOLO, UNTESTED, *RUNTIMES, *COMMANDS, *FETCH, *EXTENSIONS)
"""What an engine of any process can be opened with: `codesdk run` takes these flags, too."""

DAEMON = (
    Setting(
        "data_dir",
        "--data-dir",
        str,
        "Where sessions are stored.",
        DEFAULT_DATA_DIR,
        "DIR",
        "CODESDK_DATA_DIR",
        True,
    ),
    Setting("host", "--host", str, "Where to listen.", "127.0.0.1", "ADDRESS"),
    Setting("port", "--port", Port, "The port; 0 for any free one.", 0, "N"),
    Setting(
        "runtimes",
        "--runtimes",
        list[str],
        "Runtimes that sessions may use; none named allows all.",
        (),
        "NAMES",
        commas=True,
    ),
    Setting(
        "workspace_roots",
        "--workspace-root",
        list[str],
        "Workspaces must be inside this directory; none named allows any.",
        (),
        "DIR",
        is_path=True,
    ),
    Setting(
        "allow_script_files",
        "--allow-script-files",
        bool,
        "Sessions on the scripted runtime may name a script in their workspace.",
        False,
    ),
    Setting(
        "allow_agent_commands",
        "--allow-agent-commands",
        bool,
        "Sessions on the runtime acp may say which command starts their agent: it runs as the daemon's user.",
        False,
    ),
    Setting(
        "share_keys",
        "--share-keys",
        bool,
        "The provider keys in this environment also pay for principals that have none of their own.",
        False,
    ),
    Setting(
        "logins",
        "--logins",
        list[str],
        "Runtimes whose own account logins are allowed, such as codex=through.",
        (),
        "RUNTIMES",
        "CODESDK_LOGINS",
        commas=True,
    ),
    Setting(
        "allow_isolation",
        "--allow-isolation",
        list[str],
        "A level of isolation, ephemeral or shared, that sessions may choose in place of namespaced.",
        (),
        "LEVEL",
    ),
    Setting(
        "allow_namespaces",
        "--allow-namespace",
        list[str],
        "A credential namespace that sessions may use, with the logins in it; * for any.",
        (),
        "NAME",
    ),
    Setting(
        "allow_hosts",
        "--allow-host",
        list[str],
        "A name by which clients reach the daemon, such as a proxy's.",
        (),
        "NAME",
    ),
    Setting(
        "require_token",
        "--require-token",
        bool,
        "Require a token even if none has been made yet with `codesdk tokens add`.",
        False,
    ),
    Setting("grace_s", "--grace", Seconds, "How long tasks may keep running after SIGTERM.", 10.0, "SECONDS"),
    Setting(
        "requests_per_second",
        "--requests-per-second",
        Rate | None,
        "How many requests a principal may make.",
        500.0,
        "N",
    ),
    Setting(
        "request_burst",
        "--request-burst",
        Number,
        "How many requests may come at once before that limit applies.",
        2_000,
        "N",
    ),
    Setting(
        "tasks_per_minute",
        "--tasks-per-minute",
        Rate | None,
        "How many tasks of one runtime a principal may start.",
        metavar="N",
    ),
    Setting(
        "max_connections",
        "--max-connections",
        Number,
        "How many connections may be open, if the limit of open files allows it.",
        10_000,
        "N",
    ),
    Setting(
        "max_connections_per_peer",
        "--max-connections-per-peer",
        Number | None,
        "How many of them one address may have, by default half of all; raise it behind a proxy.",
        metavar="N",
    ),
    Setting(
        "max_body_bytes", "--max-body-bytes", Bytes, "The longest body of a request.", 8 * 1024 * 1024, "N"
    ),
    Setting(
        "heartbeat_s",
        "--heartbeat",
        Interval,
        "How often an idle event stream shows that it is alive.",
        15.0,
        "SECONDS",
    ),
    Setting("keep_days", "--keep-days", Age | None, "Remove older sessions and audit records.", metavar="N"),
    Setting(
        "keep_bytes",
        "--keep-bytes",
        Number | None,
        "Remove the oldest sessions when all of them take more.",
        metavar="N",
    ),
    Setting(
        "log_level",
        "--log-level",
        Literal["debug", "info", "warning", "error"],
        "How much to log to stderr.",
        "info",
    ),
    Setting("log_format", "--log-format", Literal["json", "text"], "How to log.", "json"),
    Setting(
        "traces",
        "--traces",
        str | None,
        "Send spans to an OpenTelemetry collector, such as http://127.0.0.1:4318/v1/traces.",
        metavar="URL",
    ),
    *OPENING,
    *_members("limits", "--limit", Limits),
)
"""All that a daemon can be told."""
