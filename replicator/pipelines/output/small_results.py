"""The rows of small results, which the driver holds: a refresh needs no Spark job to read them.

A refresh of an aggregate reads the rows of its groups, and a pipeline that reads a result joins or ranks its rows. Both
would scan the table again each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.spark_tables import rows_of
from replicator.pipelines.held import MOST_ROWS, are_equal_as_in_sql, held_rows, without_keys
from replicator.pipelines.query.names import WEIGHT

_MOST_BYTES: Final = 64_000_000
"""Of all results that are held; those that were not used for the longest time are forgotten first."""


@dataclass(slots=True)
class SmallResults:
    """The rows of small results with a key, as of a snapshot of their tables."""

    _held: dict[str, tuple[int, pa.Table]] = field(default_factory=dict)

    def rows(self, lake: Lake, table: LakeTable, key: Sequence[str]) -> pa.Table | None:
        """Return all rows of a result as it was loaded; None if they are too many, or it has no fit key.

        They are read if those of this snapshot are not held.
        """
        uuid, snapshot = table.uuid, table.snapshot_id
        known = self._held.pop(uuid, None)
        if snapshot is None or table.total_rows > MOST_ROWS:
            return None
        if known is None or known[0] != snapshot:
            columns = rows_of(lake, table)
            if (found := held_rows(columns, [table])) is None or not are_equal_as_in_sql(found.schema, key):
                return None
            known = snapshot, found
        self._keep(uuid, *known)
        return known[1]

    def committed(
        self, uuid: str, since: int | None, head: int | None, changes: pa.Table | None, key: Sequence[str]
    ) -> None:
        """Apply the net changes of a commit to a table.

        `since` and `head` are the snapshots before and after it, None if there was none, or it is unknown. `changes` is
        None if the driver does not hold them.
        """
        snapshot, rows = self._held.pop(uuid, (None, None))
        if rows is None or snapshot != since or head is None or changes is None:
            return
        weights = changes.column(WEIGHT)
        added = changes.filter(pc.greater(weights, 0)).select(rows.column_names).cast(rows.schema)
        kept = without_keys(rows, changes.filter(pc.less(weights, 0)), key)
        self._keep(uuid, head, pa.concat_tables([kept, added]).combine_chunks())

    def _keep(self, uuid: str, snapshot: int, rows: pa.Table) -> None:
        self._held[uuid] = snapshot, rows
        while sum(held.nbytes for _, held in self._held.values()) > _MOST_BYTES:
            self._held.pop(next(iter(self._held)))
