"""The images of an event: parsed rows → decoded rows → the columns of the target schema, as Spark expressions."""

from collections.abc import Callable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.decode.event_frame import WriterSchema
from replicator.decode.values import decoded, is_given, may_be_unreadable, spark_type, transformed
from replicator.model.column_rules import stored_type
from replicator.model.table import Column, TableSchema
from replicator.model.types import MISREAD_TEXTS, Encoding


def decoded_row(row: SparkColumn, columns: Sequence[Column]) -> SparkColumn:
    """Decode a parsed row and apply column transforms; columns have their names in the event."""
    return _row_of(row, columns, decoded)


def decoded_after(
    row: SparkColumn, writer_schema: WriterSchema, op: SparkColumn, source: SparkColumn
) -> SparkColumn:
    """Decode a parsed after-image as `decoded_row` does, also if the connector read it for a snapshot.

    In a snapshot, Debezium 3.6 writes BIT columns of the key in the other byte order: `JdbcValueConverters.convertBits`
    reverses the bytes in place, once for the key and once for the row. An incremental snapshot makes the key once more.
    Text that is misread from the binlog is right in any snapshot.
    """
    is_read = op == "r"
    is_whole = is_read & F.coalesce(source.getField("snapshot") != "incremental", F.lit(True))

    def value_of(value: SparkColumn, column: Column) -> SparkColumn:
        found = decoded(value, column)
        if column.encoding in MISREAD_TEXTS:
            return F.when(is_read, value).otherwise(found)
        if column.encoding is Encoding.BASE64_BITS and column.name in writer_schema.event_key:
            return F.when(is_whole, value).otherwise(found)
        return found

    return _row_of(row, writer_schema.schema.columns, value_of)


def _row_of(
    row: SparkColumn, columns: Sequence[Column], value_of: Callable[[SparkColumn, Column], SparkColumn]
) -> SparkColumn:
    fields = []
    for c in columns:
        value = transformed(value_of(row.getField(c.written), c), c.type, c.transform)
        fields.append(value.cast(spark_type(stored_type(c))).alias(c.written))
    return F.when(row.isNotNull(), F.struct(*fields))


def before_image(
    row: SparkColumn, writer_schema: WriterSchema, target: TableSchema, for_changelog: bool
) -> SparkColumn:
    """Map a before-image made by `decoded_row` to the target's columns."""
    if for_changelog:
        return after_image(row, writer_schema, target)
    return _mapped_row(row, writer_schema.schema.key_columns, target.key_columns)


def after_image(row: SparkColumn, writer_schema: WriterSchema, target: TableSchema) -> SparkColumn:
    """Map an after-image made by `decoded_row` to the target's columns."""
    return _mapped_row(row, writer_schema.schema.columns, target.columns)


def _mapped_row(row: SparkColumn, columns: Sequence[Column], target: Sequence[Column]) -> SparkColumn:
    """Map a row to the target's columns; columns that the event lacks are filled as the source fills them."""
    if [(c.written, stored_type(c)) for c in columns] == [(c.name, c.type) for c in target]:
        return row
    known = {c.name: c for c in columns}
    fields = []
    for wanted in target:
        own = known.get(wanted.name)
        if own is None:
            # Spark considers a constant never null, which would not fit a row that is null as a whole.
            value = F.when(row.isNotNull(), F.lit(wanted.fill)).cast(spark_type(wanted.type))
        else:
            # A value written before a type change may arrive late and be invalid for the new type.
            given = row.getField(own.written)
            loose = not wanted.type.holds(stored_type(own))
            value = (given.try_cast if loose else given.cast)(spark_type(wanted.type))
        fields.append(value.alias(wanted.name))
    return F.when(row.isNotNull(), F.struct(*fields))


def present_values(
    before: SparkColumn, after: SparkColumn, schema: TableSchema, for_changelog: bool
) -> SparkColumn:
    """Count the values in parsed rows that are present and may be unreadable."""
    checked = [
        (row.getField(c.written), c) for row, c in _possibly_unreadable(before, after, schema, for_changelog)
    ]
    return _count([F.coalesce(is_given(value, c), F.lit(False)) for value, c in checked])


def readable_values(schema: TableSchema, for_changelog: bool) -> SparkColumn:
    """Count the values in images of those that may be unreadable; it equals `present_values` if all were readable."""
    values = _possibly_unreadable(F.col("before"), F.col("after"), schema, for_changelog)
    return _count([row.getField(c.name).isNotNull() for row, c in values])


def _possibly_unreadable(
    before: SparkColumn, after: SparkColumn, schema: TableSchema, for_changelog: bool
) -> list[tuple[SparkColumn, Column]]:
    columns = [(before, c) for c in (schema.columns if for_changelog else schema.key_columns)]
    columns += [(after, c) for c in schema.columns]
    return [(row, c) for row, c in columns if may_be_unreadable(c)]


def _count(conditions: Sequence[SparkColumn]) -> SparkColumn:
    total = F.lit(0)
    for condition in conditions:
        total += condition.cast("int")
    return total
