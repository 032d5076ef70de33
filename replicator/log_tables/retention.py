"""Delete the old partitions of a log table as a whole: a commit of metadata, without reading a row."""

from datetime import UTC, datetime
from typing import Any, Final

from replicator.config.log_tables import LogTableConfig
from replicator.lake.catalog.java import each_of
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors

_UNIT_MS: Final = {"hour": 3_600_000, "day": 86_400_000}


def expired_before(settings: LogTableConfig, now_ms: int) -> datetime | None:
    """Return the beginning of the oldest partition that is kept; None if all are. Pure."""
    if settings.retention is None or settings.partition is None:
        return None
    unit = _UNIT_MS[settings.partition]
    oldest = (now_ms - int(settings.retention * 1000)) // unit * unit
    return datetime.fromtimestamp(oldest / 1000, UTC)


def delete_expired(lake: Lake, table: LakeTable, settings: LogTableConfig, before: datetime) -> int:
    """Delete the partitions before a time; return the number of files that were deleted. Rows without a time stay.

    Raises:
        CommitConflict: another process committed to the table meanwhile; nothing was deleted.
        LakeUnavailable: the catalog failed.
    """
    column = settings.event_time or ""
    kind = str(table.columns()[column])
    with lake_errors(f"old partitions of {settings.table} cannot be deleted"):
        expressions = lake.classes.expressions
        # Iceberg takes null for less than any value, and would delete the partition of rows without a time.
        has_time, is_old = expressions.notNull(column), expressions.lessThan(column, literal(before, kind))
        expired = getattr(expressions, "and")(has_time, is_old)
        files = _count(table, expired)
        if files:
            table.java.newDelete().deleteFromRowFilter(expired).commit()
            table.refresh()
    return files


def literal(moment: datetime, kind: str) -> str:
    """Return a time as Iceberg takes it for a column of a type. Pure."""
    if kind == "date":
        return moment.date().isoformat()
    return moment.isoformat() if kind == "timestamptz" else moment.replace(tzinfo=None).isoformat()


def _count(table: LakeTable, expired: Any) -> int:
    return sum(1 for _ in each_of(table.java.newScan().filter(expired).planFiles()))
