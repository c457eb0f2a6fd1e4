"""Runtime adapters: the registry, what programs have in common (`program`), and one folder per runtime."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.runtimes.acp.adapter import AcpRuntime as AcpRuntime
    from codesdk.runtimes.acp.launch import (
        Setup as Setup,
        command_line as command_line,
        environment as environment,
        known_names as known_names,
        mcp_server as mcp_server,
        working_folder as working_folder,
        write_files as write_files,
    )
    from codesdk.runtimes.acp.own import (
        OwnAgent as OwnAgent,
        check_name as check_name,
        entry_of_own as entry_of_own,
        read_own as read_own,
        write_own as write_own,
    )
    from codesdk.runtimes.acp.row import (
        AgentRow as AgentRow,
        Launch as Launch,
        Reading as Reading,
        fill as fill,
    )
    from codesdk.runtimes.external.hosting import (
        external_runtime as external_runtime,
        external_runtimes as external_runtimes,
        full_path as full_path,
        hosted_runtime as hosted_runtime,
        read_external as read_external,
    )
    from codesdk.runtimes.external.runtime import (
        ExternalRuntime as ExternalRuntime,
        introduced as introduced,
    )
    from codesdk.runtimes.external.schema import adapter_schema_files as adapter_schema_files
    from codesdk.runtimes.external.server import serve as serve, serve_streams as serve_streams
    from codesdk.runtimes.external.wrapped import WrappedRuntime as WrappedRuntime, offered as offered
    from codesdk.runtimes.program.certificates import (
        OWNERSHIP_ROWS as OWNERSHIP_ROWS,
        Certificate as Certificate,
        Issued as Issued,
        Row as Row,
        issue_certificate as issue_certificate,
        program_tree as program_tree,
    )
    from codesdk.runtimes.program.environment import (
        Places as Places,
        clean_session as clean_session,
        forget_session as forget_session,
        login_folder as login_folder,
        make_places as make_places,
        session_folders as session_folders,
    )
    from codesdk.runtimes.program.finding import (
        Program as Program,
        VersionState as VersionState,
        certify_command as certify_command,
        find_program as find_program,
        install_command as install_command,
    )
    from codesdk.runtimes.program.jsonrpc import (
        Connection as Connection,
        Frame as Frame,
        Garbage as Garbage,
        Gone as Gone,
        RequestFailed as RequestFailed,
        as_dict as as_dict,
        as_list as as_list,
    )
    from codesdk.runtimes.program.pinned import PROGRAMS as PROGRAMS
    from codesdk.runtimes.program.pinned.folders import (
        Pinned as Pinned,
        installed_program as installed_program,
        lock_hash as lock_hash,
        program_folder as program_folder,
    )
    from codesdk.runtimes.program.pinned.installing import (
        Job as Job,
        plan_jobs as plan_jobs,
        remove_program as remove_program,
        run_job as run_job,
    )
    from codesdk.runtimes.program.pinned.versions import version_of as version_of
    from codesdk.runtimes.registry import (
        create_runtime as create_runtime,
        entries as entries,
        entry_of as entry_of,
        program_table as program_table,
        resolve as resolve,
        runtime_names as runtime_names,
        runtime_table as runtime_table,
    )
    from codesdk.runtimes.scripted.adapter import ScriptedRuntime as ScriptedRuntime
    from codesdk.runtimes.switches import (
        LOGINS as LOGINS,
        logins_from as logins_from,
        read_logins as read_logins,
    )

__getattr__, __dir__ = open_door(__name__, __file__)
