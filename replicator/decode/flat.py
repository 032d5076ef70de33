"""Convert flattened events (`model.events`) to envelopes, as Spark expressions."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField

from replicator.model.events import METADATA_FIELDS, SOURCE_FIELDS
from replicator.model.table import Column

_TYPES: Final[Mapping[str, DataType]] = {"string": StringType(), "long": LongType(), "int": IntegerType()}
SOURCE_TYPES: Final[Mapping[str, DataType]] = {name: _TYPES[kind] for name, kind in SOURCE_FIELDS}
"""Spark types of the fields that are read from the source block."""

_REMEDY: Final = "; see `replicator check`"


def metadata_fields() -> list[StructField]:
    """Return the metadata fields of a flattened event, as `from_json` reads them."""
    fields = [StructField("__op", StringType()), StructField("__deleted", StringType())]
    return fields + [StructField(f"__source_{name}", kind) for name, kind in SOURCE_TYPES.items()]


def flat_source(event: SparkColumn) -> SparkColumn:
    """Return the source block of a flattened event that has all `METADATA_FIELDS`."""
    return F.struct(
        *[event.getField(f"__source_{name}").cast(kind).alias(name) for name, kind in SOURCE_TYPES.items()]
    )


def envelope_of(
    event: SparkColumn, columns: Iterable[Column], present: Collection[str] = METADATA_FIELDS
) -> list[SparkColumn]:
    """Return the fields of an envelope from a flattened event, and `lacking`.

    `lacking` says which required metadata is missing; it is null for a valid event. `present` are those of
    `METADATA_FIELDS` that the event may have.
    """

    def metadata(name: str, kind: DataType) -> SparkColumn:
        value = event.getField(name) if name in present else F.lit(None)
        return value.cast(kind)

    row = F.struct(*[event.getField(c.written).alias(c.written) for c in columns])
    deleted = metadata("__deleted", StringType())
    source = [metadata(f"__source_{name}", kind).alias(name) for name, kind in SOURCE_TYPES.items()]
    lacking = (
        F.when(metadata("__op", StringType()).isNull(), F.lit(f"no __op in a flattened event{_REMEDY}"))
        .when(deleted.isNull(), F.lit(f"no __deleted in a flattened event: deletes would be lost{_REMEDY}"))
        .when(
            metadata("__source_file", StringType()).isNull() | metadata("__source_pos", LongType()).isNull(),
            F.lit(f"no position in a flattened event{_REMEDY}"),
        )
    )
    return [
        F.when(deleted == "true", row).alias("before"),
        F.when(deleted != "true", row).alias("after"),
        F.struct(*source).alias("source"),
        metadata("__op", StringType()).alias("op"),
        F.struct(F.lit(None).cast(LongType()).alias("total_order")).alias("transaction"),
        lacking.alias("lacking"),
    ]
