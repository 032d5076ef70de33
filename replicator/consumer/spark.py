"""Give a Spark job the history of a table as a DataFrame, and its live changes from exactly that point as a stream."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.config import CATALOG_NAME, load
from replicator.consumer.batches import steps_after
from replicator.consumer.cursor import Cursor
from replicator.consumer.feed import FROM_CHANGELOG, FROM_MIRROR, Feed
from replicator.consumer.files import told_columns
from replicator.consumer.spark_source import SOURCE, ChangesSource
from replicator.errors import UsageError
from replicator.lake.reading.reader import open_catalog
from replicator.model.common import quoted


@dataclass(frozen=True, slots=True)
class SparkFeed:
    """The history of a table and its live changes.

    Attributes:
        history: the rows of the mirror, or of the changelog, in one snapshot, read by Iceberg; None if there are none,
            or if the feed starts with a cursor.
        changes: a streaming DataFrame of the changes after the history: the columns of the changelog, in no particular
            order within a micro-batch.
        cursor: where `changes` starts, unless the query's checkpoint says more.
        steps: what statements did to rows without changes, after `cursor.steps_at`; see `SchemaNotice.steps`. If there
            is another one, the query fails, so that it is not missed.
    """

    history: DataFrame | None
    changes: DataFrame
    cursor: Cursor
    steps: tuple[Mapping[str, Any], ...] = ()


def spark_changes(
    spark: SparkSession,
    config: Path | str,
    table: str,
    start: str | Cursor = FROM_MIRROR,
    *,
    catalog: str = CATALOG_NAME,
) -> SparkFeed:
    """Return the history of a table, and a stream of its changes from exactly that point.

    Nothing is missing and nothing comes twice. The checkpoint of the query keeps how far it has come: to continue it,
    start it again with the same checkpoint and the `cursor` of the first time. The query fails if the columns of the
    changelog change, or if a statement changes rows without changes: start it again then, and apply `SparkFeed.steps`.

    Args:
        config: the configuration file of the mirror; the driver reads it for each batch.
        table: the source table, ``database.table``.
        start: ``"mirror"``, ``"changelog"`` or a cursor, as for `replicator.consumer.changes`.
        catalog: the name of the lake's catalog in this Spark session.

    Raises:
        UsageError: as `replicator.consumer.changes`; or the cursor is in the middle of a snapshot.
        Unsettled, CursorExpired, LakeUnavailable: as `replicator.consumer.changes`.
    """
    settings = load(Path(config))
    if isinstance(start, Cursor):
        _check(start)
    with open_catalog(settings.lake) as opened:
        feed = Feed(opened, settings, table)
        cursor = start if isinstance(start, Cursor) else feed.start(start)
        changelog = feed.tables.changelog(cursor.changelog)
        mirror, steps = feed.tables.mirror(), steps_after(changelog, cursor.steps_at)
    history, name = None, changelog.name()[-1]
    if cursor.image is not None:
        history = _snapshot(
            spark, quoted(catalog, feed.tables.namespace, name), mirror, cursor.image.snapshot_id
        )
        cursor = replace(cursor, image=None)
    elif start == FROM_CHANGELOG and cursor.scan is not None and cursor.scan.snapshot_id is not None:
        source = quoted(catalog, feed.tables.changes_namespace, name)
        history = _snapshot(spark, source, changelog, cursor.scan.snapshot_id)
        cursor = cursor.at_end_of(cursor.scan)
    spark.dataSource.register(ChangesSource)
    told = max((int(step["at"]) for step in steps), default=cursor.steps_at)
    stream = spark.readStream.format(SOURCE).options(
        config=str(Path(config).resolve()), table=table, cursor=cursor.to_json(), steps_at=str(told)
    )
    return SparkFeed(history, stream.load(), cursor, steps)


def _check(cursor: Cursor) -> None:
    """Refuse a cursor in the middle of a snapshot: Spark reads whole files."""
    if cursor.within is not None or (cursor.image is not None and cursor.image.rows):
        raise UsageError(
            f"the cursor of {cursor.table} is in the middle of a snapshot, of which Spark would read all rows",
            "take a cursor of the end of a commit: the last one of a consumer that read everything",
        )


def _snapshot(spark: SparkSession, name: str, table: Table | None, snapshot_id: int) -> DataFrame:
    """Return the rows of a snapshot with the current columns; Spark's time travel has the columns of that time."""
    rows = spark.read.option("versionAsOf", str(snapshot_id)).table(name)
    snapshot = None if table is None else table.snapshot_by_id(snapshot_id)
    if table is None or snapshot is None or snapshot.schema_id is None:
        return rows
    then = {field.field_id: field.name for field in table.schemas()[snapshot.schema_id].fields}
    types = {field.name: field.dataType for field in spark.read.table(name).schema}
    columns = {field.name: then.get(field.field_id) for field in told_columns(table).fields}
    return rows.select(
        *[
            (F.lit(None).cast(types[column]) if old is None else F.col(quoted(old))).alias(column)
            for column, old in columns.items()
        ]
    )
