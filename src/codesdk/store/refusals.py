"""The errors that every event log raises with the same words: what does not fit, and what to do about it."""

from codesdk.contract.errors import Busy, CodeSDKError, Conflict, NotFound, StorageFailure


def exists(session_id: str) -> Conflict:
    """A session is registered twice."""
    return Conflict(f"session {session_id} exists already")


def missing(session_id: str) -> NotFound:
    """A session does not exist, or no longer."""
    return NotFound(f"there is no session {session_id}")


def gone(session_id: str) -> Conflict:
    """An append came for a session that does not exist, or no longer."""
    return Conflict(f"session {session_id} is not in the store: it was deleted, or never created")


def lost(session_id: str, epoch: int, current: int) -> Conflict:
    """An append came from a writer that no longer owns the session."""
    return Conflict(
        f"session {session_id} was taken over: this writer has epoch {epoch}, the current one is {current}",
        details={"epoch": epoch, "current": current},
    )


def misfit(session_id: str, first_seq: int, head: int) -> Conflict:
    """An append does not continue the log."""
    return Conflict(
        f"session {session_id} ends at seq {head}, so an append must begin at {head + 1}, not at {first_seq}",
        details={"first_seq": first_seq, "head": head},
    )


def behind(session_id: str, cause: CodeSDKError) -> Conflict:
    """An append was queued behind one that failed."""
    return Conflict(
        f"an earlier append to session {session_id} failed: {cause.message}", details={"cause": cause.code}
    )


def task_taken(task_id: str) -> Conflict:
    """A task id belongs to another session of the same principal."""
    return Conflict(
        f"task id {task_id} is taken by another session; choose another one", details={"task_id": task_id}
    )


def key_taken(key: str) -> Conflict:
    """An idempotency key was already used for something else."""
    return Conflict(f"idempotency key {key!r} was already used for another request", details={"key": key})


def too_many_jobs(room: int) -> Busy:
    """A principal has as many jobs in its queue as it may have."""
    return Busy(f"{room:,} jobs are queued or running, which is the limit; wait, or cancel some")


def closed() -> StorageFailure:
    """A log was used after it was closed."""
    return StorageFailure("the event log is closed")


def read_only() -> StorageFailure:
    """A change was requested of a log that is open for reading."""
    return StorageFailure("the event log is open for reading only")
