"""Count the rows of an Iceberg table without reading them: records of live data files minus deletes that apply to them.

Snapshot summaries count every delete file that is still listed. A commit that replaces data files, such as one that
fills an added column, leaves the delete files of the old ones listed until a later commit removes them. In a table that
was upgraded to format version 3, a deletion vector repeats the deletes of earlier delete files, which stay listed too.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.snapshots import Snapshot

from replicator.lake.catalog.metadata import has_deletion_vectors

_NEVER: Final = 1 << 62
"""More than any sequence number."""
_DATA_FILE: Final = "referenced-data-file"
"""The property of a deletion vector that names its data file; Puffin's spec, "deletion-vector-v1 blob type"."""
_PATH_ID: Final = 2147483546
"""Field id of `file_path` in position-delete files; Iceberg's table spec, "Reserved Field IDs"."""


def row_count(table: Table) -> int | None:
    """Return the number of rows of the table's current snapshot; None if it has equality deletes: they count keys.

    It is in the summary, unless a commit has removed data files since the table was created, or the table has deletion
    vectors; then the manifests are read.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return 0
    if total(snapshot, "total-equality-deletes"):
        return None
    records, deletes = total(snapshot, "total-records"), total(snapshot, "total-position-deletes")
    if not deletes:
        return records
    removed_at = _newest_removal(table, snapshot)
    if removed_at is None and not has_deletion_vectors(table.metadata.format_version):
        return records - deletes
    return records - _live_deletes(table.io, snapshot, removed_at or 0)


def equality_delete_files(table: Table) -> int:
    """Return the number of equality-delete files of the current snapshot, which readers must apply.

    Summaries count their keys only; if there are keys, the manifests of delete files are read.
    """
    snapshot = table.current_snapshot()
    if snapshot is None or not total(snapshot, "total-equality-deletes"):
        return 0
    return sum(
        entry.data_file.content == DataFileContent.EQUALITY_DELETES
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    )


def total(snapshot: Snapshot | None, key: str) -> int:
    """Return a total of a snapshot's summary; 0 if it is missing."""
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get(key) or 0)


def _newest_removal(table: Table, snapshot: Snapshot) -> int | None:
    """Return the sequence number of the newest commit that may have removed data files; None if there is none."""
    current: Snapshot | None = snapshot
    while current is not None:
        if total(current, "deleted-data-files"):
            return current.sequence_number or 0
        parent = current.parent_snapshot_id
        if parent is None:
            return None
        before = table.snapshot_by_id(parent)
        if before is None:
            # The parent has expired: whether it removed files is unknown.
            return current.sequence_number or 0
        current = before
    return None


def _live_deletes(io: FileIO, snapshot: Snapshot, removed_at: int) -> int:
    """Count the deleted rows of the snapshot's data files. Position-delete files never name a row twice."""
    live: dict[str, int] = {}
    deletes: list[ManifestEntry] = []
    for content, entry in _entries(io, snapshot):
        if content == ManifestContent.DATA:
            live[entry.data_file.file_path] = entry.sequence_number or 0
        elif entry.data_file.content == DataFileContent.POSITION_DELETES:
            deletes.append(entry)
    vectors = [entry for entry in deletes if entry.data_file.file_format == FileFormat.PUFFIN]
    files = [entry for entry in deletes if entry.data_file.file_format != FileFormat.PUFFIN]
    if vectors and files:
        # Delete files do not apply to a data file with a deletion vector, which contains their deletes.
        with_vectors = _files_with_vectors(io, vectors)
        live = {path: sequence for path, sequence in live.items() if path not in with_vectors}
        removed_at = _NEVER
    oldest = min(live.values(), default=0)
    # The commit that removes a data file also removes its deletion vector.
    return sum(entry.data_file.record_count for entry in vectors) + sum(
        _live_in(io, entry, live, removed_at)
        for entry in files
        # A delete file applies to data files that are not newer than it is.
        if (entry.sequence_number or 0) >= oldest and live
    )


def _files_with_vectors(io: FileIO, vectors: Sequence[ManifestEntry]) -> set[str]:
    """Return the paths of the data files that have deletion vectors; PyIceberg does not read them from manifests.

    A Puffin file may also have vectors that were replaced later: their data files have a newer one, or are gone.
    """
    found: set[str] = set()
    for path in {entry.data_file.file_path for entry in vectors}:
        with io.new_input(path).open() as stream:
            blobs = PuffinFile(stream.read()).footer.blobs
        found.update(blob.properties[_DATA_FILE] for blob in blobs)
    return found


def _entries(io: FileIO, snapshot: Snapshot) -> Iterator[tuple[ManifestContent, ManifestEntry]]:
    for manifest in snapshot.manifests(io):
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            yield manifest.content, entry


def _live_in(io: FileIO, entry: ManifestEntry, live: dict[str, int], removed_at: int) -> int:
    """Count a delete file's entries that refer to live data files."""
    file = entry.data_file
    if (entry.sequence_number or 0) > removed_at:
        return file.record_count
    lower = (file.lower_bounds or {}).get(_PATH_ID)
    upper = (file.upper_bounds or {}).get(_PATH_ID)
    if lower is not None and lower == upper:
        # Bounds of paths are never truncated.
        return file.record_count if bytes(lower).decode() in live else 0
    with io.new_input(file.file_path).open() as stream:
        paths = pq.read_table(stream, columns=["file_path"]).column("file_path")
    counts = pc.value_counts(paths.cast("string")).to_pylist()
    return sum(int(found["counts"]) for found in counts if found["values"] in live)
