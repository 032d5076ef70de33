"""Read the rows of a mirror at a state after which its changelog continues."""

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.table import Table

from replicator.consumer.cursor import Cursor, Within, offsets_of
from replicator.consumer.files import FileReader, FilesGone, planned_files, told_columns
from replicator.consumer.heads import ChangelogHead, restatement_of
from replicator.consumer.plan import start_after_image
from replicator.errors import CursorExpired, Unsettled
from replicator.lake.reading.table_metadata import newest_marker
from replicator.schema.evolution.changes import PENDING_CLEAR_KEY, PENDING_FILLS_KEY, SCHEMA_KEY, SchemaState

_RUN = "it is settled after the next batch of `replicator run`"
_HEAL = "if it stays so, read the table again: replicator heal"


def start_with_image(source: str, mirror: Table, head: ChangelogHead) -> Cursor:
    """Return the cursor of a consumer that gets the rows of a mirror and then the changes after them.

    `head` must have been loaded after the mirror.

    Raises:
        Unsettled: mirror and changelog do not agree at the moment.
    """
    marker = newest_marker(mirror)
    if marker is None:
        raise Unsettled(f"the mirror of {source} has no rows yet", _RUN)
    if mirror.properties.keys() & {PENDING_FILLS_KEY, PENDING_CLEAR_KEY}:
        raise Unsettled(f"the mirror of {source} is being changed to another schema", _RUN)
    if marker.snapshot is not None and marker.snapshot.replaces_rows:
        raise Unsettled(
            f"the connector is taking a new snapshot of {source}",
            "it is settled when the snapshot is complete",
        )
    known, restated = restatement_of(mirror), head.restated
    if (None if known is None else known.id) != (None if restated is None else restated.id):
        raise Unsettled(f"the mirror of {source} lacks changes that its changelog has", f"{_RUN}; {_HEAL}")
    cursor = start_after_image(source, offsets_of(marker), marker.topic_ids, head)
    if cursor is None:
        raise Unsettled(f"the mirror and the changelog of {source} are at different offsets", _RUN)
    current = mirror.current_snapshot()
    image = None if current is None else Within(int(current.snapshot_id), 0)
    return Cursor(source, head.uuid, cursor.at, scan=cursor.scan, image=image, steps_at=_steps_at(mirror))


def refuse_replaced_columns(mirror: Table, image: Within, steps_at: int) -> None:
    """Refuse to read the rest of an image whose columns were replaced since the first rows of it were read.

    A column that was converted to another type has a new id, under which older files have no values.

    Args:
        mirror: the table as it is now.
        image: the image.
        steps_at: `Cursor.steps_at` of a cursor within the image: the schema version of the mirror when it began.

    Raises:
        CursorExpired: that is so.
    """
    snapshot, current = mirror.metadata.snapshot_by_id(image.snapshot_id), mirror.current_snapshot()
    began = (
        None if snapshot is None or snapshot.schema_id is None else mirror.schemas().get(snapshot.schema_id)
    )
    if began is None or current is None:
        return
    if current.snapshot_id == image.snapshot_id and _steps_at(mirror) == steps_at:
        # A column that is gone now was gone before, because it is not that of an older schema version.
        return
    gone = {f.field_id: f.name for f in began.fields}
    for present in mirror.schema().fields:
        gone.pop(present.field_id, None)
    if gone:
        raise CursorExpired(
            f"columns of {'.'.join(mirror.name())} were converted or dropped while its rows were read: "
            + ", ".join(gone.values()),
            "start again, with the rows of the mirror",
        )


def _steps_at(mirror: Table) -> int:
    """Return the binlog key of the newest schema step that a mirror has followed."""
    text = mirror.properties.get(SCHEMA_KEY)
    return -1 if text is None else SchemaState.from_json(text).at


def image_rows(mirror: Table, snapshot_id: int, skip: int, most: int) -> Iterator[pa.Table]:
    """Yield the rows of a mirror in one snapshot from number `skip` on, at most `most` at once.

    Their order is always the same.

    Raises:
        CursorExpired: the snapshot was deleted meanwhile.
        UnsupportedChange: the mirror has equality deletes, which PyIceberg cannot read.
    """
    reader = FileReader.of(mirror, told_columns(mirror))
    try:
        for task in planned_files(mirror, snapshot_id, ", or read the rows with Spark"):
            if not task.delete_files and task.file.record_count <= skip:
                skip -= task.file.record_count
                continue
            for part in reader.batches(task.file, sorted(task.delete_files, key=lambda f: f.file_path)):
                rows, skip = part.slice(skip), max(0, skip - part.num_rows)
                for start in range(0, rows.num_rows, most):
                    yield rows.slice(start, most)
    except FilesGone as error:
        raise CursorExpired(
            f"the snapshot of {'.'.join(mirror.name())} was deleted while its rows were read",
            "start again, with the rows of the mirror; keep snapshots for longer ([maintenance] snapshot_age)",
        ) from error
