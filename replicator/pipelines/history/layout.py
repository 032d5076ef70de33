"""How versions of rows are stored as the rows of a history, and read from them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.model.changelog import RowKind
from replicator.model.common import quoted
from replicator.model.partitioning import PartitionField
from replicator.pipelines.history.definition import Kind, OwnNames
from replicator.pipelines.history.versions import PLACE, place

_STORED: Final = tuple(name for name, _ in PLACE if name != "ts")
_SIDES: Final = (("from", "first"), ("to", "end"))


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a history.

    Attributes:
        types: the columns of the table itself, with their types in Spark SQL.
        key: those that identify a row.
    """

    kind: Kind
    types: Mapping[str, str]
    key: tuple[str, ...]

    @property
    def own(self) -> OwnNames:
        """The names of the other columns."""
        return OwnNames.beside(self.types)

    @property
    def partition(self) -> tuple[PartitionField, ...]:
        """How the table is partitioned: refreshes read only the versions that are current."""
        return (PartitionField("identity", self.own.is_current),) if self.kind is Kind.VERSIONS else ()

    @property
    def place(self) -> tuple[str, ...]:
        """The columns that identify the rows which a refresh replaces."""
        return (*self.key, self.own.is_current) if self.kind is Kind.VERSIONS else self.key

    def is_open(self) -> SparkColumn:
        """Return whether the source has a row, as far as the history knows."""
        if self.kind is Kind.VERSIONS:
            return F.col(quoted(self.own.is_current))
        return F.col(quoted(self.own.deleted_at)).isNull()

    def is_older(self, columns: Collection[str], time: SparkColumn) -> SparkColumn:
        """Return whether a row of a history with `columns`, of any kind, is known by a change from before a time."""
        own = self.own
        for name in (own.deleted_at, own.changed_at):
            if name in columns:
                return F.col(quoted(name)) < time
        changed = F.col(quoted(own.version)).getField("from_op").isNotNull()
        return changed & (F.col(quoted(own.valid_from)) < time)

    def row(self) -> SparkColumn:
        """Return the row of the table in a row of the history, as a struct."""
        return F.struct(*(F.col(quoted(name)).alias(name) for name in self.types))

    def rows(self, versions: DataFrame) -> DataFrame:
        """Return versions as rows of the history."""
        own, values = self.own, [F.col("v").getField(name).alias(name) for name in self.types]
        ended = F.timestamp_micros(F.col("end.ts"))
        if self.kind is Kind.DELETED:
            return versions.select(*values, ended.alias(own.deleted_at))
        stored = [
            F.col(f"{side}.{name}").alias(f"{begin}_{name}") for begin, side in _SIDES for name in _STORED
        ]
        return versions.select(
            *values,
            F.timestamp_micros(F.col("first.ts")).alias(own.valid_from),
            ended.alias(own.valid_to),
            F.col("end").isNull().alias(own.is_current),
            F.struct(*stored).alias(own.version),
        )

    def appended(self, changes: DataFrame) -> DataFrame:
        """Return changes of `ChangeLogRows.read` as rows of a history to which rows are only added."""
        own, at = self.own, [F.col(f"at.{name}").alias(name) for name in _STORED]
        return changes.where(F.col("kind") != str(RowKind.UPDATE_BEFORE)).select(
            *(F.col("v").getField(name).alias(name) for name in self.types),
            F.timestamp_micros(F.col("at.ts")).alias(own.changed_at),
            (~F.col("exists")).alias(own.is_deleted),
            F.struct(*at, F.col("o.commit").alias("commit"), F.col("o.offset").alias("offset")).alias(
                own.version
            ),
        )

    def versions(self, rows: DataFrame) -> DataFrame:
        """Return rows of the history as versions."""
        own = self.own
        if self.kind is Kind.DELETED:
            # Where a row began is not stored.
            nothing = [F.lit(None)] * len(PLACE)
            deleted = F.col(quoted(own.deleted_at))
            ended = place(F.lit(None), F.unix_micros(deleted), *nothing[2:])
            return rows.select(
                self.row().alias("v"),
                place(*nothing).alias("first"),
                F.when(deleted.isNotNull(), ended).alias("end"),
            )
        version = F.col(quoted(own.version))

        def side(begin: str, time: str) -> SparkColumn:
            values = {name: version.getField(f"{begin}_{name}") for name in _STORED}
            return place(*({**values, "ts": F.unix_micros(F.col(quoted(time)))}[name] for name, _ in PLACE))

        end = F.when(~self.is_open(), side("to", own.valid_to))
        return rows.select(
            self.row().alias("v"), side("from", own.valid_from).alias("first"), end.alias("end")
        )
