"""Partitions of files and rows: a delete file applies only to data files of its own partition and spec.

Iceberg has a JSON form of single values for each of its types. So the distinct values of a column pass to Java in one
call, and the values of a transform return in another one, exact and without a call of Java for each row.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replicator.lake.catalog.java import each_of
from replicator.lake.catalog.tables import LakeTable, lake_errors
from replicator.lake.files.arrow_schemas import column_of
from replicator.lake.files.time_partitions import MOST_PARTITIONS


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a table: its spec and its values (Java objects), and a text that tells partitions apart."""

    spec: Any
    values: Any
    label: str


@dataclass(frozen=True, slots=True)
class DataFileRef:
    """A data file: its path, and its partition if the table is partitioned and the partition is known."""

    path: str
    partition: Partition | None = None


def label_of(partition: Partition | None) -> str:
    """Return the label of a partition; empty for None."""
    return "" if partition is None else partition.label


def data_file_ref(table: LakeTable, file: Any) -> DataFileRef:
    """Return the reference to a data file of `table`, given as Iceberg's DataFile object."""
    path = str(file.location())
    if not table.is_partitioned:
        return DataFileRef(path)
    return DataFileRef(path, _partition(table, table.java.specs().get(file.specId()), file.partition()))


def planned_partitions(table: LakeTable, snapshot_id: int) -> dict[str, Partition]:
    """Return data file path → its partition, of all data files of a snapshot."""
    return {
        str(task.file().location()): _partition(table, task.spec(), task.file().partition())
        for task in each_of(table.java.newScan().useSnapshot(snapshot_id).planFiles())
    }


def partition_label(spec_id: int, values: Mapping[str, Any]) -> str:
    """Return the label of a partition, whose `values` are those of Iceberg's JSON, by field id and without nulls.

    Iceberg's path of a partition would not do: it is the same for null and for the text "null".
    """
    return f"{spec_id}/{json.dumps(values)}"


def _partition(table: LakeTable, spec: Any, values: Any) -> Partition:
    text = table.classes.single_values.toJson(spec.partitionType(), values)
    return Partition(spec, values, partition_label(spec.specId(), json.loads(text)))


_MOST_TEXT: Final = 4_000_000
"""Values that together have more characters do not pass to Java: its JSON reader has limits."""
_TRANSFORM: Final = re.compile(r"(identity|bucket\[\d+\]|truncate\[\d+\]|year|month|day|hour)")
_VOID: Final = "void"

JsonValue = bool | int | str | None
"""A value in Iceberg's JSON form: its spec, "JSON single-value serialization"."""
_JSON_FORMS: Final[Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], JsonValue]]]] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes.hex),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (pa.types.is_date, lambda value: value.isoformat()),
    (pa.types.is_timestamp, lambda value: value.isoformat()),
)
"""Types by which the driver partitions rows. JSON has no NaN, so float and double are not among them."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of one partition, in their order; `partition` is None if no file of the table belongs to a partition."""

    partition: Partition | None
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class _FieldValues:
    """The values of one partition field: the distinct ones, and for each row the index of its value."""

    number: int
    distinct: Sequence[JsonValue]
    indexes: npt.NDArray[np.int64]


def split_by_partition(table: LakeTable, rows: pa.Table) -> list[PartitionRows] | None:
    """Group rows, at least one, which have the columns and types of `table`, by partition of its current spec.

    Return None if only Spark can write them: there are too many partitions, a transform is unknown, or the values of a
    column cannot pass to Java.
    """
    if not table.is_partitioned:
        return [PartitionRows(None, rows)]
    groups = _grouped(table, rows, MOST_PARTITIONS)
    if groups is None or len(groups) == 1:
        return None if groups is None else [PartitionRows(groups[0][0], rows)]
    return [PartitionRows(partition, rows.take(pa.array(group))) for partition, group in groups]


def partition_of_each(table: LakeTable, rows: pa.Table) -> list[Partition] | None:
    """Return the partition of each row by the table's current spec; None as `split_by_partition`, but of any number.

    Of the columns, `rows` must have those by which the table is partitioned.
    """
    groups = _grouped(table, rows, rows.num_rows)
    if groups is None:
        return None
    found = {int(row): partition for partition, group in groups for row in group}
    return [found[row] for row in range(rows.num_rows)]


def _grouped(
    table: LakeTable, rows: pa.Table, most: int
) -> list[tuple[Partition, npt.NDArray[np.int64]]] | None:
    """Return each partition with the indexes of its rows, in their order; None if there are more than `most`, too."""
    with lake_errors(f"the partitions of new rows of {table.namespace}.{table.name} cannot be computed"):
        spec = table.java.spec()
        layout, fields = table.partition_layout, []
        for i, field in enumerate(layout["fields"]):
            found = _field_values(table, spec.fields().get(i).transform(), field, rows)
            if found is None:
                return None
            fields.append(found)
        groups = _groups(fields, rows.num_rows)
        if len(groups) > most:
            return None
        values = [_values(fields, group) for group in groups]
        return list(zip(_partitions(table, spec, layout["spec-id"], values), groups, strict=True))


def _field_values(
    table: LakeTable, transform: Any, field: Mapping[str, Any], rows: pa.Table
) -> _FieldValues | None:
    """Compute the values of a partition field; None if only Spark can do it."""
    if field["transform"] == _VOID:
        # Its column may not exist any more.
        return _FieldValues(field["field-id"], [None], np.zeros(rows.num_rows, np.int64))
    column = column_of(rows, field["source-id"]) if "source-id" in field else None
    if column is None or not _TRANSFORM.fullmatch(field["transform"]):
        return None
    # Rows often have equal values, and the transforms of distinct ones suffice.
    encoded = column.combine_chunks().dictionary_encode("encode")
    text = _to_json(encoded.dictionary)
    if text is None:
        return None
    indexes = encoded.indices.to_numpy().astype(np.int64)
    numbers: dict[JsonValue, int] = {}
    results = _transformed(table, transform, field["source-id"], text)
    by_source = np.array([numbers.setdefault(value, len(numbers)) for value in results], np.int64)
    return _FieldValues(field["field-id"], list(numbers), by_source[indexes])


def _to_json(values: pa.Array) -> str | None:
    """Return values in Iceberg's JSON form; None if that is not exact for their type, or too long."""
    form = next((form for matches, form in _JSON_FORMS if matches(values.type)), None)
    if form is None:
        return None
    try:
        text = json.dumps([None if value is None else form(value) for value in values.to_pylist()])
    except (ValueError, OverflowError):
        # Python has no dates beyond the year 9999.
        return None
    return text if len(text) <= _MOST_TEXT else None


def _transformed(table: LakeTable, transform: Any, source_id: int, text: str) -> list[JsonValue]:
    """Apply a transform to values of its source column, all of them in Iceberg's JSON form."""
    parser, lists = table.classes.single_values, table.classes.types.ListType
    source = table.java.schema().findType(source_id)
    values = parser.fromJson(lists.ofOptional(1, source), text)
    results = values.stream().map(transform.bind(source)).toList()
    found: list[JsonValue] = json.loads(
        parser.toJson(lists.ofOptional(1, transform.getResultType(source)), results)
    )
    return found


def _groups(fields: Sequence[_FieldValues], rows: int) -> list[npt.NDArray[np.int64]]:
    """Return the indexes of the rows of each partition, in the order of the rows."""
    if not fields:
        return [np.arange(rows)]
    indexes = np.stack([field.indexes for field in fields], axis=1)
    _, group = np.unique(indexes, axis=0, return_inverse=True)
    group = group.reshape(-1)
    return np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])


def _values(fields: Sequence[_FieldValues], group: npt.NDArray[np.int64]) -> dict[str, JsonValue]:
    """Return the values of the partition of a group of rows, by field id and without nulls."""
    found = {str(field.number): field.distinct[field.indexes[group[0]]] for field in fields}
    return {number: value for number, value in found.items() if value is not None}


def _partitions(
    table: LakeTable, spec: Any, spec_id: int, values: Sequence[Mapping[str, JsonValue]]
) -> list[Partition]:
    classes = table.classes
    structs = classes.types.ListType.ofOptional(1, spec.partitionType())
    found = classes.single_values.fromJson(structs, json.dumps(values))
    return [Partition(spec, found.get(i), partition_label(spec_id, value)) for i, value in enumerate(values)]
