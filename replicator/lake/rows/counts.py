"""Count the rows of an Iceberg table without reading them: records of live data files minus deletes that apply to them.

Snapshot summaries count every delete file that is still listed. A commit that replaces data files, such as one that
fills an added column, leaves the delete files of the old ones listed until a later commit removes them. In a table that
was upgraded to format version 3, a deletion vector repeats the deletes of earlier delete files, which stay listed too.
"""

from collections.abc import Iterator
from typing import Final

from replicator.lake.catalog.metadata import has_deletion_vectors
from replicator.lake.reading.files import Files
from replicator.lake.reading.manifests import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    FileEntry,
    read_entries,
    read_manifests,
)
from replicator.lake.reading.table_metadata import Snapshot, TableMetadata

_NEVER: Final = 1 << 62
"""More than any sequence number."""


def row_count(table: TableMetadata) -> int | None:
    """Return the number of rows of the table's current snapshot; None if it has equality deletes: they count keys.

    It is in the summary, unless a commit has removed data files since the table was created, or the table has deletion
    vectors; then the manifests are read.
    """
    snapshot = table.snapshot
    if snapshot is None:
        return 0
    if snapshot.total("total-equality-deletes"):
        return None
    records, deletes = snapshot.total("total-records"), snapshot.total("total-position-deletes")
    if not deletes:
        return records
    removed_at = _newest_removal(table, snapshot)
    if removed_at is None and not has_deletion_vectors(table.format_version):
        return records - deletes
    return records - _live_deletes(table.files, snapshot, removed_at or 0)


def equality_delete_files(table: TableMetadata) -> int:
    """Return the number of equality-delete files of the current snapshot, which readers must apply.

    Summaries count their keys only; if there are keys, the manifests of delete files are read.
    """
    snapshot = table.snapshot
    if snapshot is None or not snapshot.total("total-equality-deletes"):
        return 0
    return sum(
        entry.content == EQUALITY_DELETES for entry in _entries(table.files, snapshot, only_deletes=True)
    )


def _newest_removal(table: TableMetadata, snapshot: Snapshot) -> int | None:
    """Return the sequence number of the newest commit that may have removed data files; None if there is none."""
    current = snapshot
    while not current.total("deleted-data-files"):
        if current.parent is None:
            return None
        before = table.snapshot_by_id(current.parent)
        if before is None:
            # The parent has expired: whether it removed files is unknown.
            break
        current = before
    return current.sequence


def _live_deletes(files: Files, snapshot: Snapshot, removed_at: int) -> int:
    """Count the deleted rows of the snapshot's data files. Position-delete files never name a row twice."""
    live: dict[str, int] = {}
    deletes: list[FileEntry] = []
    for entry in _entries(files, snapshot):
        if entry.content == POSITION_DELETES:
            deletes.append(entry)
        elif entry.content != EQUALITY_DELETES:
            live[entry.path] = entry.sequence
    vectors = [entry for entry in deletes if entry.is_vector]
    others = [entry for entry in deletes if not entry.is_vector]
    if vectors and others:
        # Delete files do not apply to a data file with a deletion vector, which contains their deletes.
        with_vectors = {entry.data_file for entry in vectors}
        live = {path: sequence for path, sequence in live.items() if path not in with_vectors}
        removed_at = _NEVER
    oldest = min(live.values(), default=0)
    # The commit that removes a data file also removes its deletion vector.
    return sum(entry.rows for entry in vectors) + sum(
        _live_in(files, entry, live, removed_at)
        for entry in others
        # A delete file applies to data files that are not newer than it is.
        if entry.sequence >= oldest and live
    )


def _entries(files: Files, snapshot: Snapshot, *, only_deletes: bool = False) -> Iterator[FileEntry]:
    for manifest in read_manifests(files, snapshot.manifest_list):
        if manifest.has_deletes or not only_deletes:
            yield from read_entries(files, manifest)


def _live_in(files: Files, entry: FileEntry, live: dict[str, int], removed_at: int) -> int:
    """Count a delete file's entries that refer to live data files."""
    if entry.sequence > removed_at:
        return entry.rows
    if entry.data_file is not None:
        return entry.rows if entry.data_file in live else 0
    # Few tables have such files, and PyArrow takes long to import.
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    with files.open(entry.path) as stream:
        paths = pq.read_table(stream, columns=["file_path"]).column("file_path")
    counts = pc.value_counts(paths.cast("string")).to_pylist()
    return sum(int(found["counts"]) for found in counts if found["values"] in live)
