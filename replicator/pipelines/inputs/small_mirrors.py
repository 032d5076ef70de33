"""The rows of small mirrors at the boundary of a refresh, which the driver holds.

A join reads the rows of one mirror for the changes of another. Spark would scan the mirror each time, and undo its
changes from after the boundary. The changes that a refresh takes bring held rows from one boundary to the next.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from replicator.pipelines.held import held_rows, most_held, without_keys
from replicator.pipelines.inputs.progress import InputProgress
from replicator.pipelines.inputs.states import InputState
from replicator.pipelines.inputs.tables import InputKind
from replicator.pipelines.query.signed import WEIGHT

MOST_ROWS: Final = 1_000_000
_MOST_BYTES: Final = 256_000_000
"""Of all mirrors that are held; those that were not used for the longest time are forgotten first."""


@dataclass(slots=True)
class SmallMirrors:
    """The rows of small mirrors: of each, and of the columns that a pipeline names, those at one boundary."""

    _held: dict[tuple[str, tuple[str, ...]], tuple[InputProgress, pa.Table]] = field(default_factory=dict)

    def rows(self, state: InputState) -> pa.Table | None:
        """Return what `InputState.now` does; None if the driver does not hold it.

        The rows are read if they do not follow from those that are held.
        """
        name = state.table.table.uuid, state.columns
        known = self._held.pop(name, None)
        if not _is_small(state):
            return None
        rows = None if known is None else _brought(*known, state)
        if rows is None and (rows := _read(state)) is None:
            return None
        self._held[name] = state.progress, rows
        while sum(held.nbytes for _, held in self._held.values()) > _MOST_BYTES:
            self._held.pop(next(iter(self._held)))
        return rows.select(list(state.columns))


def _is_small(state: InputState) -> bool:
    table = state.table
    is_mirror = table.kind is InputKind.MIRROR and table.changelog is not None and bool(table.key)
    return is_mirror and table.table.total_rows <= min(MOST_ROWS, most_held(table.table.row_bytes))


def _brought(progress: InputProgress, rows: pa.Table, state: InputState) -> pa.Table | None:
    """Return the rows of a mirror at the boundary of `state`; None if they do not follow from `rows` at `progress`."""
    if progress == state.progress:
        return rows
    if progress != state.since or (changes := state.net) is None:
        return None
    values = changes.drop_columns([WEIGHT])
    if values.schema.names != rows.schema.names or values.schema.types != rows.schema.types:
        return None
    kept = without_keys(rows, values, state.table.key)
    added = values.filter(pc.greater(changes.column(WEIGHT), 0)).cast(rows.schema)
    return pa.concat_tables([kept, added]).combine_chunks()


def _read(state: InputState) -> pa.Table | None:
    rows = replace(state, columns=state.with_key).now()
    # Of others, changes that cancel each other are not left out, see `net_rows`: a key has more than its last one.
    if any(
        pa.types.is_floating(kind) or pa.types.is_nested(kind) for kind in to_arrow_schema(rows.schema).types
    ):
        return None
    return held_rows(rows, [state.table.table], MOST_ROWS)
