"""The images of events: parsed rows → decoded rows → the columns of the target schema."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from replicator.arrow_types import arrow_type
from replicator.decode.decoding import WriterSchema
from replicator.decode.parsed import ParsedEvents, ParsedRow
from replicator.decode.transforms import transformed
from replicator.decode.values import cast_values, decoded
from replicator.model.column_rules import stored_type
from replicator.model.table import Column, TableSchema
from replicator.model.types import MISREAD_TEXTS, TIMESTAMPTZ, Encoding, LakeType

_Decoder = Callable[[pa.Array, Column], pa.Array]


@dataclass(frozen=True, slots=True)
class Images:
    """The images of some events in the target's columns.

    Attributes:
        before, after: structs, null where the event has no image.
        unreadable: whether a value of either is invalid for its column.
    """

    before: pa.StructArray
    after: pa.StructArray
    unreadable: pa.BooleanArray


def images(
    events: ParsedEvents, writer_schema: WriterSchema, target: TableSchema, *, for_changelog: bool
) -> Images:
    """Decode the images of events of one writer schema.

    In a snapshot, Debezium 3.6 writes BIT columns of the key in the other byte order: `JdbcValueConverters.convertBits`
    reverses the bytes in place, once for the key and once for the row. An incremental snapshot makes the key once more.
    Text that is misread from the binlog is right in any snapshot.
    """
    before_columns = writer_schema.before_columns(for_changelog=for_changelog)
    wanted = target.columns if for_changelog else target.key_columns
    is_read = pc.fill_null(pc.equal(events.op, "r"), False)
    is_chunk = pc.fill_null(pc.equal(events.source["snapshot"], "incremental"), False)
    as_sent = {
        **dict.fromkeys(MISREAD_TEXTS, is_read),
        Encoding.BASE64_BITS: pc.and_(is_read, pc.invert(is_chunk)),
    }

    def value_of(values: pa.Array, column: Column) -> pa.Array:
        found = decoded(values, column)
        if column.encoding is Encoding.BASE64_BITS and column.name not in writer_schema.event_key:
            return found
        sent = as_sent.get(column.encoding)
        return found if sent is None else pc.if_else(sent, values, found)

    before, lost_before = _image(events.before, before_columns, wanted, decoded)
    after, lost_after = _image(events.after, writer_schema.schema.columns, target.columns, value_of)
    return Images(before, after, pc.or_(lost_before, lost_after))


def _image(
    row: ParsedRow, columns: Sequence[Column], target: Sequence[Column], value_of: _Decoder
) -> tuple[pa.StructArray, pa.BooleanArray]:
    """Return an image in the target's columns, and whether it has a value that is invalid for its column."""
    unreadable = pa.repeat(pa.scalar(False), len(row.present))
    known: dict[str, tuple[Column, pa.Array]] = {}
    for column in columns:
        given = row.values[column.written]
        found = value_of(given, column)
        unreadable = pc.or_(unreadable, pc.and_(pc.is_valid(given), pc.is_null(found)))
        known[column.name] = column, transformed(found, column.type, column.transform)
    values = []
    for wanted in target:
        if wanted.name not in known:
            values.append(filled(wanted, len(row.present)))
            continue
        column, found = known[wanted.name]
        fitting = _as_type(found, stored_type(column), wanted.type)
        unreadable = pc.or_(unreadable, pc.and_(pc.is_valid(found), pc.is_null(fitting)))
        values.append(fitting)
    fields = [pa.field(c.name, arrow_type(c.type)) for c in target]
    mask = pc.invert(row.present)
    return pa.StructArray.from_arrays(values, fields=fields, mask=mask), pc.and_(unreadable, row.present)


def filled(column: Column, count: int) -> pa.Array:
    """Return the value that the source writes to existing rows when it adds a column, `count` times."""
    kind = arrow_type(column.type)
    if column.fill is None:
        return pa.nulls(count, kind)
    return pa.repeat(_of_text(column.fill, column.type), count)


def _of_text(text: str, lake_type: LakeType) -> pa.Scalar:
    kind = arrow_type(lake_type)
    if lake_type == TIMESTAMPTZ:
        return pa.scalar(text).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(text.encode() if lake_type.name == "binary" else text).cast(kind)


def _as_type(values: pa.Array, own: LakeType, wanted: LakeType) -> pa.Array:
    """Return values of an older type of a column in its type; null for those that it does not hold."""
    return values if own == wanted else cast_values(values, arrow_type(wanted))
