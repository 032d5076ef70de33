"""Read the changes of a changelog as events of keys; see `versions`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from replicator.errors import UnsupportedChange
from replicator.jvm.position_columns import position_key
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.spark_tables import rows_of
from replicator.model.changelog import NOT_APPLIED, RowKind
from replicator.model.common import quoted
from replicator.model.types import spark_sql_name
from replicator.pipelines.history.versions import FIRST_ORDER, Ending, order, place
from replicator.pipelines.inputs.states import BEFORE
from replicator.pipelines.inputs.tables import InputTable
from replicator.schema.evolution.row_plan import RowPlan, plan_rows, value_sql

_VALUES: Final = "stored"
_POSITION: Final = "at.position"
OPEN: Final = "open"
"""The transaction of versions that are stored: none that an event has."""


@dataclass(frozen=True, slots=True)
class ChangeLogRows:
    """The changes of one mirror that a history may need.

    Attributes:
        input: the mirror, with its changelog.
        changelog: the changelog.
        plan: how rows of all times get the columns of now.
    """

    lake: Lake
    input: InputTable
    changelog: LakeTable
    plan: RowPlan = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan", self._planned())

    def _planned(self) -> RowPlan:
        columns = list(self.changelog.engine_columns())
        steps = self.input.steps()
        if steps is None:
            raise UnsupportedChange(
                f"the changelog of {self.input.name} does not say what the key of the table is",
                "it does after the next schema change of the table, or once it was read again: replicator heal",
            )
        # Columns that the source dropped stay, as in the changelog.
        return plan_rows(columns, (), steps, None, [k.at for k in self.input.table.kept_rows()])

    @property
    def types(self) -> dict[str, str]:
        """The columns of the history that are the table's, with their types in Spark SQL."""
        kinds = self.changelog.engine_columns()
        return {column.name: spark_sql_name(kinds[column.stored]) for column in self.plan.columns}

    @property
    def change(self) -> SparkColumn:
        """The struct column of the changelog."""
        return F.col(quoted(self.input.change or ""))

    def read(self, wanted: SparkColumn) -> DataFrame:
        """Return the images of changes that meet a condition: with the columns of events, `kind` and `server`."""
        rows, kinds = rows_of(self.lake, self.changelog), self.changelog.engine_columns()
        change = self.change
        # The mirror never got a replayed change of a key that had changed since.
        wanted = wanted & ~change.getField("commit").eqNullSafe(F.lit(NOT_APPLIED))
        stored = F.struct(
            *(F.col(quoted(n)).cast(spark_sql_name(kind)).alias(n) for n, kind in kinds.items())
        )
        number = F.coalesce(F.substring_index(change.getField("file"), ".", -1).cast("bigint"), F.lit(0))
        at = place(
            change.getField("op"),
            F.unix_micros(change.getField("source_ts")),
            change.getField("file"),
            change.getField("pos"),
            change.getField("gtid"),
            position_key(number, F.coalesce(change.getField("pos"), F.lit(0))),
        )
        kind = change.getField("kind")
        commit = F.coalesce(change.getField("commit"), F.lit(NOT_APPLIED))
        found = rows.where(wanted).select(
            stored.alias(_VALUES),
            at.alias("at"),
            order(commit, change.getField("offset"), (kind != str(RowKind.UPDATE_BEFORE)).cast("int")).alias(
                "o"
            ),
            kind.alias("kind"),
            F.coalesce(change.getField("server_id"), F.lit(0)).alias("server"),
        )
        values = [F.expr(value_sql(c, kinds, _VALUES, _POSITION)).alias(c.name) for c in self.plan.columns]
        exists = F.col("kind").isin(str(RowKind.INSERT), str(RowKind.UPDATE_AFTER))
        return found.select(
            F.struct(*values).alias("v"),
            exists.alias("exists"),
            "at",
            "o",
            _transaction().alias("tx"),
            "kind",
            "server",
        )


def _transaction() -> SparkColumn:
    """Return what tells the transaction of a change: its GTID, or without GTIDs the event."""
    event = F.concat_ws(":", F.col("at.file"), F.col("at.pos"))
    commit = F.concat_ws(":", F.col("o.commit"), F.col("o.offset"))
    return F.coalesce(F.lower("at.gtid"), F.when(F.col("at.file").isNotNull(), event), commit)


def events_in(changes: DataFrame) -> DataFrame:
    """Return the events that changes are: each with the row after it, or that there is none."""
    kinds = (str(RowKind.INSERT), str(RowKind.UPDATE_AFTER), str(RowKind.DELETE))
    return changes.where(F.col("kind").isin(*kinds)).select("v", "exists", "at", "o", "tx")


def rows_before(changes: DataFrame, key: Sequence[str], at: SparkColumn) -> DataFrame:
    """Return the rows that were there before all changes, as events at `at`: the first image of a key tells."""
    keys = [F.col("v").getField(name) for name in key]
    first = F.row_number().over(Window.partitionBy(*keys).orderBy("o"))
    known = changes.where(F.col("kind") != str(RowKind.TRUNCATE)).withColumn("nth", first)
    return as_events(
        known.where((F.col("nth") == 1) & F.col("kind").isin(*BEFORE)).select("v", at.alias("at"))
    )


def as_events(rows: DataFrame, exists: SparkColumn | None = None) -> DataFrame:
    """Return rows with `v` and `at` as events before all changes."""
    return rows.select(
        "v",
        (F.lit(True) if exists is None else exists).alias("exists"),
        "at",
        order(F.lit(FIRST_ORDER), F.lit(FIRST_ORDER), F.lit(0)).alias("o"),
        F.lit(OPEN).alias("tx"),
    )


def endings_in(changes: DataFrame) -> list[Ending]:
    """Return where changes removed all rows, in their order: at a TRUNCATE, and at the first row of each snapshot."""
    op, here = F.col("at.op"), F.struct("o.commit", "o.offset")
    read = (op == "r") & (F.col("server") == 0)
    snapshot = F.when(read, F.col("at.position")).otherwise(F.lit(None))
    truncate = F.when(read, F.lit(None)).otherwise(here)
    groups = changes.where((op == "t") | read).groupBy(snapshot.alias("snapshot"), truncate.alias("truncate"))
    found = groups.agg(F.min(here).alias("first"), F.min_by("at", here).alias("at")).collect()
    endings = [Ending(tuple(row["first"]), tuple(row["at"])) for row in found]
    return sorted(endings, key=lambda ending: ending.order)


def recreated(changes: DataFrame, plan: RowPlan) -> list[Ending]:
    """Return where the source table was created again, if it was: at the first change after the statement."""
    if plan.recreated_at is None:
        return []
    here = F.struct("o.commit", "o.offset")
    later = changes.where(F.col(_POSITION) >= plan.recreated_at)
    row = later.agg(F.min(here).alias("first"), F.min_by("at", here).alias("at")).collect()[0]
    return [] if row["first"] is None else [Ending(tuple(row["first"]), tuple(row["at"]))]


def since_last_key(changes: DataFrame, plan: RowPlan) -> DataFrame:
    """Return the changes since other columns became the key, which does not tell earlier rows apart."""
    keys = [tuple(column.name for column in era.key) for era in plan.eras]
    starts = [
        era.start for era, before, now in zip(plan.eras[1:], keys, keys[1:], strict=False) if before != now
    ]
    return changes if not starts else changes.where(F.col(_POSITION) >= max(starts))
