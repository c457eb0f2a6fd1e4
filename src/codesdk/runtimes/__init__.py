"""Runtime adapters: the registry, what programs have in common (`program`), and one folder per runtime."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.runtimes.program.certificates import (
        OWNERSHIP_ROWS as OWNERSHIP_ROWS,
        Certificate as Certificate,
        Issued as Issued,
        Row as Row,
        issue_certificate as issue_certificate,
        program_tree as program_tree,
    )
    from codesdk.runtimes.program.environment import (
        clean_session as clean_session,
        forget_session as forget_session,
        login_folder as login_folder,
        session_folders as session_folders,
    )
    from codesdk.runtimes.program.finding import (
        Program as Program,
        VersionState as VersionState,
        certify_command as certify_command,
        find_program as find_program,
        install_command as install_command,
    )
    from codesdk.runtimes.program.process import has_namespaces as has_namespaces
    from codesdk.runtimes.program.sweep import sweep as sweep
    from codesdk.runtimes.registry import (
        create_runtime as create_runtime,
        entries as entries,
        entry_of as entry_of,
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

__all__, __getattr__, __dir__ = open_door(__name__, __file__)
