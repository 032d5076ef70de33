"""Name the partitions of a table's files: a delete file applies only to data files of its own partition and spec."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from replicator.lake.catalog import LakeTable


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
    found: dict[str, Partition] = {}
    tasks = table.java.newScan().useSnapshot(snapshot_id).planFiles()
    try:
        iterator = tasks.iterator()
        while iterator.hasNext():
            task = iterator.next()
            found[str(task.file().location())] = _partition(table, task.spec(), task.file().partition())
    finally:
        tasks.close()
    return found


def partition_label(spec_id: int, values: Mapping[str, Any]) -> str:
    """Return the label of a partition, whose `values` are those of Iceberg's JSON, by field id and without nulls.

    Iceberg's path of a partition would not do: it is the same for null and for the text "null".
    """
    return f"{spec_id}/{json.dumps(values)}"


def _partition(table: LakeTable, spec: Any, values: Any) -> Partition:
    text = table.classes.single_values.toJson(spec.partitionType(), values)
    return Partition(spec, values, partition_label(spec.specId(), json.loads(text)))
