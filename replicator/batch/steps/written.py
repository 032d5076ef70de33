"""Decodes a large batch in Spark's workers, which write its data files at once; see `worker_files`."""

import uuid
from collections.abc import Iterable
from functools import partial

import pyarrow as pa

from replicator.batch.context import MirrorContext
from replicator.batch.events.ahead import Forecast
from replicator.batch.events.executors import SPARK, MaterializedEvents, WrittenEvents, has_floating_key
from replicator.batch.events.worker_files import TaskKeys, WorkerFiles
from replicator.batch.events.worker_task import WorkerWriting, numbers_of
from replicator.batch.task import Segment
from replicator.batch.values import BatchSchema
from replicator.decode.decoder import Decoder
from replicator.decode.records import SparkRecords
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.driver_files import file_style
from replicator.lake.files.parquet import FileStyle
from replicator.lake.files.task_files import RESULT, UNWRITTEN, files_in
from replicator.lake.strategies.registry import SPLIT, STRATEGIES
from replicator.model.changelog import change_column
from replicator.model.commit_marker import OffsetRange
from replicator.model.roles import LakeRole


def worker_writing(segment: Segment, schema: BatchSchema, decoder: Decoder) -> WorkerWriting | None:
    """Return what workers write of a batch; None if Spark must, or if the tables must be changed first."""
    progress, options, names = segment.progress, segment.options, schema.decoded.names
    at, changelog, label = schema.version.at, progress.changelog, uuid.uuid4().hex
    if (
        segment.context.is_staging
        or STRATEGIES[options.strategy] is not SPLIT
        or not schema.decoded.key
        or has_floating_key(schema.decoded)
        or progress.mirror is None
        or progress.mirror_schema is None
        or progress.mirror_schema.at != at
        or progress.has_pending_rows
    ):
        return None
    mirror = _style(segment, LakeRole.MIRROR, names)
    if mirror is None or not options.changelog:
        return None if mirror is None else WorkerWriting(decoder, schema.decoded, mirror, None, 0, label)
    if changelog is None or progress.changelog_schema is None or progress.changelog_schema.at != at:
        return None
    style = _style(segment, LakeRole.CHANGELOG, [*names, change_column(names)])
    if style is None:
        return None
    return WorkerWriting(decoder, schema.decoded, mirror, style, changelog.sequence + 1, label)


def _style(segment: Segment, role: LakeRole, columns: Iterable[str]) -> FileStyle | None:
    """Return how workers write files of a lake table; None if they cannot, or if it has other columns."""
    context = segment.context
    table: LakeTable | None = context.lake.load(context.ledger.namespace(role), segment.table.name)
    style = None if table is None else file_style(table)
    return style if style is not None and set(style.schema.names) == set(columns) else None


def written_events(segment: Segment, writing: WorkerWriting) -> MaterializedEvents:
    """Decode and write the records of a segment, in one Spark job, which may have begun already.

    If a record is no ordinary change, all are decoded again, as a whole: only then they can be set apart as they are.
    """
    writing, found = _found(segment, writing)
    decoder, records = writing.decoder, segment.logged()
    rows = found.to_pylist()
    if any(row["kind"] == UNWRITTEN for row in rows):
        writing.remove_files()
        return SPARK.materialize(decoder.frame(records))
    parts = [row["content"] for row in rows if row["kind"] == "numbers"]
    numbers = pa.concat_tables([numbers_of(decoder.schema.empty_table()), *map(_unpacked, parts)])
    keys = [TaskKeys(_unpacked(row["content"]), row["path"]) for row in rows if row["kind"] == "keys"]
    mirror, changelog = files_in(rows, "mirror"), files_in(rows, "changelog")
    files = WorkerFiles(writing, mirror, changelog, keys) if keys else None
    return WrittenEvents(numbers, files, lambda: SPARK.materialize(decoder.frame(records)).frame)


def _found(segment: Segment, writing: WorkerWriting) -> tuple[WorkerWriting, pa.Table]:
    """Return what workers write of a segment, and their result; begin the task that is expected to follow.

    If this one has begun already, the next one begins before its end: workers that have no more to do here go on.
    """
    context, task = segment.context, segment.task
    begun = context.ahead.take(segment.table, Forecast(task.ranges, task.topic_id), writing)
    if begun is None:
        found = _run(context, task.ranges, writing)
        _begin_following(segment, writing)
        return writing, found
    _begin_following(segment, begun.writing)
    taken = begun.found()
    # If it failed, another run reports why.
    return (writing, _run(context, task.ranges, writing)) if taken is None else (begun.writing, taken)


def _begin_following(segment: Segment, writing: WorkerWriting) -> None:
    context, task = segment.context, segment.task
    if task.following:
        forecast = Forecast(task.following, task.topic_id)
        context.ahead.begin(segment.table, forecast, writing, partial(_run, context))


def _run(context: MirrorContext, ranges: tuple[OffsetRange, ...], writing: WorkerWriting) -> pa.Table:
    try:
        records = SparkRecords(context.spark, context.log, ranges)
        return records.run(writing, RESULT, prefixes=writing.decoder.decoding.prefixes).toArrow()
    except BaseException:
        writing.remove_files()
        raise


def _unpacked(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()
