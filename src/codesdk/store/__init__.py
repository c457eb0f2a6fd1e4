"""Storage for events, rows, blobs and the audit, on disk or in memory, behind the contract's ports."""

from typing import TYPE_CHECKING

from codesdk.doors import open_door

if TYPE_CHECKING:
    from codesdk.store.age import age_time as age_time
    from codesdk.store.audit.chain import (
        AuditEntry as AuditEntry,
        AuditRecord as AuditRecord,
        Category as Category,
        Place as Place,
        Who as Who,
        now as now,
        storage_entry as storage_entry,
    )
    from codesdk.store.audit.entries import (
        deletion_entry as deletion_entry,
        extension_entry as extension_entry,
        job_entry as job_entry,
    )
    from codesdk.store.audit.reading import read_audit as read_audit
    from codesdk.store.audit.trail import Audit as Audit
    from codesdk.store.audit.verify import AuditReport as AuditReport, verify_audit as verify_audit
    from codesdk.store.backends import BACKENDS as BACKENDS, find_backend as find_backend
    from codesdk.store.blobs import FileBlobs as FileBlobs, MemoryBlobs as MemoryBlobs
    from codesdk.store.durable import write_file as write_file
    from codesdk.store.equipment import FileEquipment as FileEquipment, MemoryEquipment as MemoryEquipment
    from codesdk.store.memory import MemoryLog as MemoryLog
    from codesdk.store.sqlite.log import SqliteLog as SqliteLog
    from codesdk.store.sqlite.split_blobs import SplitBlobs as SplitBlobs
    from codesdk.store.sqlite.writer import WriterStats as WriterStats
    from codesdk.store.undo import FileUndo as FileUndo, MemoryUndo as MemoryUndo

__getattr__, __dir__ = open_door(__name__, __file__)
