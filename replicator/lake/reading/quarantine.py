"""Read quarantined events from the lake without Java or Spark."""

from collections import Counter
from datetime import datetime
from typing import Any

from pyiceberg.catalog import Catalog

from replicator.config import Config
from replicator.lake.reading.reader import open_catalog
from replicator.model.quarantine import LogCoordinate, QuarantinedEvent, QuarantineFilter, Resolution

QUARANTINE = "quarantine"
"""The table's name in the `_ops` namespace; repeated here because the writer's module loads Spark."""


def read_quarantine(config: Config, wanted: QuarantineFilter) -> list[QuarantinedEvent]:
    """Return the events that the filter selects, oldest first.

    Raises:
        LakeUnavailable: the catalog or the table cannot be read.
    """
    if config.lake.is_new:
        return []
    with open_catalog(config.lake) as catalog:
        return wanted.of(_events(catalog, config, wanted))


def count_quarantined(catalog: Catalog, config: Config, source: str) -> int:
    """Return the number of unresolved events of a source table."""
    return _unresolved(catalog, config)[source]


def unresolved_by_table(config: Config) -> Counter[str | None]:
    """Return the number of unresolved events by source table; None for events without a table.

    Raises:
        LakeUnavailable: the catalog or the table cannot be read.
    """
    with open_catalog(config.lake) as catalog:
        return _unresolved(catalog, config)


def _unresolved(catalog: Catalog, config: Config) -> Counter[str | None]:
    name = (config.lake.ops_namespace, QUARANTINE)
    if not catalog.table_exists(name):
        return Counter()
    table = catalog.load_table(name)
    scan = table.scan(selected_fields=("table",))
    if "state" in table.schema().column_names:
        scan = scan.filter("state IS NULL")
    return Counter(scan.to_arrow().column("table").to_pylist())


def _events(catalog: Catalog, config: Config, wanted: QuarantineFilter) -> list[QuarantinedEvent]:
    name = (config.lake.ops_namespace, QUARANTINE)
    if not catalog.table_exists(name):
        return []
    table = catalog.load_table(name)
    scan = table.scan()
    if not wanted.resolved and "state" in table.schema().column_names:
        scan = scan.filter("state IS NULL")
    return [_event(row) for row in scan.to_arrow().to_pylist()]


def _event(row: dict[str, Any]) -> QuarantinedEvent:
    state = row.get("state")
    return QuarantinedEvent(
        place=LogCoordinate(row["topic"], row["partition"], row["offset"]),
        table=row["table"],
        timestamp_ms=_ms(row["timestamp"]),
        quarantined_ms=_ms(row["quarantined_at"]) or 0,
        reason=row["reason"] or "",
        key=row["key"],
        value=row["value"],
        resolution=None if state is None else Resolution(state),
        resolved_ms=_ms(row.get("resolved_at")),
    )


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)
