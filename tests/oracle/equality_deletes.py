"""Read a table with equality deletes as Iceberg's spec says, because PyIceberg refuses them."""

from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFileContent, ManifestEntry
from pyiceberg.table import FileScanTask, Table


def has_equality_deletes(table: Table) -> bool:
    snapshot = table.current_snapshot()
    return (
        snapshot is not None
        and snapshot.summary is not None
        and int(snapshot.summary.additional_properties.get("total-equality-deletes") or 0) > 0
    )


def entries(table: Table, content: DataFileContent) -> list[ManifestEntry]:
    """Return the entries of the live files of one kind."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [
        entry
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.content == content
    ]


def rows_without_deleted(table: Table) -> Iterator[dict[str, Any]]:
    """Yield the rows that no delete file deletes; equality-delete files must belong to no partition."""
    positions = entries(table, DataFileContent.POSITION_DELETES)
    keys = [
        (_sequence(entry), *_keys(table, entry)) for entry in entries(table, DataFileContent.EQUALITY_DELETES)
    ]
    names = {field.field_id: field.name for field in table.schema().fields}
    for entry in entries(table, DataFileContent.DATA):
        applied = {found.data_file for found in positions if _sequence(found) >= _sequence(entry)}
        task = FileScanTask(entry.data_file, delete_files=applied)
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        later = [(ids, deleted) for sequence, ids, deleted in keys if sequence > _sequence(entry)]
        for row in scan.to_table([task]).to_pylist():
            if not any(tuple(row[names[i]] for i in ids) in deleted for ids, deleted in later):
                yield row


def _keys(table: Table, entry: ManifestEntry) -> tuple[list[int], set[tuple[Any, ...]]]:
    file = entry.data_file
    assert file.equality_ids
    assert not file.partition
    with table.io.new_input(file.file_path).open() as stream:
        found = pq.read_table(stream)
    columns = {
        int(f.metadata[b"PARQUET:field_id"]): c.to_pylist()
        for f, c in zip(found.schema, found.columns, strict=True)
    }
    return list(file.equality_ids), set(zip(*(columns[i] for i in file.equality_ids), strict=True))


def _sequence(entry: ManifestEntry) -> int:
    assert entry.sequence_number is not None
    return entry.sequence_number
