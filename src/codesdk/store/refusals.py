"""The errors that every event log raises with the same words: what does not fit, and what to do about it."""

from codesdk.contract.errors import Busy, CodeSDKError, Conflict, NotFound, StorageFailure


def exists(session_id: str) -> Conflict:
    """A session is registered twice."""
    return Conflict(f"Session {session_id} exists already. Choose another id.")


def missing(session_id: str) -> NotFound:
    """A session does not exist, or no longer."""
    return NotFound(f"There is no session {session_id}. List the sessions to find the one that you mean.")


def gone(session_id: str) -> Conflict:
    """An append came for a session that does not exist, or no longer."""
    return Conflict(
        f"Session {session_id} is not in the store: it was deleted, or never created. Create another one."
    )


def lost(session_id: str, epoch: int, current: int) -> Conflict:
    """An append came from a writer that no longer owns the session."""
    return Conflict(
        f"Session {session_id} was taken over: this writer has epoch {epoch}, the current one {current}."
        " Work through the process that has it now.",
        details={"epoch": epoch, "current": current},
    )


def misfit(session_id: str, first_seq: int, head: int) -> Conflict:
    """An append does not continue the log."""
    return Conflict(
        f"Session {session_id} ends at seq {head}, so an append must begin at {head + 1}, not at {first_seq}."
        " Load it again.",
        details={"first_seq": first_seq, "head": head},
    )


def behind(session_id: str, cause: CodeSDKError) -> Conflict:
    """An append was queued behind one that failed."""
    return Conflict(
        f"An earlier append to session {session_id} failed, so this one was not tried. {cause.message}",
        details={"cause": cause.code},
    )


def task_taken(task_id: str) -> Conflict:
    """A task id belongs to another session of the same principal."""
    return Conflict(
        f"The task id {task_id} is taken by another session. Choose another one.",
        details={"task_id": task_id},
    )


def key_taken(key: str) -> Conflict:
    """An idempotency key was already used for something else."""
    return Conflict(
        f"The idempotency key {key!r} was used for another request. Choose another one.", details={"key": key}
    )


def too_many_jobs(room: int) -> Busy:
    """A principal has as many jobs in its queue as it may have."""
    return Busy(f"{room:,} jobs are queued or running, which is the limit. Wait, or cancel some.")


def closed() -> StorageFailure:
    """A log was used after it was closed."""
    return StorageFailure("The event log is closed. Open it again.")


def read_only() -> StorageFailure:
    """A change was requested of a log that is open for reading."""
    return StorageFailure("The event log is open for reading only. Open it for writing.")
