"""Column transforms as Spark expressions, which run on the JVM; `model.column_rules` defines them."""

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.model.column_rules import MASKED, Blank, ColumnTransform, FixedText, KeepLast, KeyedHash
from replicator.model.types import LakeType


def transformed(value: SparkColumn, lake_type: LakeType, transform: ColumnTransform | None) -> SparkColumn:
    """Apply a column transform to `value`, which is decoded as `lake_type`; null stays null."""
    match transform:
        case None:
            return value
        case KeyedHash():
            return _hmac(_canonical_bytes(value, lake_type), transform)
        case FixedText(text):
            return F.when(value.isNotNull(), F.lit(text))
        case KeepLast(count):
            return _end_kept(_canonical_text(value, lake_type), count)
        case Blank():
            return F.lit(None)


def _hmac(message: SparkColumn, transform: KeyedHash) -> SparkColumn:
    inner, outer = (F.lit(pad) for pad in transform.pads)
    return F.sha2(F.concat(outer, F.unhex(F.sha2(F.concat(inner, message), 256))), 256)


def _canonical_bytes(value: SparkColumn, lake_type: LakeType) -> SparkColumn:
    return value if lake_type.name == "binary" else _canonical_text(value, lake_type).cast("binary")


def _canonical_text(value: SparkColumn, lake_type: LakeType) -> SparkColumn:
    if lake_type.name == "binary":
        return F.hex(value)
    if lake_type.name == "decimal":
        # A cast would write small decimals with an exponent.
        places = "0." + "0" * lake_type.scale if lake_type.scale else "0"
        return F.call_function("format_number", value, F.lit(places))
    return value.cast("string")


def _end_kept(text: SparkColumn, count: int) -> SparkColumn:
    hidden = F.when(F.length(text) > count, F.length(text) - count).otherwise(F.length(text))
    return F.concat(F.repeat(F.lit(MASKED), hidden), F.substr(text, hidden + 1))
