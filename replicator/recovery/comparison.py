"""Compare a mirror with a staging table: find the rows that differ, as images before and after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.batch.values import BatchSchema
from replicator.jvm.json_columns import json_meaning
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.schema_evolution import names_before
from replicator.model.common import quoted
from replicator.model.types import LakeType, spark_sql_name
from replicator.schema.evolution.changes import AddColumn, ChangeType, DropColumn, SchemaChange
from replicator.schema.evolution.own_columns import is_temporary
from replicator.schema.types.native import cast

_COUNT: Final = "replicator_count"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the rows of a mirror and of a staging table are compared.

    Attributes:
        columns: the columns of the staging table.
        values: column of the staging table → the mirror's value of it, in SQL.
        kept: column that only the mirror has, after the changes of its schema → its value, in SQL.
        ignored: columns of the staging table that the mirror does not get.
        key: the columns that identify a row; empty for a table without a key.
        json: the columns with JSON. It is compared by meaning: the source may write it otherwise than the binlog.
    """

    columns: Mapping[str, LakeType]
    values: Mapping[str, str]
    kept: Mapping[str, str]
    ignored: frozenset[str]
    key: tuple[str, ...]
    json: frozenset[str] = field(default_factory=frozenset)

    @property
    def names(self) -> list[str]:
        """The columns of the mirror that the source has."""
        return [name for name in self.columns if name not in self.ignored]

    def identifies_rows(self, mirror: LakeTable) -> bool:
        """Return whether the mirror's rows can be found by their key, which none of them lacks."""
        return bool(self.key) and not set(self.key) & set(mirror.unfilled())

    def keeps(self, mirror: LakeTable) -> bool:
        """Return whether the values of `kept` columns stay with their rows, which are found by their key."""
        return self.identifies_rows(mirror) and set(self.key) <= self.values.keys()

    def differences(self, mirror: DataFrame, source: DataFrame) -> DataFrame:
        """Return the rows that differ, as structs `before` (of the mirror), `after` (of the source) and `kept`.

        `before` is null for a row that the mirror lacks, `after` for one that the source lacks. Without a key, there is
        no `kept`.
        """
        if not self.key:
            return self._keyless_differences(mirror, source)
        equal = F.lit(True)
        for name in self.names:
            old, new = (F.col(image).getField(name) for image in ("before", "after"))
            same = old.eqNullSafe(new)
            if name in self.json:
                same |= json_meaning(old).eqNullSafe(json_meaning(new))
            equal &= same
        both = F.col("before").isNotNull() & F.col("after").isNotNull()
        return self._joined(mirror, source).where(~(both & equal))

    def content(self, mirror: DataFrame, source: DataFrame) -> DataFrame:
        """Return all rows that the mirror must have, in its columns."""
        if not self.kept or not self.key:
            return source.select(*(F.col(quoted(name)) for name in self.names))
        joined = self._joined(mirror, source)
        return self.rows(joined.where(F.col("after").isNotNull()))

    def rows(self, images: DataFrame) -> DataFrame:
        """Return the rows `after` of some images, in the mirror's columns."""
        after = [F.col("after").getField(name).alias(name) for name in self.names]
        return images.select(*after, *(F.col("kept").getField(n).alias(n) for n in self.kept))

    def _joined(self, mirror: DataFrame, source: DataFrame) -> DataFrame:
        keys = [f"k{i}" for i in range(len(self.key))]
        named = [F.col("image").getField(name).alias(k) for name, k in zip(self.key, keys, strict=True)]
        ours = mirror.select(self._image_of_mirror().alias("image"), self._kept().alias("kept"))
        theirs = source.select(self._image_of_source().alias("image"))
        ours = ours.select(*named, F.col("image").alias("before"), "kept")
        theirs = theirs.select(*named, F.col("image").alias("after"))
        return ours.join(theirs, keys, "full_outer").select("before", "after", "kept")

    def _keyless_differences(self, mirror: DataFrame, source: DataFrame) -> DataFrame:
        """Count equal rows on both sides; each image stands for one row, with its JSON as that side has it."""
        ours = mirror.select(self._image_of_mirror().alias("image"), F.lit(-1).alias(_COUNT))
        theirs = source.select(self._image_of_source().alias("image"), F.lit(1).alias(_COUNT))
        count, image = F.col(_COUNT), F.col("image")
        counted = (
            ours.unionByName(theirs)
            .groupBy(self._meaning_of(image).alias("meaning"))
            .agg(
                F.max(F.when(count < 0, image)).alias("before"),
                F.max(F.when(count > 0, image)).alias("after"),
                F.sum(count).alias(_COUNT),
            )
        )
        copies = F.explode(F.array_repeat(F.lit(0), F.abs(count).cast("int"))).alias("copy")
        images = counted.where(count != 0).select("before", "after", _COUNT, copies)
        return images.select(
            F.when(count < 0, F.col("before")).alias("before"),
            F.when(count > 0, F.col("after")).alias("after"),
        )

    def _meaning_of(self, image: SparkColumn) -> SparkColumn:
        """Return an image that is the same for rows that differ only in how their JSON is written."""
        if not self.json:
            return image
        fields = [(image.getField(name), name) for name in self.columns]
        return F.struct(
            *((json_meaning(field) if name in self.json else field).alias(name) for field, name in fields)
        )

    def _image_of_mirror(self) -> SparkColumn:
        return F.struct(
            *(
                F.expr(self.values.get(name, "NULL")).cast(spark_sql_name(kind)).alias(name)
                for name, kind in self.columns.items()
            )
        )

    def _image_of_source(self) -> SparkColumn:
        return F.struct(*(F.col(quoted(name)).alias(name) for name in self.columns))

    def _kept(self) -> SparkColumn:
        return F.struct(*(F.expr(value).alias(name) for name, value in self.kept.items()))


def compare(
    mirror: LakeTable,
    source: LakeTable,
    changes: Sequence[SchemaChange],
    schema: BatchSchema,
) -> Comparison:
    """Return how to compare a mirror, whose schema is to get `changes`, with a staging table, which has `schema`."""
    names, columns = names_before(changes), source.columns()
    added = {c.column.name for c in changes if isinstance(c, AddColumn)}
    converted = {
        c.name: (cast(c.old, c.new) or "NULL").format(quoted(c.was))
        for c in changes
        if isinstance(c, ChangeType)
    }
    present = [name for name in mirror.columns() if not is_temporary(name)]
    gone = {c.name for c in changes if isinstance(c, DropColumn)} | set(names.values())
    final = [n for n in present if n not in gone] + list(names) + sorted(added)
    return Comparison(
        columns=columns,
        values={
            name: converted.get(name, quoted(names.get(name, name)))
            for name in final
            if name in columns and name not in added
        },
        kept={name: quoted(names.get(name, name)) for name in final if name not in columns},
        ignored=frozenset(columns) - frozenset(final),
        key=tuple(schema.mirror.key),
        json=schema.json_columns,
    )
