"""Finds values of events from which the source's own values cannot be told.

Of some character sets, Java knows characters that MySQL has not, or not all, and the connector decodes text with Java:
rows with such text are read again. A zero date in a key arrives as 1970-01-01: only the source can tell the two rows.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.batch.events.executors import DriverEvents
from replicator.batch.values import Misread, TableBatch
from replicator.errors import UnknownValues
from replicator.model.reread import KeySpan, Narrowed
from replicator.model.table import Column
from replicator.model.types import LOSSY_TEXTS, UNKNOWN_CHARACTER
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.batch")
MISREAD: Final = "events have characters that the connector cannot decode"
_MOST_KEYS: Final = 10_000
"""Of more rows in a batch, the whole table is read again."""
_DAYS: Final = frozenset({"date", "timestamp"})
"""Lake types of DATE and DATETIME. No TIMESTAMP is 1970-01-01 00:00, except a zero date."""
_Place = tuple[str, str]
"""Image and column."""


def find_misread(batch: TableBatch) -> Misread | None:
    """Return the rows with texts of which the connector did not know a character; None if there are none.

    Raises:
        UnknownValues: there are some, and tables are read again on command only.
    """
    if not batch.has_mirror:
        return None
    schema, config = batch.schema.source, batch.context.config
    texts = [c.name for c in schema.columns if c.encoding in LOSSY_TEXTS and c.transform is None]
    places = [("after", name) for name in texts]
    places += [("before", name) for name in texts if name in schema.key]
    rows = _rows(batch, places, _is_unknown, _has_unknown)
    if not rows.num_rows:
        return None
    table = batch.task.table
    if not config.can_read_source:
        _LOG.warning("text differs from the source", table=str(table), reason=MISREAD)
        return None
    if config.heal.mode != "auto":
        raise UnknownValues(f"{table}: {MISREAD}", f"read the table again: replicator heal {table}")
    return Misread(_part(rows, schema.key_columns))


def refuse_unclear_keys(batch: TableBatch) -> None:
    """Check that no key has a date that may be a zero date.

    Raises:
        UnknownValues: one has.
    """
    names = [c.name for c in batch.schema.source.key_columns if c.type.name in _DAYS]
    places = [(image, name) for name in names for image in ("before", "after")]
    if _rows(batch, places, _is_epoch, _has_epoch).num_rows:
        table = batch.task.table
        raise UnknownValues(
            f"a key of {table} has 1970-01-01 in {', '.join(names)}: events have that for zero dates too",
            f"read the table again: replicator heal {table}",
        )


def _rows(batch: TableBatch, places: Sequence[_Place], in_spark: Any, in_arrow: Any) -> pa.Table:
    """Return the images of the events for which one of `places` has a wanted value; of very many, not all."""
    events, images = batch.events, ["before", "after"]
    if not places or not batch.stats.changes:
        return pa.table({image: pa.array([], pa.struct([])) for image in images})
    if not isinstance(events, DriverEvents):
        wanted = reduce(or_, (in_spark(F.col(image).getField(name)) for image, name in places))
        return events.frame.where(wanted).select(*images).limit(_MOST_KEYS + 1).toArrow()
    rows = events.arrow().select(images)
    found = [
        pc.fill_null(in_arrow(pc.struct_field(rows.column(image), name)), False) for image, name in places
    ]
    return rows.filter(reduce(pc.or_, found))


def _is_unknown(text: SparkColumn) -> SparkColumn:
    return text.contains(UNKNOWN_CHARACTER)


def _has_unknown(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.match_substring(texts, UNKNOWN_CHARACTER)


def _is_epoch(moment: SparkColumn) -> SparkColumn:
    return moment.cast("timestamp_ntz") == F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")


def _has_epoch(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.equal(moments.cast(pa.timestamp("us")).cast(pa.int64()), 0)


def _part(rows: pa.Table, key: Sequence[Column]) -> Narrowed | None:
    """Return the part of a table with the keys of some rows; None if it can only be read as a whole."""
    if not key or key[0].type.name not in ("int", "long") or rows.num_rows > _MOST_KEYS:
        return None
    images = [pc.struct_field(rows.column(image), key[0].name).to_pylist() for image in ("before", "after")]
    values = {value for image in images for value in image if value is not None}
    return Narrowed.to(key[0].source_name.name, [KeySpan(value, value, 1) for value in values])
