"""Make a staging table, whose state is that of the source at one position of the log, the content of the mirror.

The changelog is committed first, as in every batch. If the process is killed between the two commits, the same
differences are found again, and the changelog, whose marker shows that it has them, is not written again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator import failpoints
from replicator.batch import MirrorContext
from replicator.batch.events.changelog_rows import changelog_rows
from replicator.batch.evolution.keeper import TableKeeper
from replicator.batch.values import BatchSchema
from replicator.errors import UnsupportedChange
from replicator.jvm.position_columns import position_key
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.commit import Staged
from replicator.lake.files.data_files import cast_to_table, stage_data
from replicator.lake.files.spark_tables import rows_of
from replicator.lake.others import refuse_loss, rolled_back
from replicator.lake.strategies.changes import MirrorChange
from replicator.lake.strategies.keyless import stage_by_identity
from replicator.lake.strategies.registry import SPLIT
from replicator.lake.table_writer import WriteTarget
from replicator.model.changelog import NET, RESTATED_KEY, change_column, followed_by_mirror, next_restatement
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import now_ms, quoted
from replicator.model.position import SourcePosition, binlog_number
from replicator.model.quarantine import ReadRows
from replicator.model.reread import DONE_KEY, STATE_KEY, Request, StagingState
from replicator.model.roles import LakeRole
from replicator.model.table import TableId
from replicator.recovery.comparison import Comparison, compare
from replicator.recovery.reader.staging import Staging
from replicator.schema.evolution.changes import FOLLOWED_KEY, KEPT_KEY, SCHEMA_KEY, UNFILLED_KEY, SchemaChange
from replicator.schema.evolution.steps import STEPS_KEY, SchemaSteps
from replicator.schema.history.order import binlog_key
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.reread")
RECONCILED: Final = "h"
"""`op` of changelog rows that a re-read found: differences between mirror and source. The log has no event for them."""
SNAPSHOT_READ: Final = "r"
"""`op` of changelog rows with the first content of a mirror, as for the rows of a connector's snapshot."""
_INTEGERS: Final = ("int", "long", "decimal")
_BYTES: Final = ("binary",)
_REPLACE_ABOVE: Final = 1_000_000
"""Above this number of differences, the mirror gets the whole content: deletes by key need all keys in memory."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A re-read that is complete.

    Attributes:
        context: the context of the mirror.
        state: the state of the staging table.
        schema: the schema of the staging table.
        topic: the topic of the table.
    """

    context: MirrorContext
    staging: Staging
    request: Request
    state: StagingState
    schema: BatchSchema
    topic: str

    @property
    def table(self) -> TableId:
        """The source table."""
        return self.request.table

    @property
    def read_rows(self) -> ReadRows:
        """Which events are in the rows that were read."""
        return ReadRows(self.topic, self.state.since or {}, self.request.requested_ms)

    def publish(self) -> int | None:
        """Publish the staging table; return the number of rows in which the mirror differed, None if it is new.

        Raises:
            SchemaError: the mirror cannot take the columns of the source.
            FencedError, CommitConflict, LakeUnavailable: as `TableWriter.commit`.
        """
        source, marker = self.staging.load(self.table), self._staged_marker()
        if source is None or marker is None:
            raise UnsupportedChange(
                f"the staging table of {self.table} was dropped", "request the re-read again"
            )
        marker = replace(marker, position=self._position(marker))
        mirror = self.context.lake.load(self.context.config.lake.namespace, self.table.name)
        if mirror is None and self.request.narrowed is not None:
            raise UnsupportedChange(
                f"{self.table} has no mirror any more", f"run: replicator heal {self.table}"
            )
        if mirror is None:
            self._publish_new(source, marker)
            return None
        return self._reconcile(mirror, source, marker)

    def _staged_marker(self) -> CommitMarker | None:
        return self.staging.context.ledger.progress(self.table).mirror

    def _position(self, marker: CommitMarker) -> SourcePosition:
        """Return the position of the mirror: the end of reading, unless an event that was applied is after it."""
        read = SourcePosition(self.state.file, self.state.pos)
        return read if marker.position is None else max(read, marker.position)

    def _publish_new(self, source: LakeTable, marker: CommitMarker) -> None:
        """Write the rows to the changelog, and make the staging table the mirror."""
        # A query of no rows takes as long as one of some.
        self._write_changelog(None if source.is_empty else self._inserted(source), marker, SNAPSHOT_READ)
        failpoints.reach("between-reread-commits")
        self.context.lake.rename(
            self.staging.namespace, self.table.name, self.table.name, into=self.context.config.lake.namespace
        )
        failpoints.reach("after-reread-rename")
        self.complete_rename()

    def _inserted(self, source: LakeTable) -> DataFrame:
        row = _struct(list(source.columns()))
        return rows_of(self.context.lake, source).select(
            F.when(F.lit(False), row).alias("before"), row.alias("after")
        )

    def complete_rename(self) -> None:
        """Complete a staging table that has become the mirror: it is no staging table any more.

        Raises:
            LakeError: as `TableWriter.commit`.
        """
        self._forget()
        mirror = self.context.lake.load(self.context.config.lake.namespace, self.table.name)
        base = self.context.ledger.progress(self.table).mirror
        if mirror is None or base is None:
            return
        self._resolve_quarantined()
        marker = replace(
            base, sequence=base.sequence + 1, position=self._position(base), committed_ms=now_ms()
        )
        target = self.context.writer.target(self.table, LakeRole.MIRROR, mirror)
        self.context.writer.commit(
            target, Staged(properties={STATE_KEY: None, **self._restatement()}), marker
        )

    def _reconcile(self, mirror: LakeTable, source: LakeTable, marker: CommitMarker) -> int:
        """Give the mirror the columns of the source, and write the differences to changelog and mirror."""
        keeper = self._keeper()
        if self.request.narrowed is None:
            # The rows of the mirror are those that its changelog says.
            keeper.delete_as_recorded(mirror)
        plan = keeper.plan_restated(mirror)
        compared = compare(mirror, source, plan.changes, self.schema)
        ours, theirs = (rows_of(self.context.lake, table) for table in (mirror, source))
        if (condition := self._part_condition(mirror, plan.changes, compared)) is not None:
            ours, theirs = ours.where(condition), theirs.where(condition)
        found = compared.differences(ours, theirs).persist()
        try:
            changed = found.count()
            if (changed or plan.changes) and not compared.keeps(mirror):
                refuse_loss(mirror, f"a re-read of {self.table}, whose rows cannot be told apart by a key,")
            if condition is not None and changed > _REPLACE_ABOVE:
                raise self._cannot_correct_part("too many rows differ")
            # The changelog of a mirror that was rolled back has these changes; the log has those after its marker.
            if rolled_back(self.context.lake, mirror, is_mirror=True) is None:
                self._write_changelog(found, marker, RECONCILED)
            failpoints.reach("between-reread-commits")
            if plan.changes:
                rows, staged = compared.content(ours, theirs), Staged()
                if not keeper.restate(mirror, plan, rows):
                    staged = self._staged_content(mirror, rows)
                failpoints.reach("after-reread-schema")
            elif changed > _REPLACE_ABOVE or (
                changed and compared.key and not compared.identifies_rows(mirror)
            ):
                staged = self._staged_content(mirror, compared.content(ours, theirs))
            else:
                staged = self._staged_differences(mirror, found, compared) if changed else Staged()
            staged = self._with_properties(staged, mirror)
            base = self.context.ledger.progress(self.table).mirror
            target = self._target(mirror)
            sequence = 1 if base is None else base.sequence + 1
            self.context.writer.commit(
                target, staged, replace(marker, sequence=sequence, committed_ms=now_ms())
            )
            failpoints.reach("after-reread-publish")
        finally:
            found.unpersist()
        self._forget()
        if self.request.narrowed is None:
            # If the process is killed before this, the staging table is still there, and is published again.
            self._resolve_quarantined()
        return changed

    def _part_condition(
        self, mirror: LakeTable, changes: Sequence[SchemaChange], compared: Comparison
    ) -> str | None:
        """Return the condition for the rows that are compared; None for all.

        Later events may have brought rows from elsewhere into the staging table.

        Raises:
            UnsupportedChange: the request is for a part of the table, and all rows are needed.
        """
        narrowed = self.request.narrowed
        if narrowed is None:
            return None
        if changes or mirror.pending_fills() or mirror.pending_clear() is not None:
            raise self._cannot_correct_part("its columns changed")
        types = _INTEGERS if narrowed.width is None else _BYTES
        names = [
            c.name
            for c in self.schema.source.columns
            if c.source_name.name == narrowed.column and c.transform is None and c.type.name in types
        ]
        # Otherwise a row could be within the spans on one side only.
        if not set(names) & set(compared.key) or not compared.identifies_rows(mirror):
            raise self._cannot_correct_part(f"{narrowed.column} does not identify its rows")
        return narrowed.condition(quoted(names[0]))

    def _cannot_correct_part(self, reason: str) -> UnsupportedChange:
        return UnsupportedChange(
            f"a part of {self.table} cannot be corrected: {reason}", f"run: replicator heal {self.table}"
        )

    def _target(self, mirror: LakeTable) -> WriteTarget:
        """Return the mirror as a target: whatever rows it has, unless only a part of them is corrected."""
        writer = self.context.writer
        choose = writer.replaced_target if self.request.narrowed is None else writer.target
        return choose(self.table, LakeRole.MIRROR, mirror)

    def _with_properties(self, staged: Staged, mirror: LakeTable) -> Staged:
        """Return the change with the properties of a mirror that equals the source."""
        properties = self._restatement()
        if self.request.narrowed is not None:
            return replace(staged, properties=properties)
        complete = {UNFILLED_KEY: None, KEPT_KEY: None, FOLLOWED_KEY: None, **self._schema_property(mirror)}
        return replace(staged, fills_done=True, properties={**complete, **properties})

    def _schema_property(self, mirror: LakeTable) -> dict[str, str]:
        """Return the property with the schema version of the rows, if the mirror has an earlier or unknown one.

        Between an earlier one and it, statements may have changed rows without events.
        """
        known, read = mirror.schema_state(), self.staging.context.ledger.progress(self.table).mirror_schema
        if known is None or read is None:
            return {}
        if read.at <= known.at and not self.schema.history.lacks(known.at):
            return {}
        return {SCHEMA_KEY: replace(known, at=read.at).to_json()}

    def _resolve_quarantined(self) -> None:
        """Resolve the quarantined events whose changes are in the rows that were read."""
        resolved = self.context.quarantine.resolve_read(self.table, self.read_rows)
        if resolved:
            _LOG.info("quarantined events resolved by a re-read", table=str(self.table), events=resolved)

    def _staged_content(self, mirror: LakeTable, rows: DataFrame) -> Staged:
        """Stage the whole content of the mirror."""
        data = stage_data(self.context.lake, mirror, cast_to_table(rows, mirror.columns()))
        return Staged(data, clear=not mirror.is_empty)

    def _staged_differences(self, mirror: LakeTable, found: DataFrame, compared: Comparison) -> Staged:
        if not (key := compared.key):
            return self._staged_copies(mirror, found, compared)
        gone = found.where(F.col("before").isNotNull())
        keys = gone.select(*(F.col("before").getField(n).alias(f"k{i}") for i, n in enumerate(key)))
        rows = compared.rows(found.where(F.col("after").isNotNull()))
        return SPLIT.stage(self.context.lake, mirror, MirrorChange(key, keys, rows, clear=False))

    def _staged_copies(self, mirror: LakeTable, found: DataFrame, compared: Comparison) -> Staged:
        """Stage the differences of a table without a key; its other rows keep their JSON text."""
        images = F.array(
            F.struct(F.lit(-1).alias("n"), F.col("before").alias("row")),
            F.struct(F.lit(1).alias("n"), F.col("after").alias("row")),
        )
        each = found.select(F.explode(images).alias("image")).where(F.col("image.row").isNotNull())
        row = F.col("image").getField("row")
        values = [row.getField(name).alias(f"k{i}") for i, name in enumerate(compared.names)]
        counted = each.select(*values, F.col("image.n").alias("n"))
        net = counted.groupBy(*[f"k{i}" for i in range(len(values))]).agg(F.sum("n").cast("int").alias(NET))
        return stage_by_identity(
            self.context.lake, mirror, compared.names, net.where(F.col(NET) != 0), compared.json, clear=False
        )

    def _keeper(self) -> TableKeeper:
        options = self.context.config.table(str(self.table))
        replaces = self.request.narrowed is None
        return TableKeeper(self.context, self.table, options, self.schema, follows=False, replaces=replaces)

    def _write_changelog(self, images: DataFrame | None, marker: CommitMarker, op: str) -> None:
        """Append `images` (columns before and after), if there are any, to the changelog, unless it has them."""
        context = self.context
        if not context.config.table(str(self.table)).changelog:
            return
        changelog = self._keeper().keep(LakeRole.CHANGELOG)
        if changelog is None or changelog.property(DONE_KEY) == self.request.id:
            return
        base = context.ledger.progress(self.table).changelog
        sequence = 1 if base is None else base.sequence + 1
        data = [] if images is None else self._staged_images(changelog, images, marker, sequence, op)
        properties = {DONE_KEY: self.request.id, **self._next_restatement(changelog, sequence)}
        properties |= self._steps(changelog, marker)
        staged = Staged(data, properties=properties)
        target = context.writer.target(self.table, LakeRole.CHANGELOG, changelog)
        context.writer.commit(target, staged, replace(marker, sequence=sequence, committed_ms=now_ms()))

    def _staged_images(
        self, changelog: LakeTable, images: DataFrame, marker: CommitMarker, sequence: int, op: str
    ) -> Sequence[Any]:
        columns = self.schema.decoded
        change = change_column(columns.names)
        events = _as_events(_with_columns(images, columns.names), self.topic, marker)
        rows = changelog_rows(events.withColumn("commit", F.lit(sequence).cast("long")), columns)
        rows = rows.withColumn(change, F.col(quoted(change)).withField("op", F.lit(op)))
        frame = cast_to_table(rows, changelog.columns(), struct=change)
        return stage_data(self.context.lake, changelog, frame)

    def _steps(self, changelog: LakeTable, marker: CommitMarker) -> dict[str, str]:
        """Return the property of the changelog that tells from where it has what statements did without events."""
        text, position = changelog.property(STEPS_KEY), marker.position
        if text is None or position is None or self.request.narrowed is not None:
            return {}
        return {STEPS_KEY: SchemaSteps.from_json(text).read_again(binlog_key(position)).to_json()}

    def _next_restatement(self, changelog: LakeTable, commit: int) -> dict[str, str]:
        """Return the property of the changelog that gets the rows; the first rows of a changelog restate nothing."""
        if changelog.snapshot_id is None:
            return {}
        mirror = self.context.lake.load(self.context.config.lake.namespace, self.table.name)
        known = None if mirror is None else mirror.property(RESTATED_KEY)
        kind = f"reread-{self.request.id}"
        return {RESTATED_KEY: next_restatement(changelog.property(RESTATED_KEY), known, kind, commit)}

    def _restatement(self) -> dict[str, str | None]:
        """Return the properties of a mirror that equals the source, and so has all rows of the changelog.

        Without a changelog, the id of the request alone shows that the mirror has rows that the log does not. If only
        a part was read, the mirror gets the rows of this re-read; it may still lack earlier ones.
        """
        lake, config = self.context.lake, self.context.config.lake
        changelog = lake.load(config.changes_namespace, self.table.name)
        newest = None if changelog is None else changelog.property(RESTATED_KEY)
        if self.request.narrowed is not None:
            mirror = lake.load(config.namespace, self.table.name)
            newest = followed_by_mirror(newest, None if mirror is None else mirror.property(RESTATED_KEY))
        return {RESTATED_KEY: newest, DONE_KEY: self.request.id}

    def _forget(self) -> None:
        """Forget what is known of the staging table and of the mirror."""
        for context in (self.context, self.staging.context):
            table = context.lake.load(context.config.lake.namespace, self.table.name)
            if table is not None:
                context.row_locations.forget(table)
            context.ledger.forget(self.table)


def _struct(names: Sequence[str]) -> SparkColumn:
    return F.struct(*(F.col(quoted(name)).alias(name) for name in names))


def _with_columns(images: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the images with exactly the columns `names`; null for those that they lack."""

    def image(side: str) -> SparkColumn:
        present = images.schema[side].dataType.fieldNames()  # type: ignore[attr-defined]  # a struct
        fields = [(F.col(side).getField(n) if n in present else F.lit(None)).alias(n) for n in names]
        return F.when(F.col(side).isNotNull(), F.struct(*fields)).alias(side)

    return images.select(image("before"), image("after"))


def _as_events(images: DataFrame, topic: str, marker: CommitMarker) -> DataFrame:
    """Return images as decoded events that lie directly before the next event of the log."""
    offsets = marker.progress.get(topic, {})
    first = min(offsets, default=0)
    offset = offsets[first].next_offset - 1 if offsets else -1
    position = marker.position
    number = binlog_number(position.file) if position is not None and position.file else 0
    op = F.when(F.col("before").isNull(), F.lit("c")).when(F.col("after").isNull(), F.lit("d"))
    return images.select(
        op.otherwise(F.lit("u")).alias("op"),
        F.lit(marker.watermark_ms).cast("long").alias("ts_ms"),
        F.lit(None if position is None else position.file).cast("string").alias("file"),
        position_key(F.lit(number).cast("long"), F.lit(0 if position is None else position.pos)).alias(
            "position_key"
        ),
        F.lit(0).cast("long").alias("row_key"),
        F.lit(0).cast("long").alias("server_id"),
        F.lit(None).cast("string").alias("gtid"),
        F.lit(first).cast("int").alias("partition"),
        F.lit(offset).cast("long").alias("offset"),
        "before",
        "after",
    )
