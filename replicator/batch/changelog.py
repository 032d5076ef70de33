"""The changelog's part of a batch: every change once, appended."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.apply.lake import LakeTable
from replicator.apply.publish import Staged, publish
from replicator.apply.spare import recorded_changes
from replicator.apply.stage import aligned, stage_data
from replicator.batch.lake_tables import changelog_table, is_beyond
from replicator.batch.understand import Shape
from replicator.batch.work import Engine, Work, already_in, marker_of
from replicator.config import TableOptions
from replicator.failpoints import reach
from replicator.held import Held
from replicator.model.census import Census
from replicator.model.change import change_column
from replicator.model.table import TableSchema
from replicator.normalize import from_offset, normalize


def append_changelog(
    engine: Engine,
    work: Work,
    options: TableOptions,
    shape: Shape,
    events: Held,
    census: Census,
    *,
    alone: bool,
) -> None:
    """Append the changes of `work` by one commit; those that are there already are left out.

    `alone` is noted in the marker: the source's table gets no mirror.

    Raises:
        SchemaError: the table cannot go on; nothing was appended.
        FencedError, CommitConflict: as in `publish`.
    """
    base = engine.ledger.progress(work.table).changelog
    if is_beyond(engine.ledger.progress(work.table).changelog_schema, shape):
        return
    schema, table = shape.frame, changelog_table(engine, work.table, options, shape)
    if work.again:
        fresh = _unrecorded(engine, work, table, schema, events.frame)
    else:
        fresh = from_offset(events.frame, already_in(base, work))
    files = []
    if census.changes:
        rows = normalize(fresh, schema)
        files = stage_data(
            engine.lake, table, aligned(rows, table.columns(), struct=change_column(schema.names))
        )
    reach("after-changelog-files")
    marker = replace(marker_of(engine, work, base, census), alone=alone)
    publish(engine.lake, table, base, marker, Staged(files))
    engine.ledger.committed_changelog(work.table, marker)


def _unrecorded(
    engine: Engine, work: Work, changelog: LakeTable, schema: TableSchema, events: DataFrame
) -> DataFrame:
    """The events that the changelog has not; a replay that was broken off may have left them there."""
    ends = {r.partition: r.end for r in work.ranges}
    there = recorded_changes(engine.lake, changelog, change_column(schema.names), (), ends)
    return events.join(
        F.broadcast(there.select("partition", "offset", "hi")), ["partition", "offset", "hi"], "left_anti"
    )
