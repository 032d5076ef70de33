"""How a column's JSON value is parsed and turned into its lake type, as Spark types and expressions.

This is the one place where wire encodings meet Spark. Everything here runs on the JVM.
"""

from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from replicator.decode.decimals import NUMBER
from replicator.model.table import Column
from replicator.model.types import LakeType, Wire

_SPARK_TYPES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampNTZType(),
    "timestamptz": TimestampType(),
}
_WORDS: Final = 4
"""32-bit words of the largest decimal, of 38 digits."""

_PARSED_AS: Final[dict[Wire, DataType]] = {
    Wire.DAYS: IntegerType(),
    Wire.MILLIS: LongType(),
    Wire.MICROS: LongType(),
    Wire.NANOS: LongType(),
    Wire.BASE64_DECIMAL: BinaryType(),
    Wire.UNSEEN_DECIMAL: StringType(),
    Wire.BASE64_BITS: BinaryType(),
    Wire.TIME_MILLIS: LongType(),
    Wire.TIME_NANOS: LongType(),
}


def spark_type(lake_type: LakeType) -> DataType:
    """The Spark type of an Iceberg type."""
    if lake_type.name == "decimal":
        return DecimalType(lake_type.precision, lake_type.scale)
    return _SPARK_TYPES[lake_type.name]


def parsed_type(column: Column) -> DataType:
    """The type as which `from_json` reads the column."""
    if column.wire is Wire.EITHER_DECIMAL and column.type.name == "decimal":
        return VariantType()
    return _PARSED_AS.get(column.wire) or spark_type(column.type)


def row_type(columns: tuple[Column, ...]) -> StructType:
    """The lake's row type of these columns, all nullable."""
    return StructType([StructField(c.name, spark_type(c.type)) for c in columns])


def decoded(value: SparkColumn, column: Column) -> SparkColumn:  # noqa: PLR0911 one return for each encoding
    """`value`, read as `parsed_type`, as the column's lake type. The session's time zone must be UTC."""
    match column.wire:
        case Wire.PLAIN:
            return _respelt(value, column.respelt)
        case Wire.DAYS:
            return F.date_from_unix_date(value)
        case Wire.MILLIS:
            return F.timestamp_millis(value).cast(TimestampNTZType())
        case Wire.MICROS:
            return F.timestamp_micros(value).cast(TimestampNTZType())
        case Wire.NANOS:
            return F.timestamp_micros(_thousandths(value)).cast(TimestampNTZType())
        case Wire.TIME_MILLIS:
            return value * 1000
        case Wire.TIME_NANOS:
            return _thousandths(value)
        case Wire.BASE64_BITS:
            return _reversed_bytes(value)
        case Wire.BASE64_DECIMAL | Wire.EITHER_DECIMAL | Wire.UNSEEN_DECIMAL:
            return _decimal_value(value, column)


def may_be_unreadable(column: Column) -> bool:
    """Whether `decoded` makes null of a value that is there but is none of the column's."""
    return column.wire in (Wire.BASE64_DECIMAL, Wire.EITHER_DECIMAL, Wire.UNSEEN_DECIMAL)


def is_given(value: SparkColumn, column: Column) -> SparkColumn:
    """Whether there is a value at all, read as `parsed_type`."""
    given = value.isNotNull()
    return given & ~F.is_variant_null(value) if isinstance(parsed_type(column), VariantType) else given


def _respelt(value: SparkColumn, labels: tuple[tuple[str, str], ...]) -> SparkColumn:
    if not labels:
        return value
    (first, label), *others = labels
    known = F.when(value == first, F.lit(label))
    for written, meant in others:
        known = known.when(value == written, F.lit(meant))
    return known.otherwise(value)


def _thousandths(value: SparkColumn) -> SparkColumn:
    """A thousandth, rounded down, in whole numbers."""
    return F.floor((value - F.pmod(value, F.lit(1000))) / 1000).cast(LongType())


def _reversed_bytes(value: SparkColumn) -> SparkColumn:
    """Bytes back to front: BIT arrives little-endian, MySQL prints it big-endian. At most 8 bytes."""
    pieces = [F.substring(value, i, 1) for i in range(8, 0, -1)]
    return F.concat(*pieces)


def _decimal_value(value: SparkColumn, column: Column) -> SparkColumn:
    lake_type = column.type
    if column.wire is Wire.UNSEEN_DECIMAL:
        return F.lit(None).cast(spark_type(lake_type))
    if column.wire is Wire.BASE64_DECIMAL:
        return _decimal(value, lake_type)
    if lake_type.name != "decimal":
        return F.when(value.rlike(f"^{NUMBER}$"), value)
    number = F.try_variant_get(value, "$", str(lake_type))
    unscaled = F.try_to_binary(F.try_variant_get(value, "$", "string"), F.lit("base64"))
    return F.when(F.schema_of_variant(value) == "STRING", _decimal(unscaled, lake_type)).otherwise(number)


def _decimal(value: SparkColumn, lake_type: LakeType) -> SparkColumn:
    """Big-endian two's complement bytes as a decimal, up to 16 bytes; null for more.

    The bytes are cut into 32-bit words, because Spark has no wider integer to read hexadecimal digits into. Of a
    negative number -n these are the words of n - 1 with every bit turned, which keeps all steps within 38 digits.
    """
    negative = F.substring(F.hex(value), 1, 1) >= "8"
    digits = F.lpad(F.hex(value), 32, F.when(negative, "F").otherwise("0"))
    words = [F.conv(F.substring(digits, 1 + 8 * i, 8), 16, 10).cast("decimal(11,0)") for i in range(_WORDS)]
    words = [F.when(negative, F.lit((1 << 32) - 1).cast("decimal(11,0)") - w).otherwise(w) for w in words]
    size = words[0].cast("decimal(38,0)")
    for word in words[1:]:
        size = (size * F.lit(1 << 32).cast("decimal(11,0)") + word).cast("decimal(38,0)")
    # Spark may compute a branch that it does not take, so neither may overflow; and its unary minus rounds to
    # 34 digits, while its subtraction is exact.
    below = F.lit(-1).cast("decimal(1,0)") - F.when(negative, size).otherwise(F.lit(0).cast("decimal(38,0)"))
    unscaled = F.when(negative, below).otherwise(size)
    # Shifting the point in text is exact; decimal division would round.
    text = F.concat(unscaled.cast("string"), F.lit(f"E-{lake_type.scale}"))
    return F.when(F.length(value) <= _WORDS * 4, text.cast(spark_type(lake_type)))
