"""The driver holds the rows of small mirrors, as they are at the boundary of a refresh.

A join reads the rows of one mirror for the changes of another. Spark would scan the mirror each time, and reverse its
changes from after the boundary. Here, each refresh applies its changes to the held rows; then they are at its boundary.
A mirror is small if it has at most `MOST_ROWS` rows, and fits into `_MOST_BYTES` beside the others.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from replicator.lake.files.spark_tables import columns_of
from replicator.pipelines.held import are_equal_as_in_sql, held_rows, most_held, without_keys
from replicator.pipelines.inputs.progress import InputProgress
from replicator.pipelines.inputs.states import InputState
from replicator.pipelines.inputs.tables import InputKind
from replicator.pipelines.query.names import WEIGHT

_Name: TypeAlias = tuple[str, tuple[str, ...]]
MOST_ROWS: Final = 1_000_000
_MOST_BYTES: Final = 256_000_000
"""Of all mirrors that are held."""
_UNUSED_S: Final = 600.0
"""A mirror that was not used for so long is forgotten, and one that did not fit is tried again after so long."""
_MOST_CHUNKS: Final = 16


@dataclass(slots=True)
class SmallMirrors:
    """For each small mirror, and each set of columns that a pipeline names: its rows at one boundary."""

    clock: Callable[[], float] = time.monotonic
    _held: dict[_Name, tuple[InputProgress, pa.Table]] = field(default_factory=dict)
    _used: dict[_Name, float] = field(default_factory=dict)
    """When each was used last; of one that is not held, when it did not fit."""

    def rows(self, state: InputState) -> pa.Table | None:
        """Return the wanted columns of the rows at the boundary; None if the driver does not hold them.

        The mirror is read if the held rows cannot be brought to the boundary.
        """
        name, now = (state.table.table.uuid, state.columns), self.clock()
        for unused in [each for each, at in self._used.items() if now - at > _UNUSED_S]:
            del self._used[unused]
            self._held.pop(unused, None)
        known = self._held.pop(name, None)
        if (known is None and name in self._used) or not _is_small(state):
            return None
        self._used[name] = now
        rows = None if known is None else _brought(*known, state)
        if rows is None and (rows := _read(state)) is None:
            return None
        if rows.nbytes + sum(held.nbytes for _, held in self._held.values()) <= _MOST_BYTES:
            self._held[name] = state.progress, rows
        return rows.select(list(state.columns))


def _is_small(state: InputState) -> bool:
    table = state.table
    is_mirror = table.kind is InputKind.MIRROR and table.changelog is not None and bool(table.key)
    if not is_mirror or table.table.total_rows > min(MOST_ROWS, most_held(table.table.row_bytes)):
        return False
    return are_equal_as_in_sql(to_arrow_schema(columns_of(state.lake, table.table)), state.with_key)


def _brought(progress: InputProgress, rows: pa.Table, state: InputState) -> pa.Table | None:
    """Return the rows of a mirror at the boundary of `state`; None if they do not follow from `rows` at `progress`."""
    if progress == state.progress:
        return rows
    if progress != state.since or (changes := state.changes_with_key) is None:
        return None
    values = changes.drop_columns([WEIGHT])
    if values.schema.names != rows.schema.names or values.schema.types != rows.schema.types:
        return None
    kept = without_keys(rows, values, state.table.key)
    added = values.filter(pc.greater(changes.column(WEIGHT), 0)).cast(rows.schema)
    found = pa.concat_tables([kept, added])
    return found if found.column(0).num_chunks <= _MOST_CHUNKS else found.combine_chunks()


def _read(state: InputState) -> pa.Table | None:
    rows = replace(state, columns=state.with_key).now()
    return held_rows(rows, [state.table.table], MOST_ROWS)
