"""Read quarantined events from the lake without Java or Spark."""

from collections import Counter
from datetime import datetime
from typing import Any

from pyiceberg.catalog import Catalog

from replicator.config import Config
from replicator.lake.properties import QUARANTINE
from replicator.lake.reading.catalog import load_table
from replicator.lake.reading.reader import open_catalog
from replicator.model.quarantine import LogCoordinate, QuarantinedEvent, QuarantineFilter, Resolution


def read_quarantine(config: Config, wanted: QuarantineFilter) -> list[QuarantinedEvent]:
    """Return the events that the filter selects, oldest first.

    Raises:
        LakeUnavailable: the catalog or the table cannot be read.
    """
    if config.lake.is_new:
        return []
    with open_catalog(config.lake) as catalog:
        return wanted.of([_event(row) for row in _rows(catalog, config, resolved=wanted.resolved)])


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
    return Counter(row["table"] for row in _rows(catalog, config, ("table",)))


def _rows(
    catalog: Catalog, config: Config, fields: tuple[str, ...] = ("*",), *, resolved: bool = False
) -> list[dict[str, Any]]:
    """Return the events of the table, also those that are resolved if they are wanted."""
    if (table := load_table(catalog, config.lake.ops_namespace, QUARANTINE)) is None:
        return []
    scan = table.scan(selected_fields=fields)
    if not resolved and "state" in table.schema().column_names:
        scan = scan.filter("state IS NULL")
    found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return found


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
