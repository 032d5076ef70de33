"""Which tables must still show that the connector's newest snapshot has rows of them.

The order of the log's topics does not tell it: a table without rows in a snapshot has no record in its own topic.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from replicator.model.commit_marker import CommitMarker
from replicator.model.position import SourcePosition
from replicator.model.recorded import checked, reading, record_in
from replicator.model.table import TableId

KNOWN_KEY: Final = "replicator.snapshots-known"
"""Property of the `_ops` namespace: see `SnapshotChecks.known_ms`."""
AWAITED_KEY: Final = "replicator.snapshot-awaited."
"""Prefix of the properties that each contain such a table, by source table: catalogs limit the length of one."""
CLOCK_SKEW_MS: Final = 60_000
"""By how much the clocks of MySQL and Kafka Connect may differ. If it is more, tables are read again needlessly."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """A table that the connector read again.

    Attributes:
        since_ms: definitions of snapshots until then were checked.
        before_ms: the time of the snapshot whose rows the mirror had then; None if it had none.
    """

    since_ms: int
    before_ms: int | None

    def has_rows(self, marker: CommitMarker, position: SourcePosition, ts_ms: int) -> bool:
        """Return whether a mirror has rows of the snapshot at `position`, which defined the table at `ts_ms`.

        A snapshot of another server may have the same position as an earlier one.
        """
        read = marker.snapshot
        if read is None or read.position != position:
            return False
        return read.ts_ms >= ts_ms - CLOCK_SKEW_MS if self.before_ms is None else read.ts_ms != self.before_ms


@dataclass(frozen=True, slots=True)
class SnapshotChecks:
    """Which snapshots were noticed.

    Attributes:
        known_ms: the time of the newest definition of a snapshot that was noticed, by the clock of Kafka Connect.
        awaited: the tables of which it is not known yet whether their snapshot has rows.
    """

    known_ms: int = 0
    awaited: Mapping[TableId, Awaited] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        """Return the properties of the `_ops` namespace that say this, described in schemas/lake-properties-v1.json."""
        tables = {AWAITED_KEY + str(table): _to_json(table, found) for table, found in self.awaited.items()}
        return {**tables, KNOWN_KEY: str(self.known_ms)}

    def changes(self, before: "SnapshotChecks | None") -> dict[str, str | None]:
        """Return what to set, and to remove as None, if the properties are those of `before`."""
        known = {} if before is None else before.properties()
        own = self.properties()
        changed: dict[str, str | None] = {k: v for k, v in own.items() if known.get(k) != v}
        return {**changed, **dict.fromkeys(known.keys() - own.keys())}


def _to_json(table: TableId, awaited: Awaited) -> str:
    return json.dumps(
        {
            "database": table.database,
            "name": table.name,
            "since_ms": awaited.since_ms,
            "before_ms": awaited.before_ms,
        }
    )


def checks_in(properties: Mapping[str, str]) -> SnapshotChecks | None:
    """Return what the properties of the `_ops` namespace say; None if they say nothing.

    Raises:
        ValueError: another version of the engine wrote them.
    """
    if KNOWN_KEY not in properties:
        return None
    with reading("the record of snapshots"):
        found = [record_in(value) for key, value in properties.items() if key.startswith(AWAITED_KEY)]
        awaited = {TableId(v["database"], v["name"]): Awaited(v["since_ms"], v["before_ms"]) for v in found}
        return checked(SnapshotChecks(int(properties[KNOWN_KEY]), awaited))
